"""docs/tables.md: its file and commands run on a small archive, and its tables list every key."""

import re
import shlex
from pathlib import Path

import pytest

from tests.docs.commands import CHECKOUT, blocks, commands
from tests.made_archive import MadeArchive, batches
from tests.tsctl.running import runner
from ts_tables.definition.tables_file import TableDefinition

PAGE = CHECKOUT / "docs/tables.md"


def test_the_pages_file_and_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """From top to bottom, with an archive and a lake of this test."""
    archive = MadeArchive(tmp_path / "store")
    archive.put_segment("page_views", 0, batches((0, 50)))
    archive.commit("page_views", 50, last_stable_offset=50)
    monkeypatch.chdir(tmp_path)
    (file,) = blocks(PAGE, language="yaml")
    text = file.text.replace("s3://bucket/base/prefix", archive.location)
    text = text.replace("/var/lib/ts-uploader", str(tmp_path)).replace("s3://lake", f"file://{tmp_path}")
    Path("tables.yaml").write_text(text)
    shell = [block for block in blocks(PAGE, language="sh") if block.text.startswith("tsctl")]
    ran = [command for block in shell for command in commands(block)]
    assert len(ran) == 5
    outputs = []
    for command in ran:
        ended = runner(capfd)(*shlex.split(command)[1:])
        assert ended.code == 0, ended
        outputs.append(ended.out)
    assert "50 offsets in 1 parts; nothing was added" in outputs[1]
    assert "50 records in 1 files" in outputs[2]
    assert outputs[4] == "backup.page_views: 50 rows, 0 differences\n"
    python, _ = blocks(PAGE, language="python")  # tests/tables/spark runs what the second one does
    exec(compile(python.text, str(PAGE), "exec"), {})
    assert capfd.readouterr().out == "0 {'page_views': 0}\n"


def test_the_page_lists_every_key_of_a_table() -> None:
    """And no other."""
    rows = re.findall(r"^\| `(\w+)` \| ", PAGE.read_text().partition("| key of a table")[2], re.MULTILINE)
    assert rows == [*TableDefinition.model_fields]
