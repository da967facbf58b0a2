"""Damaged segments that a repair replaced, and segments that were cut short."""

import io
from dataclasses import replace
from pathlib import Path

import pytest

from tests.made_archive import batches, steps
from tests.spark.archives import Archive
from tests.tsctl.verify.verified import READING, codes, put, verify
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.segment_inspection import metadata_of
from ts_common.log_format.scan import scan_segment
from tsctl.verify.segment_check import Depth

LOG = batches(*steps(100, 200))


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive(tmp_path / "store")
    for base in (0, 100, 200):
        put(made, base, base + 100)
    made.commit("t", 300, highest_base=200)
    return made


def key(archive: Archive, name: SegmentName, suffix: str = ".log") -> str:
    return archive.partition("t").segment(name, suffix)


def overwrite(archive: Archive, data: bytes, *, metadata: bool = True) -> None:
    """Overwrite the segment of `[100, 200)`."""
    plain = key(archive, SegmentName(100))
    fields = archive.store.head(plain).metadata
    archive.store.put(plain, data, metadata=fields if metadata else {})


def replaced(archive: Archive, number: int, damaged: SegmentName) -> SegmentName:
    """Put the good copy of a damaged object."""
    name = SegmentName(100, 1, 0xAB, number)
    metadata = replace(metadata_of(scan_segment(io.BytesIO(LOG), len(LOG)), 100, "made"), replaces=damaged.stem)
    for suffix in (".index", ".timeindex"):
        archive.store.put(key(archive, name, suffix), b"")
    archive.store.put(key(archive, name), LOG, metadata=metadata.encode())
    return name


@READING
@pytest.mark.parametrize("left", [0, 1, 5])
def test_a_segment_that_ends_early_at_a_batchs_edge_is_damaged(archive: Archive, depth: Depth, left: int) -> None:
    """Each batch that is left is whole. The metadata counts a record for each offset, so it shows what is missing."""
    overwrite(archive, LOG[: left * len(LOG) // 10])
    assert codes(verify(archive, depth)) == ["segment-damaged"]


@pytest.mark.parametrize("metadata", [True, False])
def test_a_damaged_segment_that_a_repair_replaced_is_information(archive: Archive, metadata: bool) -> None:
    """Also if the repair was damaged and replaced too, and if no metadata is left."""
    bad = LOG[:500] + b"?" + LOG[501:]
    overwrite(archive, bad, metadata=metadata)
    code = "segment-damaged" if metadata else "shipped-corrupt"
    assert code in codes(verify(archive, Depth.FULL))
    first = replaced(archive, 1, SegmentName(100))
    found = verify(archive, Depth.FULL)
    assert set(codes(found)) == {"replaced", "overlap"}
    (note,) = [each for each in found.all_findings if each.kind.code == "replaced"]
    assert (note.key, note.detail.partition(":")[0]) == (key(archive, SegmentName(100)), code)
    archive.store.put(key(archive, first), bad, metadata=archive.store.head(key(archive, first)).metadata)
    assert "segment-damaged" in codes(verify(archive, Depth.FULL))
    replaced(archive, 2, first)
    assert set(codes(verify(archive, Depth.FULL))) == {"replaced", "overlap"}


def test_a_damaged_segment_whose_repair_was_deleted_is_damaged_again(archive: Archive) -> None:
    """Readers read it again, so it is no information any more."""
    overwrite(archive, LOG[:500] + b"?" + LOG[501:])
    name = replaced(archive, 1, SegmentName(100))
    archive.store.delete([key(archive, name, suffix) for suffix in (".log", ".index", ".timeindex")])
    assert codes(verify(archive, Depth.FULL)) == ["segment-damaged"]


def test_the_indexes_of_a_segment_with_a_repair_are_no_orphans(archive: Archive) -> None:
    """In a listing, the names of a repair are between the `.log` and the `.timeindex` of what it replaces."""
    damaged = replaced(archive, 1, SegmentName(0))
    metadata = archive.store.head(key(archive, damaged)).metadata
    other = replace(damaged, repair=None)
    for suffix in (".index", ".log", ".timeindex"):
        archive.store.put(key(archive, other, suffix), LOG if suffix == ".log" else b"", metadata=metadata)
    assert "orphan-index" not in codes(verify(archive, Depth.HEADERS))
