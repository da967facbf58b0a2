"""`view=latest`: the newest record of each key, against a dict over all rows, and against Kafka's own cleaner."""

import random
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.datasource import EqualTo, LessThan
from structlog.testing import capture_logs

from dev.local.kafka.cluster import LocalCluster, Record, wait_for
from dev.local.oracle import OracleRecord, dump
from tests.common.log_format.build import TRANSACTIONAL, batch, marker, record
from tests.matrix import examples
from tests.spark.archives import Archive, oracle_records
from ts_common.archive.fetch import ResumableReader
from ts_common.errors import ConfigurationError, CorruptData, DataLoss

Row = dict[str, Any]
LATEST = {"subscribe": "t", "view": "latest", "includeHeaders": "true"}


def newest(rows: Iterable[Row]) -> list[Row]:
    """What is left of rows in the order of offsets."""
    by_key = {(row["partition"], row["key"]): row for row in rows if row["key"] is not None}
    kept = [row for row in by_key.values() if row["value"] is not None]
    return sorted(kept, key=lambda row: (row["partition"], row["offset"]))


def keyed(base: int, *records: tuple[bytes | None, bytes | None], attributes: int = 0, producer_id: int = -1) -> bytes:
    """One batch; timestamps are offsets."""
    made = [record(delta, key, value, timestamp_delta=delta) for delta, (key, value) in enumerate(records)]
    last = base + len(records) - 1
    return batch(base, made, base_timestamp=base, max_timestamp=last, attributes=attributes, producer_id=producer_id)


def changes(draw: random.Random, start: int, end: int, keys: int = 20) -> bytes:
    """Batches of `[start, end)` over a few keys, with tombstones, and a record without a key now and then."""
    log = b""
    while start < end:
        behind = min(start + draw.randrange(1, 9), end)
        records = []
        for offset in range(start, behind):
            key = None if draw.random() < 0.05 else b"k%d" % draw.randrange(keys)
            records.append((key, None if draw.random() < 0.2 else b"v%d" % offset))
        log += keyed(start, *records)
        start = behind
    return log


