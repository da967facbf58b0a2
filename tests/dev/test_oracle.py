"""The oracle: what Kafka's Java consumer reads equals what was produced, field by field."""

from collections.abc import Callable

import pytest

from dev.local.kafka.cluster import LocalCluster, Record
from dev.local.oracle import OracleFailedError, OracleRecord, dump

RECORDS = [
    Record(b"value", key=b"key", timestamp=1_700_000_000_000),
    Record(b"", key=None, timestamp=1_700_000_000_001),
    Record(None, key=b"tombstone", timestamp=1_700_000_000_002),
    Record(
        bytes(range(256)),
        key=b"",
        timestamp=1_700_000_000_003,
        headers=[("h", b"1"), ("h", b""), ("none", None), ('quo"te\\ \u00e9\U0001f600', b"\x00\xff")],
    ),
]


def _expected(topic: str, partition: int, offset: int, record: Record) -> OracleRecord:
    assert record.timestamp is not None
    headers = tuple(record.headers)
    return OracleRecord(topic, partition, offset, record.timestamp, 0, record.key, record.value, headers)


def test_the_oracle_reads_what_was_produced(zookeeper_pair: LocalCluster) -> None:
    """Null key, empty value, tombstone, repeated and null headers are read as written, in three codecs."""
    zookeeper_pair.create_topic("fields", partitions=3)
    for partition, codec in enumerate(("none", "gzip", "zstd")):
        zookeeper_pair.produce("fields", RECORDS, partition=partition, config={"compression.type": codec})
    expected = [_expected("fields", p, offset, record) for p in range(3) for offset, record in enumerate(RECORDS)]
    assert dump(zookeeper_pair.bootstrap, "fields") == expected
    assert dump(zookeeper_pair.bootstrap, "fields", start=1, end=3) == [r for r in expected if r.offset in {1, 2}]


def test_the_oracle_hides_aborted_records_and_ends_at_control_batches(zookeeper_pair: LocalCluster) -> None:
    """With read_committed an aborted transaction is hidden and an open one is the end; markers are never shown."""
    cluster = zookeeper_pair
    cluster.create_topic("transactions")
    producer = cluster.producer({"transactional.id": "oracle"})
    producer.init_transactions(30)
    outcomes: list[tuple[bytes, Callable[[float], None]]] = [
        (b"committed", producer.commit_transaction),
        (b"aborted", producer.abort_transaction),
    ]
    for value, end in outcomes:
        producer.begin_transaction()
        producer.produce("transactions", value)
        producer.flush(30)
        end(30)
    values = [(record.offset, record.value) for record in dump(cluster.bootstrap, "transactions")]
    assert values == [(0, b"committed"), (2, b"aborted")]
    committed = dump(cluster.bootstrap, "transactions", "read_committed")
    assert [(record.offset, record.value) for record in committed] == [(0, b"committed")]

    producer.begin_transaction()
    producer.produce("transactions", b"open")
    producer.flush(30)
    assert cluster.latest("transactions", 0, committed=True) == 4
    assert cluster.latest("transactions", 0) == 5
    assert len(dump(cluster.bootstrap, "transactions", "read_committed")) == 1
    producer.abort_transaction(30)


def test_the_oracle_reads_log_append_time(zookeeper_pair: LocalCluster) -> None:
    """The timestamp's type is Kafka's id, and the broker's clock replaces the producer's."""
    zookeeper_pair.create_topic("appended", config={"message.timestamp.type": "LogAppendTime"})
    zookeeper_pair.produce("appended", [Record(b"x", timestamp=1)])
    (record,) = dump(zookeeper_pair.bootstrap, "appended")
    assert record.timestamp_type == 1
    assert record.timestamp > 1_700_000_000_000


def test_an_absent_topic_is_an_error(zookeeper_pair: LocalCluster) -> None:
    """The oracle never returns an empty list for a topic that it could not read."""
    with pytest.raises(OracleFailedError, match="no such topic: absent"):
        dump(zookeeper_pair.bootstrap, "absent")
