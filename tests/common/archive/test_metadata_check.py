"""Metadata of a segment against the bytes of the segment."""

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.made_archive import batches
from tests.made_wrong_indexes import CASES, IndexCase, no_abort, times_too_early
from ts_common.archive.metadata_check import metadata_differences
from ts_common.archive.segment_inspection import metadata_of
from ts_common.archive.segment_metadata import SegmentMetadata, decode_metadata
from ts_common.log_format.index_files import TimeIndex
from ts_common.log_format.scan import SegmentScan, scan_segment

LOG = batches((0, 10), epoch=1) + batches((10, 15), epoch=3)


def scanned() -> SegmentScan:
    return scan_segment(io.BytesIO(LOG), len(LOG))


def test_metadata_of_the_bytes_has_no_difference() -> None:
    """Coverage above the last batch, epochs that are too many for metadata, and another CRC-32C are no difference."""
    metadata = metadata_of(scanned(), 0, "k")
    assert metadata_differences(scanned(), metadata, {}) == []
    assert metadata_differences(scanned(), replace(metadata, end=20, epochs=None, crc32c=1), {}) == []
    assert metadata_differences(scanned(), replace(metadata, epochs=((1, 0), (3, 10), (4, 18)), end=20), {}) == []


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("records", 14, "records: 15"),
        ("control", 1, "control records: 0"),
        ("time_max", 5, "the greatest timestamp"),
        ("time_min", 5, "the least timestamp"),
        ("corruptions", 1, "corrupt places: 0"),
        ("end", 14, "ends at offset 15"),
        ("epochs", ((1, 0),), "has ((1, 0),)"),
        ("epochs", ((3, 0), (1, 10)), ""),
    ],
)
def test_each_value_that_hides_records_is_a_difference(field: str, value: Any, named: str) -> None:
    """One difference for one wrong value, with both values."""
    (found,) = metadata_differences(scanned(), replace(metadata_of(scanned(), 0, "k"), **{field: value}), {})
    assert named in found


def compared(case: IndexCase, fields: dict[str, str], index: bytes | None) -> list[str]:
    """Return the differences of a segment with these fields of metadata; None for an index that is missing."""
    indexes = {} if index is None else {case.suffix: index}
    times = indexes.get(".timeindex")
    claims = None if times is None else TimeIndex(case.base, times)
    metadata = decode_metadata(fields, "k")
    assert isinstance(metadata, SegmentMetadata)
    return metadata_differences(scan_segment(io.BytesIO(case.log), len(case.log), claims), metadata, indexes)


@pytest.mark.parametrize("made", CASES)
def test_an_index_that_the_batches_contradict_is_a_difference(made: Callable[[int, int], IndexCase]) -> None:
    """One difference for a wrong index that the metadata names as right, and none for the right one."""
    case = made(100, 1)
    assert compared(case, case.metadata(case.right), case.right) == []
    (found,) = compared(case, case.metadata(case.wrong), case.wrong)
    assert case.suffix in found


@pytest.mark.parametrize("made", [times_too_early, no_abort])
@pytest.mark.parametrize("present", [False, True])
def test_an_index_that_readers_ignore_is_no_difference(made: Callable[[int, int], IndexCase], present: bool) -> None:
    """The index is missing or has another checksum than in the metadata, or the metadata does not trust it."""
    case = made(100, 1)
    index = case.wrong if present else None
    assert compared(case, case.metadata(case.right), index) == []
    fields = case.metadata(case.wrong)
    trusted = fields.pop(f"ts-{case.suffix[1:]}")
    if case.suffix == ".txnindex":
        fields["ts-txnindex"] = trusted.replace("complete", "corrupt")
    assert compared(case, fields, index) == []


def test_an_empty_index_that_is_named_as_complete_is_a_difference() -> None:
    """With a checksum of 0, readers read no marker, although the object is missing."""
    case = no_abort(100, 1)
    for state in ("complete", "late"):
        (found,) = compared(case, {**case.metadata(b""), "ts-txnindex": f"00000000:{state}"}, None)
        assert "aborts 1 transaction; the metadata names no .txnindex" in found
