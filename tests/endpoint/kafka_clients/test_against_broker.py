"""Each client of the matrix reads a real broker: what it returns is what Kafka's Java consumer returns."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from dev.local.jars import LINES, Line
from dev.local.kafka.cluster import LocalCluster
from dev.local.oracle import Isolation, dump
from tests.common.log_format.old_brokers import OLD_PROTOCOL
from tests.endpoint.kafka_clients import java_tools
from tests.endpoint.kafka_clients.interface import ByTopic
from tests.endpoint.kafka_clients.matrix import CLIENTS
from tests.endpoint.kafka_clients.python_clients import offsets_for_times, read_from
from tests.every_field import TIME, every_field
from tests.oracle_topics.kinds import KINDS
from tests.oracle_topics.shipped import ISOLATIONS

pytestmark = pytest.mark.full

OF_KINDS = ("created-zstd", "transactions-lz4", "magic-0-gzip", "of-old-1-lz4", "appended-snappy")
THREE, OPEN = "three", "open"  # partitions; a transaction
TOPICS = (*OF_KINDS, THREE, OPEN)


@dataclass(frozen=True)
class Broker:
    """A running broker, and the records of its topics by isolation level and topic."""

    bootstrap: str
    expected: dict[Isolation, ByTopic]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """Fill topics of several kinds; the transaction of one stays open."""
    with LocalCluster(properties=OLD_PROTOCOL, name="clients") as cluster:
        for name in OF_KINDS:
            cluster.create_topic(name, config=KINDS[name].config)
            KINDS[name].fill(cluster, name, 0)
        cluster.create_topic(THREE, partitions=3)
        for partition in range(3):
            cluster.produce(THREE, every_field(100 + partition), partition=partition)
        cluster.create_topic(OPEN)
        cluster.produce(OPEN, every_field(100), partition=0)
        producer = cluster.producer({"transactional.id": "open", "transaction.timeout.ms": 900_000})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(OPEN, b"open")
        producer.flush(30)
        cluster.produce(OPEN, every_field(10), partition=0)
        expected = {
            isolation: {topic: dump(cluster.bootstrap, topic, isolation) for topic in TOPICS}
            for isolation in ISOLATIONS
        }
        assert len(expected["read_committed"][OPEN]) < len(expected["read_uncommitted"][OPEN]) - 10
        yield Broker(cluster.bootstrap, expected)


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("name", CLIENTS)
def test_each_client_returns_the_records_of_the_java_consumer(broker: Broker, name: str, isolation: Isolation) -> None:
    """Every field that the client shows, of each topic, in order, and once."""
    client = CLIENTS[name]
    topics = [topic for topic in TOPICS if client.is_able(topic)]
    found = client.read(broker.bootstrap, topics, isolation)
    for topic in topics:
        assert found[topic] == client.expected(broker.expected[isolation][topic]), topic


def test_librdkafka_seeks_and_finds_times(broker: Broker) -> None:
    """The records behind each offset, and the offset of the first record that is not earlier."""
    records = broker.expected["read_uncommitted"]["created-zstd"]
    assert read_from(broker.bootstrap, "created-zstd", 0, [7, 3, len(records)], 2) == [[7, 8], [3, 4], []]
    found = offsets_for_times(broker.bootstrap, "created-zstd", 0, [0, TIME + 1500, TIME + 10_000_000])
    assert found == [0, 2, -1]


@pytest.mark.parametrize("line", LINES)
def test_kafkas_tools_print_offsets_and_groups(broker: Broker, line: Line) -> None:
    """`kafka-get-offsets` of each partition, and `kafka-consumer-groups` without a group of that name."""
    ends = {partition: 115 + partition for partition in range(3)}
    assert java_tools.offsets(broker.bootstrap, THREE, "latest", line) == ends
    assert java_tools.offsets(broker.bootstrap, THREE, "earliest", line) == dict.fromkeys(range(3), 0)
    assert "no-such-group" not in java_tools.groups(broker.bootstrap, line, "--list")
