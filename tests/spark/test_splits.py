"""Tasks: large segments cut, small ones packed, and the wishes of a query; whatever is cut, rows stay what they are."""

import struct
from pathlib import Path

import pytest

from tests.made_archive import batches, steps
from tests.spark.archives import Archive
from tests.spark.indexes import index_of

RECORDS = 1000
VALUE = bytes(200)


def one_segment(archive: Archive, index: bytes | None = None) -> bytes:
    log = batches(*steps(0, RECORDS), value=VALUE)
    archive.put_segment("t", 0, log, index=index_of(log) if index is None else index)
    archive.commit("t", RECORDS)
    return log


def test_r13_a_segment_is_cut_where_its_index_says(archive: Archive) -> None:
    """As many tasks as are wanted, each near a batch that the index names, and every row once."""
    log = one_segment(archive)
    splits = archive.plan(subscribe="t", minPartitions="8").splits
    assert 8 <= len(splits) <= 12
    named = {offset for offset, _ in struct.iter_unpack(">ii", index_of(log))}
    assert {split.ranges[0].start for split in splits[1:]} <= named
    assert archive.offsets(subscribe="t", minPartitions="8") == list(range(RECORDS))


@pytest.mark.parametrize(
    "index",
    [
        b"",
        b"\xff" * 80,
        struct.pack(">iiii", 500, 7, 501, 13),
        struct.pack(">iiii", 10, 200_000, 900, 250_000),
        b"".join(struct.pack(">ii", n, n) for n in range(1, 900)),
    ],
    ids=["empty", "damaged", "between batches", "too far", "dense lies"],
)
def test_r08_a_lying_index_moves_cuts_and_loses_nothing(archive: Archive, index: bytes) -> None:
    """A cut is an offset, whatever made us cut there."""
    one_segment(archive, index)
    assert archive.offsets(subscribe="t", minPartitions="5") == list(range(RECORDS))


def test_a_small_segment_without_an_index_is_cut_evenly(archive: Archive) -> None:
    """Reading it from its first byte costs less than a task."""
    archive.put_segment("t", 0, batches(*steps(0, RECORDS), value=VALUE))
    archive.commit("t", RECORDS)
    splits = archive.plan(subscribe="t", minPartitions="4").splits
    assert [split.ranges[0].start for split in splits] == [0, 250, 500, 750]
    assert archive.offsets(subscribe="t", minPartitions="4") == list(range(RECORDS))


def test_tasks_hold_no_more_records_than_asked_for(archive: Archive) -> None:
    """Also where neighbours would be packed, and where one segment holds more."""
    for base in range(0, 100, 10):
        archive.put_segment("t", base, batches((base, base + 10)))
    archive.commit("t", 100, highest_base=90)
    for most in (7, 10, 35):
        splits = archive.plan(subscribe="t", maxRecordsPerPartition=str(most)).splits
        assert all(sum(part.end - part.start for part in split.ranges) <= most for split in splits)
        assert archive.offsets(subscribe="t", maxRecordsPerPartition=str(most)) == list(range(100))
    (packed,) = archive.plan(subscribe="t").splits
    assert len(packed.ranges) == 10


def test_several_partitions_share_the_tasks_that_are_wanted(archive: Archive) -> None:
    """By bytes: the large partition is cut, the small one is not."""
    for partition, records in ((0, 900), (1, 100)):
        log = batches(*steps(0, records), value=VALUE)
        archive.put_segment("t", 0, log, partition=partition, index=index_of(log))
        archive.commit("t", records, partition=partition)
    splits = archive.plan(subscribe="t", minPartitions="5").splits
    by_partition = [split.ranges[0].copies[0].keys.partition.partition for split in splits]
    assert by_partition.count(1) == 1
    assert by_partition.count(0) >= 4
    assert sorted(archive.offsets(subscribe="t", minPartitions="5")) == sorted([*range(900), *range(100)])


def test_offsets_by_timestamp_are_found_for_each_partition(archive: Archive) -> None:
    """As Spark's Kafka source: JSON that names every partition, the ending ones exclusive."""
    for partition in (0, 1):
        archive.put_segment("t", 0, batches(*steps(0, 100), time=1000), partition=partition)
        archive.commit("t", 100, partition=partition)
    rows = archive.rows(
        subscribe="t",
        startingOffsetsByTimestamp='{"t":{"0":1010,"1":1050}}',
        endingOffsetsByTimestamp='{"t":{"0":1020,"1":9999}}',
    )
    assert [(row["partition"], row["offset"]) for row in rows] == [
        *((0, offset) for offset in range(10, 20)),
        *((1, offset) for offset in range(50, 100)),
    ]


def test_a_timestamp_for_all_wins_over_one_for_each(archive: Archive) -> None:
    """And both over offsets, as in Spark's Kafka source."""
    archive.put_segment("t", 0, batches(*steps(0, 100), time=1000))
    archive.commit("t", 100)
    bounds = {"startingOffsetsByTimestamp": '{"t":{"0":1050}}', "startingOffsets": '{"t":{"0":70}}'}
    assert archive.offsets(subscribe="t", startingTimestamp="1090", **bounds) == list(range(90, 100))
    assert archive.offsets(subscribe="t", **bounds) == list(range(50, 100))


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "store")
