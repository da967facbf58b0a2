"""Elections that remove records: what the application has of them is an error, and never continued in silence."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from dev.local.kafka.cluster import LocalCluster, Record
from dev.local.waiting import wait_for
from tests.consumer.archives import read_until
from tests.uploader.beside import Archive, archives
from ts_consumer import TieredConsumer, TierMode

SECONDS = 120.0
SHARED, DEAD, LIVING = 50, 200, 300  # records of both leaders, of the lost one, and of the later one
READ_THE_STORE = [mode for mode in TierMode if mode is not TierMode.KAFKA_ONLY]


@pytest.fixture
def archive(mode: TierMode, pair: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Archive]:
    """The archive of a topic whose replicas may elect uncleanly; both brokers run after the test."""
    assert pair.s3 is not None
    for name, value in pair.s3.environment().items():
        monkeypatch.setenv(name, value)
    with archives(pair, tmp_path) as archive_of:
        yield archive_of(f"unclean-{mode}".lower())
    for broker in pair.brokers.values():
        broker.start()


def produce(cluster: LocalCluster, topic: str, line: str, count: int) -> None:
    """Produce records whose values name their log."""
    cluster.produce(topic, [Record(f"{line}-{number}".ljust(2000).encode()) for number in range(count)], partition=0)


def values(consumer: Any, topic: str, start: int, end: int) -> list[bytes]:
    """Return the values of the records in a range of offsets."""
    consumer.assign([TopicPartition(topic, 0, start)])
    return following(consumer, end)


def following(consumer: Any, end: int) -> list[bytes]:
    """Return the values of the next records below an offset."""
    return [row[4] for row in read_until(consumer, {0: end})[0] if row[2] < end]


def is_truncated(consumer: TieredConsumer) -> bool:
    """Return whether the error has arrived; before it, at most records of the lost log do."""
    for message in consumer.consume(1, 0.5):
        error = message.error()
        if error is None:
            assert (message.value() or b"").startswith(b"dead-"), message.value()
        elif error.code() == KafkaError._LOG_TRUNCATION:
            return True
    return False


def led_by(cluster: LocalCluster, topic: str, broker: int, in_sync: set[int]) -> None:
    """Wait for an election."""
    wait_for(
        lambda: cluster.leader(topic, 0) == broker and cluster.in_sync(topic, 0) == in_sync,
        f"broker {broker} to lead {topic}",
        SECONDS,
        state=lambda: (cluster.leader(topic, 0), cluster.in_sync(topic, 0)),
    )


@pytest.mark.full
@pytest.mark.parametrize("mode", READ_THE_STORE)
def test_e04_records_that_an_unclean_election_removed_are_an_error(
    pair: LocalCluster, archive: Archive, mode: TierMode
) -> None:
    """The partition stays there until the application seeks; then it reads what brokers have."""
    topic = archive.topic
    pair.create_topic(
        topic,
        assignment=[[1, 2]],
        config={"segment.bytes": "60000", "unclean.leader.election.enable": "true", "min.insync.replicas": "1"},
    )
    agent = archive.agent(1)
    produce(pair, topic, "shared", SHARED)
    pair.brokers[2].kill()
    led_by(pair, topic, 1, {1})
    produce(pair, topic, "dead", DEAD)
    shipped = archive.wait_until_shipped(1)
    assert shipped > SHARED
    config = {
        "bootstrap.servers": pair.bootstrap,
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,  # the coordinator is on the broker that is away, and close() would wait for it
        "topic.metadata.refresh.interval.ms": 1000,
        "log_level": 0,
        "kafka.cluster.id": archive.keys.cluster,
        "storage.service.endpoint.url": archive.location,
        "tiered.storage.refresh.ms": 200,
        "tiered.storage.mode": mode,
    }
    with TieredConsumer(config) as consumer:
        before = values(consumer, topic, 0, shipped)
        assert before[SHARED].startswith(b"dead-0 ")
        agent.kill()
        pair.brokers[1].kill()
        pair.brokers[2].start()
        led_by(pair, topic, 2, {2})
        produce(pair, topic, "living", LIVING)
        archive.agent(2)
        end = archive.wait_until_shipped(2)
        assert end > shipped
        wait_for(lambda: is_truncated(consumer), "the error", SECONDS)
        assert consumer.consume(1, 1.0) == []
        consumer.seek(TopicPartition(topic, 0, SHARED))
        after = following(consumer, end)
    plain = Consumer({"bootstrap.servers": pair.bootstrap, "group.id": "oracle", "enable.auto.commit": False})
    try:
        oracle = values(plain, topic, 0, end)
    finally:
        plain.close()
    assert before[:SHARED] + after == oracle
    with TieredConsumer({**config, "group.id": f"{topic}-later"}) as later:
        assert values(later, topic, 0, end) == oracle
