"""Agents of the brokers of a real cluster, and the archive that they write."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dev.local.agent import AgentProcess, write_config
from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.oracle import OracleRecord, dump
from dev.local.proxy.s3 import S3FaultProxy
from dev.local.stores.s3 import S3Server
from tests.archive import read_archive
from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit
from ts_common.archive.object_keys import CACHE_DIRECTORY, CLUSTER_DIRECTORY, PROBE_NAME, ClusterKeys, PartitionKeys
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store

BUCKET = "archive"
PREFIX = "ts.segment.uploader."
# A follower appends a whole fetch at once: small segments need a small fetch.
SMALL_FETCHES = {"replica.fetch.max.bytes": "20000", "replica.fetch.response.max.bytes": "20000"}
# Two brokers that roll their segments at different sizes.
ROLLS = {1: {"log.segment.bytes": "60000"}, 2: {"log.segment.bytes": "97000"}}
SMALL_SEGMENTS = {"segment.bytes": "60000"}
# For a test that is given a `cluster`: in ZooKeeper mode, and in KRaft mode too.
ON_BOTH = pytest.mark.parametrize(
    "cluster", ["zookeeper", pytest.param("kraft", marks=pytest.mark.full)], indirect=True
)
_ENVIRONMENT = threading.Lock()  # of the process, which histories that live at once change to open their stores


class Archive:
    """One topic's archive under its own prefix, and the agents that ship to it.

    Attributes:
        properties: of its agents' configuration.
        config: its directory; exists once an agent was made.
        agents: all that were made.

    Args:
        cluster: whose brokers are shipped.
        directory: of the test.
        topic: the shipped topic.
        cluster_id: part of the keys.
        entropy_bits: of the keys.
        properties: further ones of the configuration.
        proxy: between the agents and the S3 server; the archive's own store uses the server itself.
        s3: another S3 server than the cluster's.
    """

    def __init__(
        self,
        cluster: LocalCluster,
        directory: Path,
        topic: str,
        cluster_id: str = "prod",
        entropy_bits: int = 5,
        properties: Mapping[str, str] | None = None,
        proxy: S3FaultProxy | None = None,
        s3: S3Server | None = None,
    ) -> None:
        server = s3 or cluster.s3
        assert server is not None
        self.cluster = cluster
        self.s3 = server
        self.topic = topic
        self.keys = ClusterKeys(cluster_id, entropy_bits)
        self.location = f"s3://{BUCKET}/{directory.name}"
        self.config = directory / "conf"
        self._directory = directory
        self.properties = {
            PREFIX + "kafka.topics.include": topic,
            PREFIX + "s3.prefix.entropy.bits": str(entropy_bits),
            "storage.service.endpoint.url": self.location,
            "metrics.partitions": "true",
            **(properties or {}),
        }
        self._environment = (proxy or server).environment()
        self.agents: list[AgentProcess] = []
        self._store: ObjectStore | None = None

    def agent(
        self,
        broker: int = 1,
        *,
        environment: Mapping[str, str] | None = None,
        surroundings: Path | None = None,
        prefix: Sequence[str] = (),
        arguments: Sequence[str] = (),
        waits: bool = True,
    ) -> AgentProcess:
        """Make an agent of a broker; by default it is up and answers.

        Args:
            broker: its id.
            environment: of another S3 server than the archive's, or of another proxy before it.
            surroundings: a file in place of the broker's own `server.properties`.
            prefix: a command that runs it, `setpriv` with fewer rights.
            arguments: further ones of `ts-uploader run`.
            waits: until it is up; else it is only launched.
        """
        write_config(self.config, self.keys.cluster, self.properties)
        agent = AgentProcess(
            self._directory,
            self.cluster.logs,
            self.config,
            surroundings or self.cluster.brokers[broker].server_properties,
            self.keys.cluster,
            environment=environment or self._environment,
            prefix=prefix,
            arguments=arguments,
            name=f"agent-{self._directory.name}-{len(self.agents)}",
            is_forked=True,
        )
        self.agents.append(agent)
        if waits:
            agent.start()
        else:
            agent.launch()
        return agent

    @property
    def store(self) -> ObjectStore:
        """The archive's store, as an administrator."""
        with _ENVIRONMENT:
            if self._store is None:
                with pytest.MonkeyPatch.context() as patched:
                    for name, value in self.s3.environment().items():
                        patched.setenv(name, value)
                    self._store = open_store(self.location)
            return self._store

    def partition_keys(self, partition: int = 0) -> PartitionKeys:
        """The keys of a partition in the topic's first incarnation."""
        return self.keys.partition(TopicPartition(self.topic, partition))

    def objects(self) -> dict[str, str]:
        """Every key of the archive with its etag; but the probe, what is the cluster's, and cache objects."""
        listed = (info for info in self.store.list() if not info.key.startswith((PROBE_NAME, CLUSTER_DIRECTORY)))
        return {info.key: info.etag for info in listed if f"/{CACHE_DIRECTORY}" not in info.key}

    def commit(self, partition: int = 0) -> Commit | None:
        """The commit of a partition, if an agent wrote it."""
        found, _ = read_commit(self.store, self.partition_keys(partition))
        return found if isinstance(found, Commit) else None

    def next_offset(self, partition: int = 0) -> int:
        """The next offset; 0 without an agent's commit."""
        commit = self.commit(partition)
        return commit.next_offset if commit else 0

    def wait_for_offset(self, offset: int, partition: int = 0, seconds: float = 60) -> None:
        """Until readers see everything below `offset`."""
        wait_for(
            lambda: self.next_offset(partition) >= offset,
            f"{self.topic}-{partition} shipped up to {offset}",
            seconds,
            state=lambda: "\n".join([f"next offset {self.next_offset(partition)}", *(a.tail(10) for a in self.agents)]),
        )

    def wait_until_shipped(self, broker: int = 1, partition: int = 0) -> int:
        """Until every closed segment of a partition on a broker is below the next offset; that offset."""
        directory = self.cluster.brokers[broker].partition_directory(self.topic, partition)
        active = max(int(path.stem) for path in directory.glob("*.log"))
        self.wait_for_offset(active, partition)
        return active

    def read(self, partition: int = 0) -> list[OracleRecord]:
        """What readers see."""
        return read_archive(self.store, self.keys, TopicPartition(self.topic, partition))

    def oracle(self, partition: int | None = 0, end: int | None = None) -> list[OracleRecord]:
        """The records that Kafka's own consumer reads from a partition (None: all of them) below `end`."""
        records = dump(self.cluster.bootstrap, self.topic)
        return [r for r in records if partition in {None, r.partition} and (end is None or r.offset < end)]

    def close(self) -> None:
        """End every agent."""
        for agent in self.agents:
            if agent.alive:
                agent.kill()
        if self._store is not None:
            self._store.close()


@contextmanager
def archives(cluster: LocalCluster, directory: Path) -> Iterator[Callable[..., Archive]]:
    """Makes archives of topics; their agents end with the block."""
    made: list[Archive] = []

    def archive(topic: str, **arguments: Any) -> Archive:
        made.append(Archive(cluster, directory, topic, **arguments))
        return made[-1]

    try:
        yield archive
    finally:
        for archive_ in made:
            archive_.close()
