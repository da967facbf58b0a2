"""Reads an archive with ts_common as the oracle's records, so that the two can be compared."""

from datetime import UTC, datetime

from dev.local.oracle import OracleRecord
from ts_common.archive.fetch import fetch
from ts_common.archive.former_places import read_with_former
from ts_common.archive.incarnations import read_incarnations
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.archive.plan import ReadRange
from ts_common.archive.view import open_view
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_reader.decode.arrow import projection_of, to_arrow
from ts_reader.decode.arrow_schema import COLUMNS_WITH_HEADERS
from ts_reader.decode.segment_decoder import SegmentDecoder

_EPOCH = datetime.fromtimestamp(0, UTC)


def read_archive(store: ObjectStore, keys: ClusterKeys, partition: TopicPartition) -> list[OracleRecord]:
    """Return every record of one partition that readers see, in order; a hole fails the test."""
    incarnations, _ = read_incarnations(store, keys, partition.topic)
    found, holes = read_incarnation(store, keys.partition(partition, incarnations.newest_directory))
    assert not holes, f"{partition}: holes {holes}"
    return found


def read_incarnation(store: ObjectStore, keys: PartitionKeys) -> tuple[list[OracleRecord], list[tuple[int, int]]]:
    """Return every record of a partition in one incarnation, in order, and the holes."""
    view, partition = open_view(store, read_with_former(store, keys)), keys.partition
    assert view.warning is None
    records, holes = [], []
    for step in view.plan(view.start, view.end):
        if not isinstance(step, ReadRange):
            holes.append((step.start, step.end))
            continue
        assert len(step.copies) == 1, f"{partition}: these tests make no compacted overlaps"
        copy = step.copies[0]
        decoder = SegmentDecoder(projection_of(COLUMNS_WITH_HEADERS), step.start, step.end, size=copy.segment.size)
        for columns in decoder.decode(fetch(store, copy.key)):
            batch = to_arrow(columns, partition.topic, partition.partition, COLUMNS_WITH_HEADERS)
            records += [record_of(row) for row in batch.to_pylist()]
    return records, holes


def record_of(row: dict[str, object]) -> OracleRecord:
    key, value, topic, partition, offset = (row[name] for name in ("key", "value", "topic", "partition", "offset"))
    timestamp, timestamp_type, headers = row["timestamp"], row["timestampType"], row["headers"] or []
    assert isinstance(topic, str)
    assert isinstance(partition, int)
    assert isinstance(offset, int)
    assert isinstance(timestamp, datetime)
    assert isinstance(timestamp_type, int)
    assert isinstance(headers, list)
    assert key is None or isinstance(key, bytes)
    assert value is None or isinstance(value, bytes)
    milliseconds = round((timestamp - _EPOCH).total_seconds() * 1000)
    pairs = tuple((header["key"], header["value"]) for header in headers)
    return OracleRecord(topic, partition, offset, milliseconds, timestamp_type, key, value, pairs)
