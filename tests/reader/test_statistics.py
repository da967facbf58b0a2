"""Counts, offsets and timestamps by metadata and headers are those of the rows."""

import gzip
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.common.log_format.build import (
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    batch,
    marker,
    message,
    record,
)
from tests.made_archive import batches, steps
from tests.made_indexes import index_of
from tests.reader.archives import ScannedArchive
from tests.reader.shapes import ABORT, COMMIT, damaged_in_the_middle, transaction, txnindex_entry
from ts_common.archive.object_keys import SegmentName
from ts_common.errors import CorruptData, ObjectNotFound, TieredStorageError
from ts_reader import Estimate, Observer, PartitionStatistics, Scan

GZIP = 1


def by_rows(scan: Scan, *, least: bool = True) -> list[PartitionStatistics]:
    """Return the statistics that the rows of a scan have."""
    table = scan.to_table()
    milliseconds = pc.floor(pc.divide(pc.cast(table["timestamp"], pa.int64()), pa.scalar(1000.0))).cast(pa.int64())
    table = table.select(["topic", "partition", "offset"]).append_column("ms", milliseconds)
    found = table.group_by(["topic", "partition"]).aggregate(
        [("offset", "count"), ("offset", "min"), ("offset", "max"), ("ms", "min"), ("ms", "max")]
    )
    return sorted(
        (
            PartitionStatistics(
                row["topic"],
                row["partition"],
                row["offset_count"],
                row["offset_min"],
                row["offset_max"],
                row["ms_min"] if least else None,
                row["ms_max"],
            )
            for row in found.to_pylist()
        ),
        key=lambda each: (each.topic, each.partition),
    )


def check_against_rows(scan: Scan) -> None:
    with capture_logs():
        assert scan.statistics() == by_rows(scan)
        assert scan.statistics(least_timestamp=False) == by_rows(scan, least=False)
        rows = scan.to_table().num_rows
        assert scan.count_rows() == rows
        assert scan.dataset().count_rows() == rows


@dataclass
class Segment:
    """Batches as a broker and its log cleaner leave them, and the aborted transactions that end in them."""

    base: int
    end: int
    batches: list[bytes] = field(default_factory=list)
    txnindex: bytes = b""

    @property
    def log(self) -> bytes:
        return b"".join(self.batches) or batch(self.base, [], last_offset_delta=0)


KINDS = ["full"] * 4 + ["sparse"] * 2 + ["empty", "no batch", "marker", "marker"]