@settings(max_examples=examples(15, quick=4), deadline=None)
@given(st.integers(0, 1 << 32))
def test_it_is_what_a_dict_over_all_rows_keeps(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """Several partitions and segments, overlapping copies, each end; rows in the order of offsets."""
    draw = random.Random(seed)
    archive = Archive(tmp_path_factory.mktemp("store"))
    for partition in range(2):
        log_of = random.Random(seed + partition)
        bounds = [0, *sorted(draw.sample(range(1, 120), 3)), 120]
        for low, high in pairwise(bounds):
            archive.put_segment("t", low, changes(log_of, low, high), partition=partition)
        archive.commit("t", 120, partition=partition, highest_base=bounds[-2])
    everything = archive.rows(subscribe="t", includeHeaders="true")
    assert archive.rows(**LATEST) == newest(everything)
    for _ in range(3):
        ends = [draw.randrange(1, 120) for _ in range(2)]
        bound = f'{{"t":{{"0":{ends[0]},"1":{ends[1]}}}}}'
        below = [row for row in everything if row["offset"] < ends[row["partition"]]]
        assert archive.rows(**LATEST, endingOffsets=bound) == newest(below)


def test_a_moment_is_named_by_a_timestamp(archive: Archive) -> None:
    """A snapshot of the table as it was before the first record so late."""
    archive.put_segment(
        "t", 0, keyed(0, (b"a", b"0"), (b"b", b"1"), (b"a", b"2")) + keyed(3, (b"b", None), (b"a", b"4"))
    )
    archive.commit("t", 5)
    values = [[row["value"] for row in archive.rows(**LATEST, endingTimestamp=str(time))] for time in range(6)]
    assert values == [[], [b"0"], [b"0", b"1"], [b"1", b"2"], [b"2"], [b"4"]]


def test_copies_are_united_first(archive: Archive) -> None:
    """A record that the cleaner removed from one copy can be in another, and vice versa."""
    archive.put_segment("t", 0, keyed(0, (b"a", b"0"), (b"b", b"1")) + keyed(6, (b"a", b"6")), end=10)
    archive.put_segment("t", 0, keyed(1, (b"b", b"1")) + keyed(4, (b"c", b"4"), (b"b", None)), end=10, variant=True)
    archive.commit("t", 10)
    assert [row["offset"] for row in archive.rows(**LATEST)] == [4, 6]


def test_aborted_records_never_count(archive: Archive) -> None:
    """With read_committed, nor do undecided ones; the record before them is the newest."""
    log = keyed(0, (b"a", b"0"), (b"b", b"1"))
    log += keyed(2, (b"a", b"aborted"), (b"b", None), attributes=TRANSACTIONAL, producer_id=7) + marker(4, 7, 0)
    log += keyed(5, (b"c", b"5")) + keyed(6, (b"c", b"undecided"), attributes=TRANSACTIONAL, producer_id=7)
    archive.put_segment("t", 0, log)
    archive.store.put(archive.partition("t").prefix + "00000000000000000000.txnindex", b"")
    archive.commit("t", 7, last_stable_offset=6)
    committed = {**LATEST, "kafka.isolation.level": "read_committed"}
    assert [row["value"] for row in archive.rows(**LATEST)] == [b"aborted", b"undecided"]
    rows = archive.rows(**{**committed, "view": "log"})
    assert archive.rows(**committed) == newest(rows)


def test_records_without_a_key_are_reported_and_not_shown(archive: Archive) -> None:
    """Kafka's cleaner removes them too. The log reports the records read and kept."""
    archive.put_segment("t", 0, keyed(0, (b"a", b"0"), (None, b"1"), (b"", b"2"), (None, None), (b"a", None)))
    archive.commit("t", 5)
    with capture_logs() as logs:
        assert [row["offset"] for row in archive.rows(**LATEST)] == [2]
    (told,) = [entry for entry in logs if entry["log_level"] == "warning"]
    assert (told["partition"], told["records"], told["first_offset"]) == ("t-0", 2, 1)
    (said,) = [entry for entry in logs if entry["event"] == "newest_records_read"]
    assert [said[name] for name in ("records", "keys", "kept", "deleted")] == [5, 2, 1, 1]


def test_a_segment_without_a_newest_record_is_read_once(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second pass reads only the kept offsets; a narrow schema has the columns that it names."""
    for base in range(0, 50, 10):
        archive.put_segment("t", base, keyed(base, *((b"k%d" % n, b"%d" % base) for n in range(10))))
    archive.commit("t", 50, highest_base=40)
    opened = []
    begin = ResumableReader.__init__

    def noted(self: ResumableReader, store: Any, key: str, start: int = 0, end: int | None = None) -> None:
        opened.append(key)
        begin(self, store, key, start, end)

    monkeypatch.setattr(ResumableReader, "__init__", noted)
    assert {row["value"] for row in archive.rows(**LATEST)} == {b"40"}
    assert len(opened) == 6


def test_r03_a_hole_may_hide_a_newer_record(archive: Archive) -> None:
    """So it is data loss wherever it lies below the end."""
    archive.put_segment("t", 0, keyed(0, (b"a", b"0")))
    archive.put_segment("t", 2, keyed(2, (b"b", b"2")))
    archive.commit("t", 3, highest_base=2)
    with pytest.raises(DataLoss, match="offsets 1 to 1 are lost"):
        archive.rows(**LATEST)
    assert [row["offset"] for row in archive.rows(**LATEST, failOnDataLoss="false")] == [0, 2]


def test_r04_a_corrupt_batch_ends_it_or_is_passed_over(archive: Archive) -> None:
    """A damaged batch is logged once, although segments are read twice."""
    log = keyed(0, (b"a", b"0"), (b"b", b"1")) + keyed(2, (b"a", b"2")) + keyed(3, (b"b", b"3"))
    body = bytearray(log)
    body[len(keyed(0, (b"a", b"0"), (b"b", b"1"))) + 65] ^= 1
    archive.put_segment("t", 0, log, body=bytes(body))
    archive.commit("t", 4)
    with pytest.raises(CorruptData, match="CRC"):
        archive.rows(**LATEST)
    with capture_logs() as logs:
        rows = archive.rows(**LATEST, mode="DROPMALFORMED")
    assert [row["offset"] for row in rows] == [0, 3]
    assert len([entry for entry in logs if entry["log_level"] == "warning"]) == 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"minPartitions": "4"}, "one task reads a partition; drop minPartitions"),
        ({"maxRecordsPerPartition": "4"}, "drop maxRecordsPerPartition"),
        ({"startingTimestamp": "5"}, "view=latest: it starts at earliest"),
    ],
)
def test_what_makes_no_sense_with_it_is_refused(archive: Archive, options: dict[str, str], told: str) -> None:
    """With the way out."""
    with pytest.raises(ConfigurationError, match=told):
        archive.plan(**{**LATEST, **options})


def test_r04_a_record_whose_headers_cannot_be_decoded_is_no_newest_one(archive: Archive) -> None:
    """If headers are read it is not returned, so the record before it is."""
    broken = record(0, b"a", b"new")[:-1] + b"\x09"
    archive.put_segment("t", 0, batch(0, [record(0, b"a", b"old")]) + batch(1, [broken]))
    archive.commit("t", 2)
    rows = archive.rows(**LATEST, mode="DROPMALFORMED")
    assert [(row["offset"], row["value"]) for row in rows] == [(0, b"old")]


def test_filters_are_applied_to_the_newest_records(archive: Archive) -> None:
    """One on offsets leaves out no record that is newer; one on partitions does leave out the others."""
    archive.put_segment("t", 0, keyed(0, (b"a", b"old"), (b"b", b"old"), (b"a", b"new")))
    archive.commit("t", 3)
    archive.put_segment("t", 0, keyed(0, (b"a", b"other")), partition=1)
    archive.commit("t", 1, partition=1)
    rows = archive.rows(LessThan(("offset",), 2), EqualTo(("partition",), 0), **LATEST)
    assert [(row["key"], row["value"]) for row in rows] == [(b"b", b"old"), (b"a", b"new")]


def test_spark_shows_it_with_the_columns_of_a_schema(spark: SparkSession, archive: Archive) -> None:
    """Keys are needed to find the newest, and not shown unless they are wanted."""
    archive.put_segment("t", 0, keyed(0, *((b"k%d" % (n % 7), b"%d" % n) for n in range(50))))
    archive.commit("t", 50)
    reader = spark.read.format("kafka_segments").options(**archive.options(subscribe="t", view="latest"))
    table = reader.schema("value binary, partition int").load()
    assert [(bytes(row.value), row.partition) for row in table.collect()] == [(b"%d" % n, 0) for n in range(43, 50)]


TOPIC = "table"


def test_it_is_what_kafkas_cleaner_leaves(cluster: LocalCluster, archive: Archive, tmp_path: Path) -> None:
    """The segments before the real cleaner ran and after it: the same newest record of each key.

    What Kafka's Java consumer reads of the compacted topic is the oracle: its newest of each key, no tombstones.
    """
    cluster.create_topic(TOPIC, config={"segment.bytes": "20000", "cleanup.policy": "delete"})
    draw = random.Random(11)
    records = []
    for n in range(1500):
        deletes = draw.random() < 0.15
        records.append(
            Record(None if deletes else b"%d" % n + bytes(draw.randrange(100)), key=b"k%d" % draw.randrange(90))
        )
    # Not idempotent: the last batch of a living producer would keep its place.
    cluster.produce(TOPIC, records, partition=0, config={"enable.idempotence": "false", "batch.size": 2000})
    broker = cluster.brokers[1]
    live = broker.partition_directory(TOPIC, 0)
    copied = tmp_path / live.name
    copied.mkdir()
    for path in live.iterdir():
        (copied / path.name).write_bytes(path.read_bytes())
    end = archive.ship(copied)
    assert len(list(copied.glob("*.log"))) > 3
    before = oracle_records(archive.rows(subscribe=TOPIC, view="latest", includeHeaders="true"))

    cluster.alter_config(TOPIC, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
    checkpoint = live.parent / "cleaner-offset-checkpoint"
    wait_for(
        lambda: checkpoint.exists() and f"{TOPIC} 0 {end}\n" in checkpoint.read_text(),
        "the cleaner to come to the active segment",
        60,
    )
    compacted = dump(cluster.bootstrap, TOPIC, end=end)
    assert len(compacted) < end / 2
    by_key: dict[bytes | None, OracleRecord] = {found.key: found for found in compacted}
    expected = sorted((found for found in by_key.values() if found.value is not None), key=lambda found: found.offset)
    assert before == expected

    after = Archive(tmp_path / "after")
    bases = [*sorted(int(path.stem) for path in live.glob("*.log"))]
    for base, following in pairwise(bases):
        after.put_segment(TOPIC, base, (live / f"{base:020d}.log").read_bytes(), end=following)
    after.commit(TOPIC, end, highest_base=bases[-2])
    assert oracle_records(after.rows(subscribe=TOPIC, view="latest", includeHeaders="true")) == expected
