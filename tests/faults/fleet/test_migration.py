"""U17 with a real cluster of Kafka 3.9 that migrates from ZooKeeper to KRaft under continuous load."""

import itertools
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import KafkaError, Message

from dev.local.agent import AgentProcess
from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.kafka.migration import Migration
from tests.faults.ends import exit_status
from tests.faults.leaders import start_agents
from tests.uploader.beside import BUCKET, ROLLS, SMALL_FETCHES, Archive, archives
from ts_common.archive.incarnations import read_incarnations
from ts_common.log_format.checkpoints import parse_partition_metadata
from ts_uploader.cli import EXIT_TRY_AGAIN

TOPIC = "migrating"
# Through all restarts, each record is acknowledged in the end, once, and in order.
_PATIENT = {
    "enable.idempotence": True,
    "message.timeout.ms": 240_000,
    "topic.metadata.refresh.interval.ms": 1_000,
    "reconnect.backoff.max.ms": 500,
    "queue.buffering.max.messages": 5_000,
}
_EVERY_SECONDS = 0.05
_SECONDS = 180.0


class Load:
    """Produces numbered records into one partition, some hundred a second, until `stop`."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.values: list[bytes] = []  # in the order of production; owned by the thread
        self.acknowledged = 0
        self.errors: list[KafkaError] = []
        self._producer = cluster.producer(_PATIENT)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop producing, and wait until all records are acknowledged."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        for number in itertools.count():
            if number % 10 == 0 and self._stop.wait(_EVERY_SECONDS):
                break
            value = b"%08d" % number + Random(number).randbytes(200)
            try:
                self._producer.produce(TOPIC, value, partition=0, on_delivery=self._delivered)
            except BufferError:  # the queue is full: a record that is not queued was not produced
                self._producer.poll(0.5)
                continue
            self.values.append(value)
            self._producer.poll(0)
        self._producer.flush(_SECONDS)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.errors.append(error)


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """Two brokers that roll their segments at different sizes."""
    properties = {**SMALL_FETCHES, "zookeeper.session.timeout.ms": "2000"}
    with LocalCluster(
        brokers=2, s3=True, buckets=[BUCKET], properties=properties, broker_properties=ROLLS, name="migrating"
    ) as cluster:
        yield cluster


def wait_in_sync(cluster: LocalCluster) -> None:
    """Do what operators do between two restarts."""
    wait_for(lambda: cluster.in_sync(TOPIC, 0) == {1, 2}, "both brokers in sync", _SECONDS)


def wait_shipped_on(archive: Archive) -> None:
    """Wait until a record that was produced after this call is in the archive."""
    archive.wait_for_offset(archive.cluster.latest(TOPIC, 0), seconds=_SECONDS)


def topic_id(cluster: LocalCluster, broker: int) -> str | None:
    directory = cluster.brokers[broker].partition_directory(TOPIC, 0)
    return parse_partition_metadata((directory / "partition.metadata").read_bytes())


def wait_watched(agent: AgentProcess) -> None:
    wait_for(lambda: agent.health()["leadership"] == "watched", "the agent to know its broker", _SECONDS)


@pytest.mark.full
def test_u17_a_cluster_migrates_under_load_and_nothing_is_lost(cluster: LocalCluster, tmp_path: Path) -> None:
    """Brokers restarted twice, the agents moved with them: each record is read once, under the same topic id.

    Broker 1's agent is restarted by hand, broker 2's ends by itself and its supervisor starts it. A third one stays in
    ZooKeeper mode with the broker's former file, and ignores what remains in ZooKeeper.
    """
    cluster.create_topic(TOPIC, assignment=[[1, 2]], config={"min.insync.replicas": "1"})
    id_before = topic_id(cluster, 1)
    with archives(cluster, tmp_path) as archive_of, Migration(cluster) as migration, Load(cluster) as load:
        archive: Archive = archive_of(TOPIC)
        beside = start_agents(archive, 1, 2)
        wait_shipped_on(archive)
        migration.begin()
        for broker in (1, 2):
            migration.join(broker)
            wait_in_sync(cluster)
        migration.wait_taken_over()
        wait_shipped_on(archive)
        former = Path(shutil.copy(cluster.brokers[2].server_properties, tmp_path / "former.properties"))

        migration.move(1)
        wait_in_sync(cluster)
        if beside[1].alive:  # otherwise it has read the broker's file by itself, as that of broker 2 does
            beside[1].stop()
        beside[1].start()
        wait_watched(beside[1])
        wait_shipped_on(archive)
        migration.move(2)
        wait_in_sync(cluster)
        assert exit_status(beside[2], _SECONDS) == EXIT_TRY_AGAIN
        beside[2].start()
        wait_watched(beside[2])
        wait_shipped_on(archive)
        migration.finalise()

        left_behind: Archive = archive_of(TOPIC, cluster_id="left-behind")
        stale = left_behind.agent(surroundings=former)
        wait_for(lambda: "zookeeper_ignored" in stale.log.read_text(), "the agent to say so", _SECONDS)
        assert stale.health()["leadership"] == "unknown"
        assert cluster.zookeeper is not None
        cluster.zookeeper.stop()

        leader = cluster.leader(TOPIC, 0)
        assert leader is not None
        cluster.brokers[leader].restart()  # the leader moves, and only KRaft's controller has that
        wait_in_sync(cluster)
        wait_shipped_on(archive)
        assert [key for key in left_behind.objects() if "/left-behind/" in key] == []
        load.stop()
        leader = cluster.leader(TOPIC, 0)
        assert leader is not None
        end = archive.wait_until_shipped(leader)

        assert load.errors == []
        assert load.acknowledged == len(load.values)
        read = archive.read()
        assert read == archive.oracle(end=archive.next_offset())
        assert [record.value for record in read] == load.values[: len(read)]
        assert len(read) == archive.next_offset() >= end
        commit = archive.commit()
        assert commit is not None
        assert id_before is not None
        assert {commit.topic_id, topic_id(cluster, 1), topic_id(cluster, 2)} == {id_before}
        known, _ = read_incarnations(archive.store, archive.keys, TOPIC)
        assert [entry.topic_id for entry in known.entries] == [id_before]
