"""Splits that no store has, for tests of how splits are run."""

from ts_common.archive.catalog import StoredSegment
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.object_keys import ClusterKeys, SegmentName
from ts_common.archive.plan import ReadRange
from ts_common.archive.segment_metadata import SegmentMetadata
from ts_common.model import TopicPartition
from ts_reader.query.splits import Split


def split_of(partition: int, start: int, end: int, cluster: str = "prod") -> Split:
    """Return a split of topic `t` with offsets `[start, end)`."""
    keys = ClusterKeys(cluster, 0).partition(TopicPartition("t", partition))
    metadata = SegmentMetadata(end, ((0, start),), end - start, None, None, 0)
    copy = SegmentCopy(keys, StoredSegment(SegmentName(start), 1000, frozenset()), metadata)
    return Split("file:///store", (ReadRange(start, end, (copy,)),))


def place_of(split: Split) -> tuple[int, int]:
    """Return partition and first offset of a split."""
    return split.ranges[0].copies[0].keys.partition.partition, split.ranges[0].start
