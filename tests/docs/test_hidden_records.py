"""docs/runbook.md, "Records hidden below log.start": its commands leave a `log.start` that readers join to the commit.

`aws s3 cp` is a copy between a directory and standard input or output: what counts are the bytes.
"""

from pathlib import Path

import pytest

from tests.docs.commands import CHECKOUT, Shell, blocks, commands
from ts_common.commit import Commit, LogStart, decode_commit, decode_log_start
from ts_common.epochs import EpochLine
from ts_common.lineage import Lineage

PAGE = CHECKOUT / "docs" / "runbook.md"
SECTION = "Records hidden below log.start"
BUCKET = "s3://example-archive/base/prefix/10111/prod/clicks-0"
_AWS = """[ "$1 $2" = "s3 cp" ] || exit 2
cat "$(echo "$3" | sed "s|^-$|/dev/stdin|")" > "$(echo "$4" | sed "s|^-$|/dev/stdout|")"
"""


@pytest.mark.parametrize("lineage", [None, Lineage(5, 100, 250)])
def test_the_runbook_takes_log_start_down_in_the_commits_lineage(lineage: Lineage | None, tmp_path: Path) -> None:
    """The first command where the commit has no lineage, the second with the lineage that the page has read there."""
    commit = Commit(150, 200, 5, EpochLine(((4, 0), (5, 100))), None, None, 1, 0, "nonce", lineage=lineage)
    (tmp_path / "offset.wm").write_bytes(commit.encode())
    (tmp_path / "log.start").write_bytes(LogStart(180, lineage).encode())
    (tmp_path / "aws").write_text(f"#!/bin/sh\n{_AWS}")
    (tmp_path / "aws").chmod(0o755)
    shell = Shell(tmp_path, {BUCKET: str(tmp_path)}, tmp_path)
    looks, *_ = found = blocks(PAGE, SECTION, language="sh")
    settings = [command for command in commands(looks) if "=" in command.partition(" ")[0]]
    read, _ = (command for command in commands(looks) if command.startswith("aws "))
    of_none, of_lineage = (command for command in commands(found[1]) if command.startswith("aws "))
    variables = {"FIRST": f"{100:020d}", "LINEAGE": "[5,100,250]"}
    shown = shell.run(*settings, read, **variables).encode()
    assert decode_commit(shown, "offset.wm") == commit
    shell.run(*settings, of_none if lineage is None else of_lineage, **variables)
    written = decode_log_start((tmp_path / "log.start").read_bytes(), "log.start")
    assert written == LogStart(100, lineage)
    assert written.encode() == (tmp_path / "log.start").read_bytes()
    assert written.shown_from(commit.lineage) == 100
