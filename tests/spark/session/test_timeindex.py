"""Offsets by time are found near their place where a `.timeindex` is proved to lead there; rows never depend on it."""

import struct
from contextlib import AbstractContextManager

import pytest
from pyspark.sql.datasource import GreaterThanOrEqual, LessThan

from tests.made_archive import batches, steps
from tests.made_indexes import index_of, timeindex_of
from tests.spark.archives import Archive
from tests.spark.pushed import at, offsets, planned
from tests.spark.session.conftest import Shipped
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.view import open_view
from ts_common.errors import DataLoss
from ts_common.store.contract import ByteRange, ObjectStream
from ts_common.store.directory.driver import FileStore
from ts_reader.query.subscription import find_topics
from ts_spark.options.parse import parse_options

RECORDS = 4000
TIME = 10_000  # of the record at offset 0; each later one is a millisecond later


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where reading each `.log` began, in bytes."""
    begun: list[int] = []
    opened = FileStore.open

    def counted(self: FileStore, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        if key.endswith(".log") and byte_range is not None and byte_range.end is None:
            begun.append(byte_range.start)
        return opened(self, key, byte_range)

    monkeypatch.setattr(FileStore, "open", counted)
    return begun


def one_segment(archive: Archive, timeindex: bytes | None = None) -> bytes:
    log = batches(*steps(0, RECORDS), value=bytes(100), time=TIME)
    times = timeindex_of(log) if timeindex is None else timeindex
    archive.put_segment("t", 0, log, index=index_of(log), timeindex=times)
    archive.commit("t", RECORDS)
    return log


def test_an_offset_by_timestamp_is_looked_for_near_its_place(archive: Archive, fetched: list[int]) -> None:
    """Not from the segment's first byte: at most a few batches before it."""
    log = one_segment(archive)
    query = {"startingTimestamp": str(TIME + 3000), "endingTimestamp": str(TIME + 3010)}
    plan = archive.plan(subscribe="t", **query)
    assert [(part.start, part.end) for part in plan.splits[0].ranges] == [(3000, 3010)]
    assert len(fetched) == 2
    assert all(abs(begun - len(log) * 3 / 4) < len(log) / 50 for begun in fetched)
    assert archive.offsets(subscribe="t", **query) == list(range(3000, 3010))


def test_a_filter_on_timestamps_begins_near_its_place(archive: Archive) -> None:
    """As far as records are proved to be earlier; Spark leaves out the few that are read before it."""
    one_segment(archive)
    plan = planned(archive, GreaterThanOrEqual(("timestamp",), at(TIME + 3000)))
    ((part,),) = (split.ranges for split in plan.splits)
    assert 2900 < part.start <= 3000
    assert plan.bytes < plan.all_bytes * 0.3
    assert offsets(archive, GreaterThanOrEqual(("timestamp",), at(TIME + 3000)))[-1] == RECORDS - 1


LIES = (
    b"",
    b"\xff" * 36,
    struct.pack(">qi", TIME, RECORDS - 1),
    struct.pack(">qiqi", TIME + 5, 3500, TIME + 900, 3900),
)


@pytest.mark.parametrize("index", LIES, ids=["empty", "damaged", "too far", "too far, twice"])
def test_r08_a_lying_time_index_costs_time_and_no_row(archive: Archive, index: bytes) -> None:
    """The batches do not bear it out, so metadata does not name it."""
    one_segment(archive, index)
    assert archive.offsets(subscribe="t", startingTimestamp=str(TIME + 3000))[0] == 3000
    assert offsets(archive, LessThan(("timestamp",), at(TIME + 5)), GreaterThanOrEqual(("timestamp",), at(0)))[0] == 0
    assert offsets(archive, GreaterThanOrEqual(("timestamp",), at(TIME + 1000)))[-1] == RECORDS - 1
    assert set(range(1000, RECORDS)) <= set(offsets(archive, GreaterThanOrEqual(("timestamp",), at(TIME + 1000))))


