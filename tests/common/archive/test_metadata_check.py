"""Metadata of a segment against the bytes of the segment."""

import io
from dataclasses import replace
from typing import Any

import pytest

from tests.made_archive import batches
from ts_common.archive.metadata_check import metadata_differences
from ts_common.archive.segment_inspection import metadata_of
from ts_common.log_format.scan import SegmentScan, scan_segment

LOG = batches((0, 10), epoch=1) + batches((10, 15), epoch=3)


def scanned() -> SegmentScan:
    return scan_segment(io.BytesIO(LOG), len(LOG))


def test_metadata_of_the_bytes_has_no_difference() -> None:
    """Coverage above the last batch, epochs that are too many for metadata, and another CRC-32C are no difference."""
    metadata = metadata_of(scanned(), 0, "k")
    assert metadata_differences(scanned(), metadata) == []
    assert metadata_differences(scanned(), replace(metadata, end=20, epochs=None, crc32c=1)) == []
    assert metadata_differences(scanned(), replace(metadata, epochs=((1, 0), (3, 10), (4, 18)), end=20)) == []


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
    (found,) = metadata_differences(scanned(), replace(metadata_of(scanned(), 0, "k"), **{field: value}))
    assert named in found
