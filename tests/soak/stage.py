"""The servers of the soak: a cluster, an agent for each broker, and a link or proxy in every connection between them.

agent-N --agent-N:s3 (link)--> proxy N (HTTP faults) --> S3 server agent-N --agent-N:zookeeper--> ZooKeeper
<--broker-N:zookeeper-- broker-N any broker --broker-N:peers--> broker-N
"""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dev.local.agent import AgentProcess, write_config
from dev.local.kafka.cluster import LocalCluster
from dev.local.kafka.zookeeper import ZooKeeper
from dev.local.proxy.link import LinkProxy
from dev.local.proxy.s3 import S3FaultProxy
from dev.local.stores.s3 import S3Server
from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit
from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import TieredStorageError
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store

BUCKET = "archive"
LOCATION = f"s3://{BUCKET}/soak"
CLUSTER = "soaked"
PREFIX = "ts.segment.uploader."
# No unclean election and no retention: acknowledged records stay, and no offset is ever missing.
STRICT = "soak-strict"
# Elections here lose records; the archive follows the epochs.
UNCLEAN = "soak-unclean"
COMPACTED = "soak-compacted"
ASSIGNMENTS = {STRICT: [[1, 2], [2, 1], [1, 2]], UNCLEAN: [[1, 2], [2, 1]], COMPACTED: [[2, 1]]}
SETTINGS = {
    STRICT: {"unclean.leader.election.enable": "false"},
    UNCLEAN: {"unclean.leader.election.enable": "true"},
    COMPACTED: {
        "unclean.leader.election.enable": "false",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.3",
    },
}
PARTITIONS = tuple(
    TopicPartition(topic, number) for topic, replicas in ASSIGNMENTS.items() for number in range(len(replicas))
)

_BROKERS = (1, 2)
_PROPERTIES = {
    # A follower appends a whole fetch at once: small segments need a small one.
    "replica.fetch.max.bytes": "20000",
    "replica.fetch.response.max.bytes": "20000",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "replica.lag.time.max.ms": "1500",
    "zookeeper.session.timeout.ms": "3000",
    "zookeeper.connection.timeout.ms": "20000",
    "min.insync.replicas": "1",
    "log.cleaner.backoff.ms": "500",
    # Preferred leaders are elected soon, so that both agents have work.
    "leader.imbalance.check.interval.seconds": "4",
    "leader.imbalance.per.broker.percentage": "0",
}
_SEGMENT_BYTES = {1: {"log.segment.bytes": "60000"}, 2: {"log.segment.bytes": "97000"}}
# Short, so that a request without an answer is cut, and arrives late, within a minute.
_UPLOAD_TIMEOUT_MS = "4000"


@dataclass
class Stage:
    """All servers, and a timeline of the faults.

    Attributes:
        cluster: brokers, ZooKeeper, S3.
        agents: by broker.
        proxies: to S3, one for each agent; by broker.
        links: by name, as in the module's docstring.
        keys: of the cluster.
        store: the archive, without a proxy.
        over: set when the faults are to end, in time or after a failure.
        began: on the monotonic clock.
        timeline: actions with their seconds; appended to by all threads.
    """

    cluster: LocalCluster
    agents: dict[int, AgentProcess]
    proxies: dict[int, S3FaultProxy]
    links: dict[str, LinkProxy]
    keys: ClusterKeys
    store: ObjectStore
    over: threading.Event = field(default_factory=threading.Event)
    began: float = field(default_factory=time.monotonic)
    timeline: list[tuple[float, str]] = field(default_factory=list)

    @property
    def zookeeper(self) -> ZooKeeper:
        """The cluster's ZooKeeper."""
        assert self.cluster.zookeeper is not None
        return self.cluster.zookeeper

    @property
    def s3(self) -> S3Server:
        """The cluster's S3 server."""
        assert self.cluster.s3 is not None
        return self.cluster.s3

    def note(self, text: str) -> None:
        """Append a line to the timeline."""
        self.timeline.append((time.monotonic() - self.began, text))

    def next_offset(self, partition: TopicPartition) -> int:
        """Return the partition's next offset; 0 without a commit."""
        found, _ = read_commit(self.store, self.keys.partition(partition))
        return found.next_offset if isinstance(found, Commit) else 0

    def store_answers(self) -> bool:
        """Return whether the store answers a listing."""
        try:
            self.store.check()
            next(iter(self.store.list()), None)
        except TieredStorageError:
            return False
        return True

    def agent_log(self, broker: int) -> str:
        """Return the logs of all agents of a broker."""
        return self.agents[broker].log.read_text(errors="replace")


@contextmanager
def staged(directory: Path) -> Iterator[Stage]:
    """Start the servers, topics and agents, and end all of them with the block."""
    with (
        LocalCluster(
            brokers=len(_BROKERS),
            s3=True,
            buckets=[BUCKET],
            proxied=True,
            properties=_PROPERTIES,
            broker_properties=_SEGMENT_BYTES,
            name="soak",
        ) as cluster,
        ExitStack() as opened,
    ):
        for topic, assignment in ASSIGNMENTS.items():
            cluster.create_topic(topic, assignment=assignment, config=SETTINGS[topic])
        stage = _build(cluster, directory, opened)
        for agent in stage.agents.values():
            opened.callback(agent.kill)
            agent.launch()
        for agent in stage.agents.values():
            agent.wait_ready()
        stage.began = time.monotonic()
        yield stage


def _build(cluster: LocalCluster, directory: Path, opened: ExitStack) -> Stage:
    assert cluster.s3 is not None
    properties = {
        PREFIX + "kafka.topics.include": "soak-.*",
        PREFIX + "s3.prefix.entropy.bits": "5",
        PREFIX + "upload.timeout.ms": _UPLOAD_TIMEOUT_MS,
        "storage.service.endpoint.url": LOCATION,
    }
    config = directory / "conf"
    write_config(config, CLUSTER, properties)
    agents, proxies = {}, {}
    links = {f"broker-{broker}:peers": cluster.links[f"broker-{broker}"] for broker in _BROKERS}
    for broker in _BROKERS:
        proxies[broker] = opened.enter_context(S3FaultProxy(cluster.s3))
        to_store = opened.enter_context(LinkProxy(f"agent-{broker}:s3", proxies[broker].port))
        surroundings = cluster.agent_surroundings(broker)
        endpoint = f"http://{to_store.address}"
        agents[broker] = AgentProcess(
            directory,
            cluster.logs,
            config,
            surroundings,
            CLUSTER,
            environment={
                **cluster.s3.environment(),
                "AWS_ENDPOINT_URL": endpoint,
                "AWS_ENDPOINT_URL_S3": endpoint,
            },
            name=f"agent-{broker}",
        )
        links[to_store.name] = to_store
        for name in (f"agent-{broker}:zookeeper", f"broker-{broker}:zookeeper"):
            links[name] = cluster.links[name]
    patched = opened.enter_context(pytest.MonkeyPatch.context())
    for name, value in cluster.s3.environment().items():
        patched.setenv(name, value)
    store = opened.enter_context(open_store(LOCATION, timeout_seconds=5))
    return Stage(cluster, agents, proxies, links, ClusterKeys(CLUSTER, 5), store)