class Made:
    """Topics of three segments, made by chance from a seed.

    Args:
        archive: of the topics.
        seed: of what is made.
    """

    def __init__(self, archive: ScannedArchive, seed: int) -> None:
        self.archive = archive
        self.topic = f"topic-{seed}"
        self.chance = Random(seed)
        self.open_at: dict[int, int] = {}  # the first offset of each open transaction, by producer
        self.is_damaged = self.one_in(5)

    def one_in(self, number: int) -> bool:
        return self.chance.randrange(number) == 0

    def time(self) -> int:
        return self.chance.randrange(-1, 30)

    def records(self, offset: int, length: int, kind: str, epoch: int) -> bytes:
        """Return a batch of `length` offsets with all of its records, some or none."""
        deltas = list(range(length))
        if kind == "sparse":
            deltas = sorted(self.chance.sample(deltas, self.chance.randint(1, length)))
        deltas = [] if kind == "empty" else deltas
        times = [self.time() for _ in deltas]
        base_time = self.chance.randrange(99)  # with a delete horizon that of no record
        attributes = self.chance.choice([0, 0, LOG_APPEND_TIME, DELETE_HORIZON])
        body = b"".join(
            record(delta, b"%d" % (delta % 3), b"v", timestamp_delta=time - base_time)
            for delta, time in zip(deltas, times, strict=True)
        )
        if deltas and self.one_in(2):
            body, attributes = gzip.compress(body, mtime=0), attributes | GZIP
        producer = self.chance.choice([-1, -1, 1, 2])
        if producer > 0:
            attributes |= TRANSACTIONAL
            if deltas:
                self.open_at.setdefault(producer, offset)
        return batch(
            offset,
            body=body,
            count=len(deltas),
            last_offset_delta=length - 1,
            epoch=epoch,
            attributes=attributes,
            base_timestamp=base_time,
            max_timestamp=max(times, default=40),  # the log cleaner leaves it to a batch without records
            producer_id=producer,
        )

    def segment(self, base: int, end: int, epoch: int) -> Segment:
        """Return a segment as a broker writes it, or as the log cleaner leaves it."""
        made, offset = Segment(base, end), base
        if epoch == 0 and base == 0 and self.one_in(6):
            for offset in range(4):
                made.batches.append(message(self.chance.randrange(2), offset, b"v", timestamp=self.time()))
            offset = 4
        is_whole = self.one_in(2)
        while offset < end:
            kind = "full" if is_whole else self.chance.choice(KINDS)
            if kind == "marker" and self.open_at:
                producer = self.chance.choice(sorted(self.open_at))
                decision, first = self.chance.choice([ABORT, COMMIT]), self.open_at.pop(producer)
                if decision == ABORT:
                    stable = min([offset, *self.open_at.values()])
                    made.txnindex += txnindex_entry(producer, first, offset, stable)
                made.batches.append(marker(offset, producer, decision, epoch))
                offset += 1
                continue
            length = min(self.chance.randint(1, 6), end - offset)
            if kind not in {"no batch", "marker"}:
                made.batches.append(self.records(offset, length, kind, epoch))
            offset += length
        return made

    def put(self, made: Segment, **more: Any) -> None:
        log = made.log
        index = index_of(log, 2) if log[16] == 2 else None
        self.archive.put_segment(
            self.topic, made.base, log, end=made.end, txnindex=made.txnindex or None, index=index, **more
        )

    def fill(self) -> None:
        """Put three segments, with an election, other copies, a hole or damage."""
        segments = [self.segment(base, base + 30, int(base >= 60)) for base in (0, 30, 60)]
        if self.one_in(5):
            del segments[self.chance.randrange(2)]  # a hole
        for made in segments:
            body = None
            if self.is_damaged and self.one_in(2):
                body = damaged_in_the_middle(made.log, self.chance.randrange(len(made.log)))
            self.put(made, body=body)
            if self.one_in(4):  # before agents counted control records
                key = self.archive.partition(self.topic).segment(SegmentName(made.base))
                data, info = self.archive.store.get(key)
                fields = {name: value for name, value in info.metadata.items() if name != "ts-control"}
                self.archive.store.put(key, data, metadata=fields)
        copy = segments[0]
        if self.one_in(3) and copy.batches and copy.base < 60:
            fewer = [each for each in copy.batches if self.one_in(2)] or copy.batches
            self.open_at = {}
            dead = self.segment(60, 70, 0).batches if copy.base == 30 else []
            self.put(Segment(copy.base, copy.end + 10 * bool(dead), fewer + dead, copy.txnindex), variant=True)
        self.archive.commit(self.topic, 90, highest_base=60, epochs=((0, 0), (1, 60)))

    def scan(self) -> Scan:
        """Return a scan with some bounds, an isolation level, a view and a mode."""
        columns, arguments = ["topic", "partition", "offset", "timestamp"], dict[str, Any]()
        mode = self.chance.choice(
            ["DROPMALFORMED", "PERMISSIVE"] if self.is_damaged else ["FAILFAST"] * 5 + ["PERMISSIVE"]
        )
        if mode == "PERMISSIVE" and self.one_in(2):
            columns.append("_corrupt_record")
        if mode != "PERMISSIVE" and self.one_in(6):
            arguments["view"] = "latest"
        elif self.one_in(2):
            start = self.chance.randrange(90)
            arguments["starting_offsets"] = {0: start}
            arguments["ending_offsets"] = {0: self.chance.randint(start, 90)}
        if not self.is_damaged and self.one_in(2):  # damaged transactions cannot be planned
            arguments["isolation_level"] = "read_committed"
        return self.archive.scan(self.topic, mode=mode, columns=columns, fail_on_data_loss=False, **arguments)


@pytest.mark.parametrize("examples", [20, pytest.param(1500, marks=pytest.mark.full)])
def test_statistics_are_those_of_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, examples: int) -> None:
    """For every kind of batch, copies, holes, damage, transactions, bounds, views, and segments that are cut."""

    @settings(max_examples=examples)
    @given(st.integers(0, 1 << 32), st.sampled_from([300, 1 << 27]))
    def check(seed: int, split_bytes: int) -> None:
        monkeypatch.setattr("ts_reader.query.splits.SPLIT_BYTES", split_bytes)
        made = Made(ScannedArchive(tmp_path / str(seed)), seed)
        made.fill()
        check_against_rows(made.scan())

    check()


def test_segments_whose_metadata_suffices_are_not_read(archive: ScannedArchive) -> None:
    """Neither whole ones nor, for a number, parts of one; the objects can be missing."""
    one_each = b"".join(batch(at, [record(0)], base_timestamp=at, max_timestamp=at) for at in range(100, 130))
    cleaned = batch(130, [record(0), record(9)], last_offset_delta=9)
    archive.put_segment("t", 0, batches(*steps(0, 100)))
    archive.put_segment("t", 100, one_each)
    archive.put_segment("t", 130, cleaned)
    archive.commit("t", 140, highest_base=130)
    counted = [archive.scan(), archive.scan(starting_offsets={0: 7}, ending_offsets={0: 95})]
    headers, least = (
        archive.scan(ending_offsets={0: 130}),
        archive.scan(starting_offsets={0: 100}, ending_offsets={0: 130}),
    )
    for scan in (*counted, headers, least):
        scan.estimate()
    archive.store.delete([archive.partition("t").segment(SegmentName(base)) for base in (0, 100, 130)])
    assert [scan.count_rows() for scan in counted] == [132, 88]
    assert [scan.dataset().count_rows() for scan in counted] == [132, 88]
    assert headers.statistics(least_timestamp=False) == [PartitionStatistics("t", 0, 130, 0, 129, None, 1099)]
    assert least.statistics() == [PartitionStatistics("t", 0, 30, 100, 129, 100, 129)]