@pytest.mark.parametrize("index", [None, *LIES], ids=["gone", "empty", "damaged", "too far", "too far, twice"])
def test_r08_a_time_index_that_is_not_the_one_that_was_shipped_is_ignored(
    archive: Archive, index: bytes | None
) -> None:
    """Whatever became of the object since."""
    one_segment(archive)
    key = archive.partition("t").segment(SegmentName(0), ".timeindex")
    archive.store.delete([key])
    if index is not None:
        archive.store.put(key, index)
    assert archive.offsets(subscribe="t", startingTimestamp=str(TIME + 3000))[0] == 3000
    assert set(range(3000, RECORDS)) <= set(offsets(archive, GreaterThanOrEqual(("timestamp",), at(TIME + 3000))))


def test_timestamps_that_go_back_are_found_with_a_time_index(archive: Archive) -> None:
    """The first record so late counts, and a filter finds all of them."""
    pieces = [(0, 10, 5000), (10, 20, 1000), (20, 30, 7000), (30, 40, 2000), (40, 50, 9000)]
    log = b"".join(batches((start, end), time=time - start) for start, end, time in pieces)
    archive.put_segment("t", 0, log, index=index_of(log, every=1), timeindex=timeindex_of(log, every=1))
    archive.commit("t", 50)
    times = {offset: time + offset - start for start, end, time in pieces for offset in range(start, end)}
    for wanted in (0, 1005, 5000, 5005, 5010, 7001, 7009, 7010, 9009):
        first = min(offset for offset, time in times.items() if time >= wanted)
        assert archive.offsets(subscribe="t", startingTimestamp=str(wanted)) == list(range(first, 50))
        late = {offset for offset, time in times.items() if time >= wanted}
        assert late <= set(offsets(archive, GreaterThanOrEqual(("timestamp",), at(wanted))))


def test_behind_a_hole_the_record_before_a_match_is_looked_for(archive: Archive) -> None:
    """A time index leads past it, and whether it is there decides whether the hole may hold an earlier match."""
    for base in (0, 200):
        log = batches(*steps(base, base + 100), time=TIME)
        archive.put_segment("t", base, log, index=index_of(log, 1), timeindex=relative(timeindex_of(log, 1), base))
    archive.commit("t", 300, highest_base=200)
    options = {"subscribe": "t", "startingTimestamp": str(TIME + 250)}
    assert archive.offsets(**options) == list(range(250, 300))
    with pytest.raises(DataLoss, match="t-0: offsets 100 to 199 are lost"):
        archive.plan(subscribe="t", startingTimestamp=str(TIME + 200))


def relative(index: bytes, base: int) -> bytes:
    return b"".join(struct.pack(">qi", time, offset - base) for time, offset in struct.iter_unpack(">qi", index))


def test_real_brokers_time_indexes_are_named_and_lead_to_the_right_offsets(on_disk: Shipped) -> None:
    """Timestamps that go back now and then, five codecs: each partition begins at its first record so late."""
    archive = on_disk.archive
    (topic,) = find_topics(archive.store, parse_options(archive.options(subscribe="fields")).query)
    copies = [copy for catalog in topic.partitions for copy in open_view(archive.store, catalog).copies]
    assert copies
    assert all(copy.metadata.timeindex is not None for copy in copies)
    records = on_disk.records["fields"]
    for wanted in sorted({record.timestamp for record in records if record.offset % 97 == 0}):
        options = {"startingTimestamp": str(wanted), "startingOffsetsByTimestampStrategy": "latest"}
        started: dict[int, int] = {}
        for row in archive.rows(subscribe="fields", **options):
            started.setdefault(row["partition"], row["offset"])
        expected: dict[int, int] = {}
        for record in records:
            if record.timestamp >= wanted:
                expected.setdefault(record.partition, record.offset)
        assert started == expected
