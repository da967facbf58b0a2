"""Transactions (R02): what Kafka's consumer shows of them, `kafka_segments` shows, whatever of the indexes is left.

One partition of a real broker: producers whose transactions interleave, commit, abort and reach over segments, and one
that is open when the last segment closes. Rows are compared with the Java consumer's, for whole topics and for ranges
that cut transactions apart.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql.datasource import In

from dev.local.kafka.cluster import LocalCluster, Record
from dev.local.oracle import OracleRecord, dump
from tests.matrix import cases
from tests.spark.archives import Archive, oracle_records
from tests.spark.streaming.query import Query
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.segment_metadata import TxnIndexState
from ts_common.log_format.index_files import read_transaction_index
from ts_reader.query import windows

SECONDS = 60
TOPIC = "transactions"
STEPS = 400


@dataclass(frozen=True)
class Transactions:
    """The topic at one time.

    Attributes:
        directory: of its partition, copied while the last transaction was open.
        committed: what `read_committed` shows of it.
        all_records: what `read_uncommitted` shows.
    """

    directory: Path
    committed: list[OracleRecord]
    all_records: list[OracleRecord]


@pytest.fixture(scope="module")
def transactions(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transactions]:
    """Four producers at once, for a few hundred steps; the seed is fixed, their order on the broker is theirs."""
    cluster.create_topic(TOPIC, config={"segment.bytes": "20000", "index.interval.bytes": "1000"})
    draw = random.Random(5)
    producers: list[Producer] = [
        cluster.producer({"transactional.id": f"p{number}", "batch.size": 1000, "linger.ms": 0}) for number in range(4)
    ]
    for producer in producers:
        producer.init_transactions(SECONDS)
    open_ones: set[int] = set()
    for step in range(STEPS):
        number = draw.randrange(4)
        producer = producers[number]
        if number not in open_ones:
            producer.begin_transaction()
            open_ones.add(number)
        for n in range(draw.randrange(1, 8)):
            producer.produce(TOPIC, b"%d-%d-%d" % (number, step, n) + bytes(draw.randrange(300)), b"k%d" % number)
        producer.flush(SECONDS)
        # The first producer's transactions are long ones, over several segments.
        if draw.random() < (0.04 if number == 0 else 0.5) and step < STEPS - 60:
            (producer.abort_transaction if draw.random() < 0.5 else producer.commit_transaction)(SECONDS)
            open_ones.discard(number)
        if step % 20 == 0:
            cluster.produce(TOPIC, [Record(b"plain %d" % step)], partition=0)
    producers[0].abort_transaction(SECONDS)
    for number in open_ones - {0, 1}:
        producers[number].commit_transaction(SECONDS)
    if 1 not in open_ones:
        producers[1].begin_transaction()
        producers[1].produce(TOPIC, b"undecided")
        producers[1].flush(SECONDS)
    cluster.produce(TOPIC, [Record(bytes(5000)) for _ in range(10)], partition=0)
    live = cluster.brokers[1].log_dirs[0] / f"{TOPIC}-0"
    directory = tmp_path_factory.mktemp("copied") / live.name
    directory.mkdir()
    for path in live.iterdir():
        (directory / path.name).write_bytes(path.read_bytes())
    yield Transactions(
        directory, dump(cluster.bootstrap, TOPIC, "read_committed"), dump(cluster.bootstrap, TOPIC, "read_uncommitted")
    )
    for producer in producers:
        producer.purge()


def committed_rows(archive: Archive, **options: str) -> list[OracleRecord]:
    rows = archive.rows(
        subscribe=TOPIC, includeHeaders="true", **{"kafka.isolation.level": "read_committed"}, **options
    )
    return oracle_records(rows)


def test_r02_the_topic_contains_every_requested_kind_of_transaction(transactions: Transactions) -> None:
    """Aborts over several segments, in several segments, and a transaction that is open at the end."""
    aborted = [
        (int(path.stem), entry)
        for path in sorted(transactions.directory.glob("*.txnindex"))
        for entry in read_transaction_index(path.read_bytes())
    ]
    assert len({base for base, _ in aborted}) > 3
    assert any(entry.first_offset < base for base, entry in aborted)
    assert transactions.committed[-1].offset < transactions.all_records[-1].offset - 10
    assert 0 < len(transactions.committed) < len(transactions.all_records) / 1.2


@pytest.mark.parametrize(
    "how", cases(["complete", "corrupt", "missing", "another", "java"], quick=["complete", "missing"])
)
def test_r02_read_committed_shows_what_kafkas_consumer_shows(
    archive: Archive, transactions: Transactions, how: str
) -> None:
    """By the indexes, and by the markers if an index is corrupt, deleted, replaced, or never existed."""
    if how == "java":
        end = archive.ship_as_java(transactions.directory)
    else:
        state = TxnIndexState.CORRUPT if how == "corrupt" else TxnIndexState.COMPLETE
        end = archive.ship(transactions.directory, state)
    keys = archive.partition(TOPIC)
    for path in transactions.directory.glob("*.txnindex"):
        if how in {"missing", "another"} and int(path.stem) < end:
            archive.store.delete([keys.segment(SegmentName(int(path.stem)), ".txnindex")])
            if how == "another":
                archive.store.put(keys.segment(SegmentName(int(path.stem)), ".txnindex"), b"")
    expected = [record for record in transactions.committed if record.offset < end]
    assert committed_rows(archive) == expected
    everything = oracle_records(archive.rows(subscribe=TOPIC, includeHeaders="true"))
    assert everything == [record for record in transactions.all_records if record.offset < end]


@pytest.mark.parametrize("state", [TxnIndexState.COMPLETE, TxnIndexState.CORRUPT])
def test_r02_ranges_cut_transactions_apart(archive: Archive, transactions: Transactions, state: TxnIndexState) -> None:
    """Where a range begins or ends inside a transaction, its marker and its first record lie outside."""
    end = archive.ship(transactions.directory, state)
    draw = random.Random(3)
    for _ in range(25):
        low, high = sorted(draw.sample(range(end + 1), 2))
        bounds = {f"{side}Offsets": f'{{"{TOPIC}":{{"0":{at}}}}}' for side, at in (("starting", low), ("ending", high))}
        expected = [record for record in transactions.committed if low <= record.offset < high]
        assert committed_rows(archive, failOnDataLoss="false", **bounds) == expected


def test_r02_filters_cut_transactions_apart(
    archive: Archive, transactions: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also into several pieces: what is between them is looked at for markers only, unless they are near."""
    monkeypatch.setattr(windows, "NEAR_BYTES", -1)
    end = archive.ship(transactions.directory)
    draw = random.Random(4)
    options = {"subscribe": TOPIC, "includeHeaders": "true", "kafka.isolation.level": "read_committed"}
    for _ in range(10):
        wanted = set(draw.sample(range(end), 6))
        found = oracle_records(archive.rows(In(("offset",), tuple(wanted)), **options))
        assert found == [record for record in transactions.committed if record.offset in wanted]


@pytest.mark.parametrize("limit", cases([7, 200], quick=[200]))
def test_r02_a_stream_of_committed_records_is_what_kafkas_consumer_shows(
    archive: Archive, transactions: Transactions, limit: int
) -> None:
    """Also where batches cut transactions apart."""
    end = archive.ship(transactions.directory)
    options = {"subscribe": TOPIC, "startingOffsets": "earliest", "includeHeaders": "true"}
    query = Query(archive, **options, maxOffsetsPerTrigger=str(limit), **{"kafka.isolation.level": "read_committed"})
    told = -1
    while told < len(query.offsets):
        told = len(query.offsets)
        query.trigger()
    shown = oracle_records(row for batch in query.sink.values() for row in batch)
    assert shown == [record for record in transactions.committed if record.offset < end]
    assert len(query.sink) > transactions.committed[-1].offset / limit - 1
