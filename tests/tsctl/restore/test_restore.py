"""A lost cluster is put back as files, at its original offsets."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Message
from confluent_kafka import KafkaError as TheirError

from dev.local.kafka.cluster import LocalCluster
from tests.tsctl.restore.continued import ship_on
from tests.tsctl.restore.lost import (
    COMPACTED,
    GROUP,
    GROUP_OFFSET,
    PLAIN,
    TOPICS,
    TRANSACTIONS,
    Key,
    Lost,
    Restore,
    lost_cluster,
    read_all,
)
from tests.tsctl.running import Run, runner
from ts_common.archive.restored import Restored
from ts_common.model import TopicPartition
from tsctl.verify.kafka_cluster import KafkaCluster

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
        check_restored(lost, cluster, Restore(run, lost, cluster, tmp_path / "restore"))
        ship_on(lost, cluster)


@pytest.mark.full
@pytest.mark.parametrize("old", ["kraft", "zookeeper"])
def test_a_cluster_of_zookeeper_is_restored_too(
    old: Literal["kraft", "zookeeper"], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka 3.9 with ZooKeeper gets the files of itself, and of Kafka 4.1."""
    directory = tmp_path / "lost"
    directory.mkdir()
    with lost_cluster(directory, mode=old, own_controller=old == "kraft") as lost:
        for name, value in lost.archive.s3.environment().items():
            monkeypatch.setenv(name, value)
        with LocalCluster(2, mode="zookeeper", log_dirs=2, name="restored") as cluster:
            check_restored(lost, cluster, Restore(run, lost, cluster, tmp_path / "restore"))


@pytest.mark.full
def test_a_recovery_would_lose_the_first_records_of_new_producers(lost: Lost, run: Run, tmp_path: Path) -> None:
    """Without the mark of the clean stop the old producers' state is rebuilt: why the restore keeps it."""
    with LocalCluster(2, mode="kraft", own_controller=True, log_dirs=2, name="recovered") as cluster:
        steps = Restore(run, lost, cluster, tmp_path / "restore")
        steps.up_to_check()
        for broker in cluster.brokers.values():
            for log_dir in broker.log_dirs:
                (log_dir / ".kafka_cleanshutdown").unlink()
                (log_dir / "recovery-point-offset-checkpoint").unlink()
        steps.start()
        # Each broker has ids of its own, and a producer gets one from any broker: not each new id is an old one.
        assert any(loses_first_writes(cluster) for _ in range(20))


def loses_first_writes(cluster: LocalCluster) -> bool:
    """Return whether new producers lose a record that was acknowledged, or are refused."""
    try:
        acknowledged = first_writes(cluster)
    except KafkaException:  # OUT_OF_ORDER_SEQUENCE_NUMBER, if the old producer of the id wrote more
        return True
    found = read_all(cluster)["read_uncommitted"]
    return any(key not in found or found[key].value != value for key, value in acknowledged)


def check_restored(lost: Lost, cluster: LocalCluster, steps: Restore) -> None:
    """Restore; compare records, starts, replicas and indexes, then with the configurations groups and new records."""
    steps.up_to_finish()
    assert read_all(cluster) == lost.records
    for partition, start in lost.starts.items():
        assert cluster.earliest(partition.topic, partition.partition) == start
        places = [broker.partition_directory(*_name(partition)) for broker in cluster.brokers.values()]
        logs = [[path.read_bytes() for path in sorted(place.glob("*.log"))] for place in places]
        assert logs[0] == logs[1]
        if partition.topic != COMPACTED:
            _check_indexes(lost, partition, places[0])
    steps.configure()
    admin = cluster.admin()
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])[GROUP].result(_SECONDS)
    assert [(each.partition, each.offset) for each in asked.topic_partitions] == [(1, GROUP_OFFSET)]
    written = first_writes(cluster)
    assert len({key for key, _ in written}) == len(written)
    found = read_all(cluster)["read_committed"]
    assert {key: found[key].value for key, _ in written} == dict(written)
    record = Restored.read(lost.archive.store, lost.archive.keys.restored)
    assert record is not None
    ids = {name: topic.topic_id for name, topic in KafkaCluster(cluster.bootstrap, {}).topics().items()}
    topics = {each: record.topics.get(f"{each}~{ids[each]}") or record.topics[each] for each in TOPICS}
    assert lost.ends == {
        TopicPartition(topic, number): part.end
        for topic, found in topics.items()
        for number, part in found.partitions.items()
    }


def _check_indexes(lost: Lost, partition: TopicPartition, place: Path) -> None:
    """Compare the indexes of closed segments with those that the old broker wrote, byte for byte."""
    prefix = lost.archive.keys.partition(partition).prefix
    shipped = {info.key.removeprefix(prefix) for info in lost.archive.store.list(prefix)}
    indexes = [name for name in shipped if name.endswith("index")]
    assert len(indexes) > 2
    for name in indexes:
        assert (place / name).read_bytes() == lost.archive.store.get(prefix + name)[0], name


def _name(partition: TopicPartition) -> tuple[str, int]:
    return partition.topic, partition.partition


def first_writes(cluster: LocalCluster) -> list[tuple[Key, bytes]]:
    """Write by new, idempotent and transactional producers; return what was acknowledged."""
    acknowledged: list[tuple[Key, bytes]] = []

    def delivered(error: TheirError | None, message: Message) -> None:
        if error is None:
            place = (message.topic() or "", message.partition() or 0, message.offset() or 0)
            acknowledged.append((place, message.value() or b""))

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
        assert producer.flush(_SECONDS) == 0
        if "transactional.id" in settings:
            producer.commit_transaction(_SECONDS)
    return acknowledged
