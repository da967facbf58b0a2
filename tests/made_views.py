"""Views and copies of a made archive, as the planner opens them."""

from tests.made_archive import MadeArchive
from ts_common.archive.catalog import read_catalog
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import ReadRange
from ts_common.archive.view import open_view


def view_of(archive: MadeArchive, topic: str = "t", partition: int = 0) -> PartitionView:
    """Return the view of a partition."""
    return open_view(archive.store, read_catalog(archive.store, archive.partition(topic, partition)))


def only_copy(archive: MadeArchive) -> SegmentCopy:
    """Return the copy of partition 0 of topic `t`, which has one."""
    (copy,) = view_of(archive).copies
    return copy


def ranges_of(view: PartitionView) -> list[ReadRange]:
    """Return the ranges of a view that has no hole."""
    ranges = []
    for part in view.plan(view.start, view.end):
        assert isinstance(part, ReadRange)
        ranges.append(part)
    return ranges
