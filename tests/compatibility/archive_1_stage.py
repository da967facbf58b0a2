"""The cluster, the topics and the agents that `make_archive_1` lets meet their fates."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kazoo.client import KazooClient

from dev.local.agent import AgentProcess
from dev.local.kafka.cluster import LocalCluster, Record, wait_for
from dev.local.oracle import Isolation, OracleRecord, dump
from tests.common.log_format.old_brokers import OLD_PROTOCOL
from tests.faults.leaders import bases, move_leader, state, wait_in_sync, wait_led
from tests.uploader.beside import Archive
from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit
from ts_common.archive.incarnations import read_incarnations

CLUSTER_ID = "archive-1"
ENTROPY_BITS = 5
SECONDS = 120.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ISOLATIONS: tuple[Isolation, ...] = ("read_uncommitted", "read_committed")
UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "86400000"}
SHARED = 25  # records before an unclean election, in a segment that does not close
AT_ONCE = {"file.delete.delay.ms": "100"}

# Replicas of each partition, the preferred leader first, and the topic's own settings.
TOPICS: Mapping[str, tuple[list[list[int]], Mapping[str, str]]] = {
    "elections": ([[1, 2], [2, 1]], {}),
    "unclean": ([[1, 2]], UNCLEAN),
    "taken-back": ([[1, 2]], UNCLEAN),
    "unclean-later": ([[1, 2]], UNCLEAN),
    "gap": ([[1]], AT_ONCE),
    "begun-late": ([[1, 2]], AT_ONCE),
    "compacted": ([[1, 2]], COMPACTED),
    "transactions": ([[1, 2]], {}),
    "reborn": ([[1]], {}),
    "fields": ([[1, 2]], {}),
    "appended": ([[1, 2]], {"message.timestamp.type": "LogAppendTime"}),
    "old-format": ([[1, 2]], {"message.format.version": "0.10.2"}),
    "java": ([[1, 2]], {}),
}
TWO_REPLICAS = [name for name, (assignment, _) in TOPICS.items() if len(assignment[0]) == 2]
# A follower appends a whole fetch at once: small segments need small fetches.
PROPERTIES = {
    **OLD_PROTOCOL,
    "replica.fetch.max.bytes": "2500",
    "replica.fetch.response.max.bytes": "2500",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "zookeeper.session.timeout.ms": "2000",
    "log.cleaner.backoff.ms": "500",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
    "log.index.size.max.bytes": "4096",
    "log.index.interval.bytes": "1000",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    "auto.leader.rebalance.enable": "false",
}
# Broker 1 writes records that elections lose: its dead segments reach further than the live ones next to them.
ROLLS = {1: {"log.segment.bytes": "9700"}, 2: {"log.segment.bytes": "6000"}}

Place = tuple[str, int, int]  # topic, incarnation (1 is the oldest), partition
Shown = dict[Isolation, list[OracleRecord]]


@dataclass
class Stage:
    """The cluster, and what has been noted of it."""

    cluster: LocalCluster
    client: KazooClient
    of: dict[str, Archive]
    agents: list[AgentProcess] = field(default_factory=list)
    # What Kafka's consumer showed of what Kafka has no more, below what was shipped of it.
    gone: dict[Place, Shown] = field(default_factory=dict)

    def start_agents(self) -> None:
        """One beside each broker."""
        self.agents = [self.of["elections"].agent(broker) for broker in self.cluster.brokers]

    def stop_agents(self) -> None:
        """In order."""
        for agent in self.agents:
            agent.stop()

    def produce(self, topic: str, line: str, count: int, partition: int = 0, **config: object) -> None:
        """Return records that name their leadership and compress well."""
        filler = bytes(range(97, 123)) * 6
        sent = [Record(f"{line}-{n:06}-".encode() + filler, key=b"%d" % (n % 50)) for n in range(count)]
        settings = {"batch.size": 1000, **{name.replace("_", "."): value for name, value in config.items()}}
        self.cluster.produce(topic, sent, partition=partition, config=settings)

    def partitions(self, topics: Iterable[str] = TOPICS) -> list[tuple[str, int]]:
        """Every partition of topics."""
        return [(topic, number) for topic in topics for number in range(len(TOPICS[topic][0]))]

    def move(self, topic: str, partition: int = 0) -> None:
        """The other broker leads."""
        leader = state(self.cluster, topic, partition).leader
        wait_in_sync(self.cluster, topic, 1, 2, partition=partition)
        move_leader(self.client, topic, 3 - leader, leader, partition)
        wait_led(self.cluster, topic, 3 - leader, partition)

    def commit(self, place: Place) -> Commit | None:
        """Return the commit in the store; None without an agent's commit."""
        topic, incarnation, partition = place
        archive = self.of[topic]
        incarnations, _ = read_incarnations(archive.store, archive.keys, topic)
        if len(incarnations.entries) < incarnation:
            return None
        keys = archive.partition_keys(partition)
        entry = incarnations.entries[incarnation - 1]
        commit, _ = read_commit(archive.store, archive.keys.partition(keys.partition, entry.directory))
        return commit if isinstance(commit, Commit) else None

    def next_offset(self, place: Place) -> int:
        """Return the next offset of the commit; 0 without an agent's commit."""
        commit = self.commit(place)
        return commit.next_offset if commit else 0

    def ship(self, *topics: str) -> None:
        """Until what is closed is committed in the present leadership, of topics or of all."""
        for topic, partition in self.partitions(topics or TOPICS):
            place = topic, 2 if (topic, 1, 0) in self.gone and topic == "reborn" else 1, partition
            now = state(self.cluster, topic, partition)
            *closed, active = bases(self.cluster, now.leader, topic, partition)

            def done() -> bool:
                commit = self.commit(place)  # noqa: B023
                return commit is not None and commit.next_offset >= active and commit.epoch >= now.leader_epoch  # noqa: B023

            if closed:
                wait_for(done, f"{place} to be shipped up to {active}", SECONDS, state=lambda: self.commit(place))  # noqa: B023

    def note_gone(self, topic: str, incarnation: int) -> None:
        """What is shipped of partition 0; Kafka is about to lose it."""
        end = self.next_offset((topic, incarnation, 0))
        assert end > 0
        self.gone[topic, incarnation, 0] = {
            isolation: [record for record in dump(self.cluster.bootstrap, topic, isolation) if record.offset < end]
            for isolation in ISOLATIONS
        }

    def shown(self) -> dict[Place, Shown]:
        """What Kafka's consumer shows of everything now, and what it showed of what Kafka has no more."""
        found: dict[Place, Shown] = {}
        for isolation in ISOLATIONS:
            for topic, partition in self.partitions():
                incarnation = 2 if topic == "reborn" else 1
                found.setdefault((topic, incarnation, partition), {})[isolation] = []
            for record in dump(self.cluster.bootstrap, list(TOPICS), isolation):
                incarnation = 2 if record.topic == "reborn" else 1
                found[record.topic, incarnation, record.partition][isolation].append(record)
        for place, noted in self.gone.items():
            earliest = self.cluster.earliest(place[0], place[2]) if place in found else None
            for isolation in ISOLATIONS:
                kept = [record for record in noted[isolation] if earliest is None or record.offset < earliest]
                of_place = found.setdefault(place, {})
                of_place[isolation] = [*kept, *of_place.get(isolation, [])]
        return found
