"""Clusters as their leadership sources see them: ZooKeeper with Kafka's nodes, and KRaft brokers."""

import importlib
import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as TheirPartition

from dev.local.kafka.cluster import LocalCluster
from dev.local.kafka.zookeeper import ZooKeeper
from dev.local.process import Server
from ts_common.broker_connection.security import security_of
from ts_common.model import TopicPartition
from ts_uploader.environment import Environment, ServerPropertiesEnvironment
from ts_uploader.leadership.contract import LeadershipEvent, LeadershipSource
from ts_uploader.leadership.kraft.direct_client import DirectClient
from ts_uploader.leadership.kraft.leadership import KraftLeadership
from ts_uploader.leadership.kraft.listener import client_settings
from ts_uploader.leadership.zookeeper.leadership import ZookeeperLeadership
from ts_uploader.leadership.zookeeper.state import settings_path, state_path

OURS, OTHER = 2, 1  # brokers; the source is the first one's


class Quick(ZookeeperLeadership):
    session_seconds = 3.0


class Side(ABC):
    """A cluster as its leadership source sees it.

    Attributes:
        server: that the source connects to.
    """

    server: Server

    @abstractmethod
    def source(self, emit: Callable[[LeadershipEvent], None], poll_seconds: float) -> LeadershipSource:
        """Return a new source of broker `OURS`."""

    @abstractmethod
    def create(self, topic: str, partitions: int = 1) -> None:
        """Create a topic that `OURS` leads."""

    @abstractmethod
    def delete(self, topic: str) -> None:
        """Delete a topic."""

    @abstractmethod
    def lead(self, topic: str, leader: int, partitions: int = 1) -> None:
        """Make a broker the leader of a topic's partitions, in a new epoch."""

    @abstractmethod
    def configure(self, topic: str, key: str, value: str) -> None:
        """Set one of a topic's settings."""


class ZooKeeperSide(Side):
    """Nodes as Kafka writes them, without a Kafka."""

    def __init__(self, directory: Path) -> None:
        self.server = self._zookeeper = ZooKeeper(directory / "data", directory)
        self._zookeeper.start()
        self._epochs: dict[str, int] = {}
        self._created = 0

    def source(self, emit: Callable[[LeadershipEvent], None], poll_seconds: float) -> LeadershipSource:
        return Quick(Environment("c", OURS, (), self._zookeeper.connect, kraft=False), emit, poll_seconds)

    def create(self, topic: str, partitions: int = 1) -> None:
        self._created += 1
        self._epochs[topic] = 0
        with self._zookeeper.client() as client:
            node = {"version": 3, "partitions": {}, "topic_id": f"id-{self._created}"}
            client.create(f"/brokers/topics/{topic}", json.dumps(node).encode(), makepath=True)
            for number in range(partitions):
                client.create(state_path(TopicPartition(topic, number)), self._state(OURS, 0), makepath=True)

    def delete(self, topic: str) -> None:
        with self._zookeeper.client() as client:
            client.delete(f"/brokers/topics/{topic}", recursive=True)

    def lead(self, topic: str, leader: int, partitions: int = 1) -> None:
        self._epochs[topic] += 1
        with self._zookeeper.client() as client:
            for number in range(partitions):
                client.set(state_path(TopicPartition(topic, number)), self._state(leader, self._epochs[topic]))

    def configure(self, topic: str, key: str, value: str) -> None:
        node = json.dumps({"version": 1, "config": {key: value}}).encode()
        with self._zookeeper.client() as client:
            client.ensure_path(settings_path(topic))
            client.set(settings_path(topic), node)

    @staticmethod
    def _state(leader: int, epoch: int) -> bytes:
        return json.dumps({"leader": leader, "leader_epoch": epoch, "version": 1, "isr": []}).encode()


class KRaftSide(Side):
    """Two real brokers; `OTHER` is the controller."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.server = cluster.brokers[OURS]

    def source(self, emit: Callable[[LeadershipEvent], None], poll_seconds: float) -> LeadershipSource:
        environment = ServerPropertiesEnvironment(self.cluster.brokers[OURS].server_properties, None).load()
        client = client_settings(environment.broker_properties, {}, "localhost")
        broker = DirectClient(OURS, lambda: security_of(client), 3.0)
        return KraftLeadership(environment, emit, poll_seconds, broker, "ANONYMOUS")

    def create(self, topic: str, partitions: int = 1) -> None:
        self.cluster.create_topic(topic, assignment=[[OURS, OTHER]] * partitions)

    def delete(self, topic: str) -> None:
        self.cluster.delete_topic(topic)

    def lead(self, topic: str, leader: int, partitions: int = 1) -> None:
        order = [leader, OURS + OTHER - leader]
        reassign(self.cluster.brokers[OTHER].bootstrap, {(topic, number): order for number in range(partitions)})
        ours = [TheirPartition(topic, number) for number in range(partitions)]
        admin = self.cluster.admin()
        errors = admin.elect_leaders(ElectionType.PREFERRED, ours).result(30)
        assert set(errors.values()) == {None}, errors

    def configure(self, topic: str, key: str, value: str) -> None:
        self.cluster.alter_config(topic, {key: value})


def reassign(bootstrap: str, replicas: Mapping[tuple[str, int], Sequence[int]]) -> None:
    """Reassign partitions with kafka-python, because librdkafka cannot; its import logs deprecation warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        peers = importlib.import_module("kafka")
        admin = importlib.import_module("kafka.admin").KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        changed = admin.alter_partition_reassignments(
            {peers.TopicPartition(*partition): list(order) for partition, order in replicas.items()}
        )
    finally:
        admin.close()
    assert set(changed.values()) == {None}, changed
