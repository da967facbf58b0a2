"""docs/reader.md: its Python blocks run from top to bottom, and its commands on the same archive."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import ts_reader
from tests.docs.commands import CHECKOUT, blocks, commands
from tests.made_archive import MadeArchive, batches
from tests.reader.schemas.sources import archived, framed, schema_record
from tests.tsctl.running import runner
from ts_reader.query.timestamps import milliseconds_of

PAGE = CHECKOUT / "docs/reader.md"
PLACE = "s3://bucket/base/prefix"
CONFIG = "--config /etc/ts-uploader/conf"


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    """The topic `page_views`: two partitions of five views each, the last one in 2026; `orders` with a schema."""
    archive = MadeArchive(tmp_path / "store")
    for partition in range(2):
        values = [
            batches(offsets, value=b'{"user": "ada"}', time=milliseconds_of(time))
            for offsets, time in (((0, 4), "2025-12-31T23:59:59.996Z"), ((4, 5), "2026-01-01T00:05:00Z"))
        ]
        archive.put_segment("page_views", 0, b"".join(values), partition=partition)
        archive.commit("page_views", 5, partition=partition)
    fields = [{"name": "user", "type": "string"}, {"name": "total", "type": "long"}]
    schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
    archived(archive, [schema_record("orders-value", 1, 1, schema)])
    archive.put_segment("orders", 0, batches((0, 3), value=framed(1, b"\x06ada\x04")))
    archive.commit("orders", 3)
    return archive


def test_the_pages_python_runs(
    archive: MadeArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one namespace, as a reader pastes it; the first query shows both partitions, and so do saved results."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    printed = []
    for block in blocks(PAGE, language="python"):
        text = block.text.replace(PLACE, archive.location)
        if "storage_options" in text:  # for S3 only
            text = block.text
        exec(compile("\n" * block.line + text, str(PAGE), "exec"), namespace)
        printed.append(capsys.readouterr().out)
    assert "count_star" in printed[0]
    assert "5" in printed[0]
    results: Any = namespace["results"]
    assert results.execute("from views order by all").fetchall() == [(0, 5), (1, 5)]
    assert json.loads(results.execute("from saved").fetchone()[0])["page_views"] == {"0": 5, "1": 5}
    results.close()


def test_the_pages_commands_run(
    archive: MadeArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each ends with 0 and prints something."""
    monkeypatch.chdir(tmp_path)
    found = [command for block in blocks(PAGE, "tsctl sql", language="sh") for command in commands(block)]
    assert len(found) == 5
    for command in found:
        _, *arguments = shlex.split(command.replace(CONFIG, f"--url {archive.location} --cluster prod"))
        ended = runner(capfd)(*arguments)
        assert ended.code == 0, ended
        assert ended.out


def test_each_name_of_the_interface_loads() -> None:
    """The interface loads its names when they are used, so an import of the package proves nothing."""
    assert [name for name in ts_reader.__all__ if getattr(ts_reader, name).__name__ != name] == []
