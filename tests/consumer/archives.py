"""A topic of a broker whose history is in an archive, and consumers of both."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from dev.local.kafka.cluster import LocalCluster, Record
from tests.every_field import every_field
from tests.made_archive import CLUSTER, MadeArchive
from ts_consumer import TieredConsumer, TierMode

SECONDS = 60.0
FILLER = 150_000  # bytes of a record: Kafka's least segment has 1 MiB
Row = tuple[Any, ...]

PROTOCOLS: dict[str, dict[str, str]] = {
    "eager": {"partition.assignment.strategy": "range"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}


def row_of(message: Message) -> Row:
    """Return every field of a message."""
    assert message.error() is None, message.error()
    return (
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        message.headers(),
        message.timestamp(),
        message.leader_epoch(),
        message.latency(),
        len(message),
    )


def error_of(message: Message) -> KafkaError:
    """Return the error of an event, whose text is its value: applications skip messages that are false."""
    error = message.error()
    assert error is not None, message.value()
    assert message.value() == error.str().encode()
    return error


def fill(cluster: LocalCluster, topic: str, partitions: int = 2, rounds: int = 4) -> None:
    """Create a topic with every kind of record, in several segments of each partition."""
    cluster.create_topic(topic, partitions=partitions, config={"segment.bytes": str(1 << 20)})
    for _ in range(rounds):
        for partition in range(partitions):
            fillers = [Record(os.urandom(FILLER)) for _ in range(6)]
            cluster.produce(topic, [*every_field(100), *fillers], partition=partition)


def ship(archive: MadeArchive, cluster: LocalCluster, topic: str, partitions: int = 2) -> list[int]:
    """Put the closed segments of a topic into an archive; return the end of each partition there."""
    broker = cluster.brokers[1]
    return [archive.ship(broker.partition_directory(topic, partition)) for partition in range(partitions)]


@dataclass(frozen=True)
class Both:
    """A broker and an archive of its topics.

    Attributes:
        cluster: the broker.
        archive: of its topics.
    """

    cluster: LocalCluster
    archive: MadeArchive

    def config(self, mode: TierMode, group: str, **more: Any) -> dict[str, Any]:
        """Return the configuration of a consumer; names of `more` have `_` for a dot."""
        config: dict[str, Any] = {
            "bootstrap.servers": self.cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_uncommitted",
        }
        if mode is not TierMode.KAFKA_ONLY:
            config |= place(self.archive)
        config["tiered.storage.mode"] = mode
        return config | {name.replace("_", "."): value for name, value in more.items()}

    def consumer(self, mode: TierMode, group: str, **more: Any) -> TieredConsumer:
        """Return a consumer."""
        return TieredConsumer(self.config(mode, group, **more))

    def plain(self, group: str, **more: Any) -> Consumer:
        """Return the plain client, with the same settings as `consumer`."""
        config = self.config(TierMode.KAFKA_ONLY, group, **more)
        del config["tiered.storage.mode"]
        return Consumer(config)

    def plain_rows(self, topic: str, ends: Sequence[int]) -> dict[int, list[Row]]:
        """Return all rows of a topic as the plain client has them, from the start to below the ends."""
        plain = self.plain(f"plain-{topic}", enable_auto_commit=False)  # at its end it would wait for a coordinator
        plain.assign([TopicPartition(topic, partition, 0) for partition in range(len(ends))])
        try:
            return read_until(plain, dict(enumerate(ends)))
        finally:
            plain.close()


def place(archive: MadeArchive) -> dict[str, str]:
    """Return the keys that name an archive."""
    return {
        "kafka.cluster.id": CLUSTER,
        "storage.service.endpoint.url": archive.location,
        "tiered.storage.refresh.ms": "200",
    }


def read_until(consumer: Any, ends: dict[int, int], found: dict[int, list[Row]] | None = None) -> dict[int, list[Row]]:
    """Consume until the last record below each end has arrived; return the rows of each partition, in their order."""
    found = {partition: [] for partition in ends} if found is None else found
    deadline = monotonic() + SECONDS
    while any(not rows or rows[-1][2] < ends[partition] - 1 for partition, rows in found.items()):
        assert monotonic() < deadline, {partition: len(rows) for partition, rows in found.items()}
        for message in consumer.consume(200, 0.02):
            found[message.partition()].append(row_of(message))
    return found


def offsets_of(rows: Iterable[Row]) -> list[int]:
    """Return the offsets of rows."""
    return [row[2] for row in rows]


def in_directory(directory: Path) -> MadeArchive:
    """Return an empty archive in a directory."""
    return MadeArchive(directory / "archive")
