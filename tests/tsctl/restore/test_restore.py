"""A lost cluster comes back as files, at its original offsets."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Message
from confluent_kafka import KafkaError as TheirError

from dev.local.kafka.cluster import LocalCluster
from tests.tsctl.restore.lost import (
    GROUP,
    GROUP_OFFSET,
    PLAIN,
    TOPICS,
    TRANSACTIONS,
    Lost,
    Restore,
    lost_cluster,
    read_all,
)
from tests.tsctl.running import Run, runner
from ts_common.archive.restored import Restored
from ts_common.model import TopicPartition

_SECONDS = 60


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lost]:
    """Lose a cluster after its closed segments were shipped."""
    with lost_cluster(tmp_path_factory.mktemp("lost")) as found, pytest.MonkeyPatch.context() as patched:
        for name, value in found.archive.s3.environment().items():
            patched.setenv(name, value)
        yield found


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command line in this process."""
    return runner(capfd)


def test_a_lost_cluster_has_every_archived_record_at_its_offset(lost: Lost, run: Run, tmp_path: Path) -> None:
    """In both isolation levels, on each replica; groups continue, and the first new records are there."""
    with LocalCluster(2, mode="kraft", own_controller=True, log_dirs=2, name="restored") as cluster:
        Restore(run, lost, cluster, tmp_path / "restore").all_steps()
        assert read_all(cluster) == lost.records
        for partition, start in lost.starts.items():
            assert cluster.earliest(partition.topic, partition.partition) == start
            places = [broker.partition_directory(*_name(partition)) for broker in cluster.brokers.values()]
            logs = [[path.read_bytes() for path in sorted(place.glob("*.log"))] for place in places]
            assert logs[0] == logs[1]
        admin = cluster.admin()
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])[GROUP].result(_SECONDS)
        assert [(each.partition, each.offset) for each in asked.topic_partitions] == [(1, GROUP_OFFSET)]
        written = _first_writes(cluster)
        found = read_all(cluster)["read_committed"]
        assert {key: found[key].value for key in written} == written
        record = Restored.read(lost.archive.store, lost.archive.keys.restored)
        assert record is not None
        ends = {
            TopicPartition(name.partition("~")[0], number): part.end
            for name, topic in record.topics.items()
            for number, part in topic.partitions.items()
        }
        assert ends == lost.ends


def _name(partition: TopicPartition) -> tuple[str, int]:
    return partition.topic, partition.partition


def _first_writes(cluster: LocalCluster) -> dict[tuple[str, int, int], bytes]:
    """Write by new, idempotent and transactional producers; return what was acknowledged."""
    acknowledged: dict[tuple[str, int, int], bytes] = {}

    def delivered(error: TheirError | None, message: Message) -> None:
        assert error is None
        place = (message.topic() or "", message.partition() or 0, message.offset() or 0)
        assert place not in acknowledged
        acknowledged[place] = message.value() or b""

    for settings in ({"enable.idempotence": False}, {"enable.idempotence": True}, {"transactional.id": "late"}):
        producer = cluster.producer(settings)
        if "transactional.id" in settings:
            producer.init_transactions(_SECONDS)
            producer.begin_transaction()
        for topic in (PLAIN, TRANSACTIONS):
            for number in range(TOPICS[topic]):
                for each in range(10):
                    value = f"new {settings} {each}".encode()
                    producer.produce(topic, value, partition=number, on_delivery=delivered)
        producer.flush(_SECONDS)
        if "transactional.id" in settings:
            producer.commit_transaction(_SECONDS)
    return acknowledged
