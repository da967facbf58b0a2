"""The endpoint and the consumer over both tiers show the tail that a real agent ships."""

from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.oracle import Isolation, dump
from tests.endpoint.running import running
from tests.faults.leaders import PATIENCE, produce
from tests.uploader.conftest import ArchiveOf
from tests.uploader.tail.shown import TAIL, transact, wait_shown
from ts_consumer import TieredConsumer

pytestmark = pytest.mark.usefixtures("credentials")


def read(consumer: Consumer | TieredConsumer, topic: str, count: int) -> list[tuple[int, bytes | None]]:
    """Return offset and value of the first records."""
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[tuple[int, bytes | None]] = []

    def is_read() -> bool:
        for message in consumer.consume(500, 0.5):
            assert message.error() is None, message.error()
            offset = message.offset()
            assert offset is not None
            found.append((offset, message.value()))
        return len(found) >= count

    wait_for(is_read, f"{count} records of {topic}", PATIENCE, state=lambda: found[-1:])
    return found


def test_the_endpoint_and_the_consumer_show_what_kafka_has(
    cluster: LocalCluster, archive_of: ArchiveOf, tmp_path: Path
) -> None:
    """At both isolation levels, from segments and from the tail of the open one."""
    archive = archive_of("tail-doors", properties=TAIL)
    cluster.create_topic(archive.topic, assignment=[[1, 2]], config={"segment.bytes": "60000"})
    archive.agent(1)
    for _ in range(2):
        produce(cluster, archive.topic, "doors", 400)
        transact(cluster, archive.topic)
    archive.wait_until_shipped(1)
    wait_shown(archive, cluster.latest(archive.topic, 0) - 1)
    assert 0 < archive.next_offset() < cluster.latest(archive.topic, 0) - 10
    levels: tuple[Isolation, ...] = ("read_uncommitted", "read_committed")
    with running(archive.location, tmp_path, options=["--groups", "memory", "--refresh", "1"]) as (process,):
        process.wait_until_ready()
        for isolation in levels:
            kafkas = [(each.offset, each.value) for each in dump(cluster.bootstrap, archive.topic, isolation)]
            settings = {"group.id": f"g-{isolation}", "isolation.level": isolation, "enable.auto.commit": False}
            client = Consumer({"bootstrap.servers": process.address, **settings})
            assert read(client, archive.topic, len(kafkas)) == kafkas
            client.close()
            tiered = {
                "tiered.storage.mode": "TIERED_STORAGE_ONLY",
                "kafka.cluster.id": archive.keys.cluster,
                "storage.service.endpoint.url": archive.location,
            }
            with TieredConsumer({"bootstrap.servers": cluster.bootstrap, **settings, **tiered}) as consumer:
                assert read(consumer, archive.topic, len(kafkas)) == kafkas