def test_batches_whose_header_suffices_are_not_decompressed(archive: ScannedArchive) -> None:
    """Their records can be garbage with a correct CRC; a scan of them, and the least timestamp, need the records."""
    log = batch(0, body=b"no gzip", count=4, attributes=GZIP, max_timestamp=3000)
    log += batch(4, body=b"no gzip", count=2, attributes=GZIP | LOG_APPEND_TIME, max_timestamp=4000)
    log += transaction(6, 11) + marker(11, 5, COMMIT)
    archive.put_segment("t", 0, log)
    archive.commit("t", 12)
    scan = archive.scan()
    assert scan.count_rows() == 11
    assert archive.scan(starting_offsets={0: 2}).count_rows() == 9
    assert scan.statistics(least_timestamp=False) == [PartitionStatistics("t", 0, 11, 0, 10, None, 4000)]
    late = archive.scan(starting_offsets={0: 4}, ending_offsets={0: 6})
    assert late.statistics() == [PartitionStatistics("t", 0, 2, 4, 5, 4000, 4000)]
    for read in (scan.to_table, scan.statistics):
        with pytest.raises(CorruptData, match="batch of base offset 0"):
            read()


def test_a_batch_that_is_read_for_its_header_is_checked(archive: ScannedArchive) -> None:
    """A wrong CRC is the error that the rows have."""
    log = transaction(0, 5) + marker(5, 5, COMMIT)
    archive.put_segment("t", 0, log, body=damaged_in_the_middle(log, 50))
    archive.commit("t", 6)
    for read in (archive.scan().count_rows, archive.scan().to_table):
        with pytest.raises(CorruptData, match=r"batch of base offset 0 at position 0: CRC"):
            read()


def test_odd_timestamps_are_those_of_the_records(archive: ScannedArchive) -> None:
    """Messages of magic 0 have none, which is -1; what microseconds cannot express is as stored."""
    archive.put_segment("t", 0, message(0, 0, b"v"))
    late = [batch(at, [record(0)], base_timestamp=1 << 62, max_timestamp=1 << 62) for at in (1, 2)]
    archive.put_segment("t", 1, b"".join(late))
    archive.commit("t", 3, highest_base=1, epochs=((0, 1),))
    assert archive.scan().statistics() == [PartitionStatistics("t", 0, 3, 0, 2, -1, 1 << 62)]


def test_partitions_without_rows_are_left_out(archive: ScannedArchive) -> None:
    """Others are sorted by topic and number."""
    for topic, partition, start in (("b", 0, 0), ("a", 10, 0), ("a", 2, 0), ("a", 3, 10)):
        archive.put_segment(topic, 0, batches((0, 10)), partition=partition)
        archive.commit(topic, 10, partition=partition, log_start=start)
    found = archive.scan(["a", "b"]).statistics()
    assert [(each.topic, each.partition, each.rows) for each in found] == [("a", 2, 10), ("a", 10, 10), ("b", 0, 10)]


class Noting(Observer):
    """Keeps what a dataset reads, and its failures."""

    def __init__(self) -> None:
        self.noted: list[Estimate | TieredStorageError] = []

    def reads(self, estimate: Estimate) -> None:
        self.noted.append(estimate)

    def failed(self, error: TieredStorageError) -> None:
        self.noted.append(error)


def test_a_count_of_a_dataset_is_observed(archive: ScannedArchive) -> None:
    """What it covers, and its error; a dataset that yields no rows counts none."""
    archive.put_segment("t", 0, transaction(0, 5) + marker(5, 5, COMMIT))
    archive.commit("t", 6)
    noting = Noting()
    assert archive.scan(starting_offsets={0: 3}).dataset(noting).count_rows() == 2
    assert archive.scan(mode="DROPMALFORMED").dataset(noting, yields_rows=False).count_rows() == 0
    removed = archive.scan()
    removed.estimate()
    archive.store.delete([archive.partition("t").segment(SegmentName(0))])
    with pytest.raises(ObjectNotFound):
        removed.dataset(noting).count_rows()
    assert [type(each) for each in noting.noted] == [Estimate, Estimate, Estimate, ObjectNotFound]


def test_timestamps_below_minus_one_are_not_read_as_missing(archive: ScannedArchive) -> None:
    """The metadata has no greatest timestamp then."""
    archive.put_segment("t", 0, batches((0, 3), time=-100))
    archive.commit("t", 3)
    for least in (True, False):
        (found,) = archive.scan().statistics(least_timestamp=least)
        assert found.greatest_timestamp == -98
