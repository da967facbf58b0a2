"""`verify` on `log.start`: records that it hides, and lineages that do not match the commit's."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.made_archive import batches
from tests.spark.archives import Archive
from tests.tsctl.verify.verified import codes, only, verify
from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit, Lineage, LogStart
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.segment_metadata import decode_metadata
from tsctl.verify.segment_check import Depth


def put(archive: Archive, start: int, end: int, *, epoch: int = 0, variant: bool = False) -> None:
    archive.put_segment("t", start, batches((start, end), epoch=epoch), index=b"", timeindex=b"", variant=variant)


def age(archive: Archive, key: str, seconds: float) -> None:
    """Make an object that much older."""
    path = Path(archive.location.removeprefix("file://")) / key
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime - seconds))


def with_lineages(archive: Archive, start: Lineage | None, commit: Lineage | None) -> None:
    """Set the lineages of `log.start` and the commit."""
    keys = archive.partition("t")
    archive.store.put(keys.log_start, LogStart(0, start).encode())
    found, _ = read_commit(archive.store, keys)
    assert isinstance(found, Commit)
    archive.store.put(keys.commit, replace(found, lineage=commit).encode())


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "store")


@pytest.mark.parametrize("first", [0, 12])
def test_u26_living_segments_below_log_start_are_found(archive: Archive, first: int) -> None:
    """The archive began at 12; an empty replica won, and its 0..19 of epoch 1 were shipped below log start.

    An agent of an earlier version may have cut the commit's epochs at `log.start` since.
    """
    put(archive, 12, 18)
    archive.commit("t", 20, epochs=[(1, first)], highest_base=12, log_start=12)
    keys = archive.partition("t")
    age(archive, keys.log_start, 100)
    age(archive, keys.segment(SegmentName(12)), 50)
    for base, end in ((0, 6), (6, 20)):
        put(archive, base, end, epoch=1)
    for depth in (Depth.HEADERS, Depth.FULL):
        found = verify(archive, depth)
        finding = next(one for one in found.all_findings if one.kind.code == "hidden-below-log-start")
        assert (finding.key, finding.start, finding.end) == (keys.log_start, 0, 12 if first == 0 else 6)
        assert "of leader epoch 1 with live records" in finding.detail
        assert finding.kind.severity.label == "damaged"


@pytest.mark.parametrize(
    ("start", "is_hidden"),
    [
        (LogStart(20), True),
        (LogStart(19), True),
        (LogStart(9), False),
        (LogStart(20, written_by="run"), False),
        (LogStart(20, Lineage(2, 5, 19)), True),
        (LogStart(20, Lineage(2, 5, 20)), False),
    ],
    ids=str,
)
def test_a_log_start_that_was_raised_by_hand_hides_no_segment_in_silence(
    archive: Archive, start: LogStart, is_hidden: bool
) -> None:
    """No run of retention wrote it; a lineage can have a number that a run wrote before, up to its `highest`."""
    for base in (0, 10, 20):
        put(archive, base, base + 10)
    archive.commit("t", 30, highest_base=20)
    with_lineages(archive, start.lineage, start.lineage)
    archive.store.put(archive.partition("t").log_start, start.encode())
    found = verify(archive, Depth.HEADERS).all_findings
    assert [(each.kind.code, each.start, each.end) for each in found] == [
        ("hidden-below-log-start", 0, min(start.offset // 10 * 10, 20))
    ] * is_hidden


def test_what_retention_left_below_log_start_is_in_order(archive: Archive) -> None:
    """It was shipped before `log.start` moved; in a copied bucket only the metadata has the time."""
    for base in (0, 10, 20):
        put(archive, base, base + 10)
    archive.commit("t", 30, highest_base=20)
    keys = archive.partition("t")
    archive.store.put(keys.log_start, LogStart(15, written_by="run").encode())
    assert codes(verify(archive, Depth.HEADERS)) == []
    age(archive, keys.log_start, 50)
    assert codes(verify(archive, Depth.HEADERS)) == ["hidden-below-log-start"]
    for base in (0, 10):
        key = keys.segment(SegmentName(base))
        data, info = archive.store.get(key)
        metadata = decode_metadata(info.metadata, key)
        assert metadata is not None
        archive.store.put(key, data, metadata=replace(metadata, shipped=1_000).encode())
    assert codes(verify(archive, Depth.HEADERS)) == []


def test_u04_another_leaders_segment_that_reaches_over_log_start_is_in_order(archive: Archive) -> None:
    """Its head is below the start of the archive, where the commit has no epoch."""
    put(archive, 10, 20)
    archive.commit("t", 25, epochs=[(0, 10)], highest_base=10, log_start=10)
    age(archive, archive.partition("t").log_start, 50)
    put(archive, 5, 25)
    assert codes(verify(archive, Depth.HEADERS)) == ["overlap"]


@pytest.mark.parametrize(
    "start",
    [
        LogStart(15, floor=0, since="gc-1", written_by="gc-1"),
        LogStart(15, written_by="run"),
        LogStart(15, Lineage(2, 25, 30)),
    ],
    ids=["gc", "gc of an earlier release", "lineage"],
)
def test_u04_a_segment_over_a_log_start_that_retention_moved_is_in_order(archive: Archive, start: LogStart) -> None:
    """The next leader shipped it later; the commit has the epochs of what is still stored below."""
    put(archive, 10, 25)
    archive.commit("t", 25, highest_base=10)
    with_lineages(archive, start.lineage, start.lineage)
    keys = archive.partition("t")
    archive.store.put(keys.log_start, start.encode())
    age(archive, keys.log_start, 50)
    for suffix in (".log", ".index", ".timeindex"):
        age(archive, keys.segment(SegmentName(10), suffix), 100)
    put(archive, 10, 25, variant=True)
    assert codes(verify(archive, Depth.HEADERS)) == ["overlap"]


@pytest.mark.parametrize(
    ("start", "commit", "code"),
    [
        (None, Lineage(2, 5, 9), "lineage-behind"),
        (Lineage(2, 5, 9), Lineage(3, 5, 9), "lineage-behind"),
        (Lineage(2, 5, 9), None, "lineage-ahead"),
        (Lineage(3, 5, 9), Lineage(2, 5, 9), "lineage-ahead"),
        (Lineage(2, 4, 9), Lineage(2, 5, 9), "lineage-ahead"),
    ],
)
def test_lineages_that_do_not_fit_are_found(
    archive: Archive, start: Lineage | None, commit: Lineage | None, code: str
) -> None:
    """Either may be ahead; readers accept one case, and fail with an error in the other."""
    put(archive, 0, 30)
    archive.commit("t", 30)
    with_lineages(archive, start, commit)
    finding = only(verify(archive, Depth.HEADERS))
    assert finding.kind.code == code
    with_lineages(archive, commit, commit)
    assert codes(verify(archive, Depth.HEADERS)) == []
