"""docs/repair.md, "Records hidden below log.start": its commands show the records again, and no dead ones.

A stand-in for `aws s3 cp` copies between a directory and standard input or output: only the bytes matter.
"""

import os
from pathlib import Path

import pytest

from tests.docs.commands import CHECKOUT, Shell, blocks, commands
from tests.made_archive import batches
from tests.spark.archives import Archive
from tests.tsctl.verify.verified import codes, verify
from ts_common.archive.commit import Commit, Lineage, LogStart, decode_commit, decode_log_start
from ts_common.archive.epoch_history import EpochHistory
from tsctl.verify.segment_check import Depth

PAGE = CHECKOUT / "docs" / "repair.md"
SECTION = "Records hidden below log.start"
BUCKET = "s3://example-archive/base/prefix/10111/prod/clicks-0"
LOOK, WRITE, CORRECT, _ = blocks(PAGE, SECTION, language="sh")
SETTINGS = [command for command in commands(LOOK) if "=" in command.partition(" ")[0]]
READ_COMMIT, READ_LOG_START = (command for command in commands(LOOK) if command.startswith("aws "))
OF_NO_LINEAGE, OF_LINEAGE = commands(WRITE)
_AWS = """[ "$1 $2" = "s3 cp" ] || exit 2
cat "$(echo "$3" | sed "s|^-$|/dev/stdin|")" > "$(echo "$4" | sed "s|^-$|/dev/stdout|")"
"""


def shell_at(directory: Path, tmp_path: Path) -> Shell:
    """Return a shell for the page's commands, with its partition in this directory."""
    (tmp_path / "aws").write_text(f"#!/bin/sh\n{_AWS}")
    (tmp_path / "aws").chmod(0o755)
    return Shell(tmp_path, {BUCKET: str(directory)}, tmp_path)


@pytest.mark.parametrize("lineage", [None, Lineage(5, 100, 250)])
def test_the_runbook_lowers_log_start_in_the_lineage_of_the_commit(lineage: Lineage | None, tmp_path: Path) -> None:
    """The first command is for a commit without lineage, the second for one with the lineage that it shows."""
    commit = Commit(150, 200, 5, EpochHistory(((4, 0), (5, 100))), None, None, 1, 0, "nonce", lineage=lineage)
    (tmp_path / "offset.wm").write_bytes(commit.encode())
    (tmp_path / "log.start").write_bytes(LogStart(180, lineage).encode())
    shell = shell_at(tmp_path, tmp_path)
    variables = {"FIRST": f"{100:020d}", "LINEAGE": "[5,100,250]"}
    shown = shell.run(*SETTINGS, READ_COMMIT, **variables).encode()
    assert decode_commit(shown, "offset.wm") == commit
    assert (tmp_path / "offset.wm.before").read_bytes() == shown
    shell.run(*SETTINGS, OF_NO_LINEAGE if lineage is None else OF_LINEAGE, **variables)
    written = decode_log_start((tmp_path / "log.start").read_bytes(), "log.start")
    assert written == LogStart(100, lineage)
    assert written.encode() == (tmp_path / "log.start").read_bytes()
    assert written.shown_from(commit.lineage) == 100


def hidden(archive: Archive, epochs: list[tuple[int, int]], below: list[tuple[int, int, int]]) -> Path:
    """Write an archive that began at 12 and whose new leader's log begins at 0, and return its directory.

    Args:
        archive: an empty archive.
        epochs: the epochs of the commit.
        below: (base, end, epoch) of the new leader's segments.
    """
    keys = archive.partition("t")
    archive.put_segment("t", 10, batches((10, 12), (12, 20), value=b"dead"), index=b"", timeindex=b"")
    archive.commit("t", 30, epochs=epochs, highest_base=18, log_start=12)
    directory = Path(archive.location.removeprefix("file://")) / keys.prefix
    old = (directory / "log.start").stat().st_mtime - 100
    os.utime(directory / "log.start", (old, old))
    for base, end, epoch in below:
        archive.put_segment("t", base, batches((base, end), epoch=epoch), index=b"", timeindex=b"")
    return directory


@pytest.mark.parametrize(
    ("cut", "whole", "below"),
    [
        ([(2, 12)], [(2, 0)], [(0, 9, 2), (9, 18, 2), (18, 30, 2)]),
        ([(3, 12), (4, 18)], [(2, 0), (3, 9), (4, 18)], [(0, 9, 2), (9, 18, 3), (18, 30, 4)]),
    ],
)
def test_u36_what_an_agent_of_before_lineages_hid_is_shown_again(
    cut: list[tuple[int, int]], whole: list[tuple[int, int]], below: list[tuple[int, int, int]], tmp_path: Path
) -> None:
    """An agent of this release cut the commit's epochs; after the correction, dead records stay hidden."""
    archive = Archive(tmp_path / "store")
    shell = shell_at(hidden(archive, cut, below), tmp_path)
    assert "hidden-below-log-start" in codes(verify(archive, Depth.HEADERS))
    variables = {"FIRST": f"{0:020d}", "LINEAGE": "", "PAIR": ",".join(map(str, cut[0]))}
    shell.run(*SETTINGS, OF_NO_LINEAGE, FIRST=variables["FIRST"], LINEAGE="")
    assert codes(verify(archive, Depth.FULL)) == ["dead-tail", "overlap", "overlap-differs"]
    lines = "],[".join(f"{epoch},{offset}" for epoch, offset in whole[: len(whole) - len(cut) + 1])
    shell.run(*SETTINGS, READ_COMMIT, *(c for c in commands(CORRECT) if "diff " not in c), WHOLE=lines, **variables)
    commit = decode_commit(archive.store.get(archive.partition("t").commit)[0], "offset.wm")
    assert isinstance(commit, Commit)
    assert commit.epochs == EpochHistory(tuple(whole))
    assert codes(verify(archive, Depth.FULL)) == ["dead-tail"]
    assert archive.offsets(subscribe="t") == list(range(30))
    assert not [row for row in archive.rows(subscribe="t") if row["value"] == b"dead"]


def test_u36_a_wrong_number_inside_a_segment_ends_the_report(tmp_path: Path) -> None:
    """Segments that end below the number are found again; for the others the page requires a check by records."""
    archive = Archive(tmp_path / "store")
    shell = shell_at(hidden(archive, [(2, 0)], [(0, 9, 2), (9, 18, 2), (18, 30, 2)]), tmp_path)
    assert "hidden-below-log-start" in codes(verify(archive, Depth.HEADERS))
    for first in (12, 5):
        shell.run(*SETTINGS, OF_NO_LINEAGE, FIRST=f"{first:020d}", LINEAGE="")
        assert ("hidden-below-log-start" in codes(verify(archive, Depth.FULL))) == (first == 12)
        assert archive.offsets(subscribe="t") == list(range(first, 30))
