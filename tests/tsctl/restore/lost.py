"""A cluster that was shipped and lost, and the cluster that gets its files."""

import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as TheirPartition

from dev.local.kafka.cluster import LocalCluster, Record, wait_for
from dev.local.oracle import Isolation, OracleRecord, dump
from tests.every_field import every_field
from tests.tsctl.running import Ended, Run
from tests.uploader.beside import BUCKET, PREFIX, SMALL_FETCHES, Archive
from ts_common.archive.snapshots import FIVE_MINUTES, HOUR, ClusterSnapshot, GroupOffset, GroupsSnapshot, Topic
from ts_common.model import TopicPartition
from tsctl.verify.kafka_cluster import KafkaCluster

PLAIN, TRANSACTIONS, COMPACTED, TORN = "plain", "transactions", "compacted", "torn"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS = {PLAIN: len(CODECS), TRANSACTIONS: 1, COMPACTED: 1, TORN: 4}
APPLICATION = "exactly-once"  # commits its offsets in its transactions
GROUPS = {"reports": {TopicPartition(PLAIN, 1): 120}, APPLICATION: {TopicPartition(PLAIN, 2): 70}}
LEVELS: Final[tuple[Isolation, ...]] = ("read_uncommitted", "read_committed")
COMMITTED, ABORTED = b"committed", b"aborted"
OPEN = b"open"  # the begin of the values of the transaction that is open at the end
_SECONDS = 60
_PROPERTIES = {
    **SMALL_FETCHES,
    "replica.high.watermark.checkpoint.interval.ms": "500",
}
_CONFIGURATIONS = {PLAIN: {}, TRANSACTIONS: {}, TORN: {}, COMPACTED: {"cleanup.policy": "compact"}}
Key = tuple[str, int, int]


@dataclass(frozen=True)
class Lost:
    """What is left of the cluster.

    Attributes:
        config: directory of its agents' `prod.properties`.
        ends: next offset of each partition in the archive.
        starts: log start of each partition.
        torn_at: ms since the epoch: transactions of `TORN` are divided by a cut at this time.
        records: by isolation level, what Kafka's consumer read below `ends`; the open transaction counts as aborted.
    """

    archive: Archive
    config: Path
    ends: Mapping[TopicPartition, int]
    starts: Mapping[TopicPartition, int]
    torn_at: int
    records: Mapping[str, Mapping[Key, OracleRecord]]


@contextmanager
def lost_cluster(directory: Path, brokers: int = 2, **how: Any) -> Iterator[Lost]:
    """Ship the topics of one or two brokers, then remove the brokers and their disks; the store stays.

    Args:
        how: of the cluster.
    """
    factor = str(brokers)
    properties = {
        **_PROPERTIES,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
    }
    with LocalCluster(
        brokers, s3=True, buckets=[BUCKET], log_dirs=2, properties=properties, name="lost", **how
    ) as cluster:
        _fill(cluster)
        torn_at = _tear(cluster)
        archive = Archive(cluster, directory, PLAIN, properties={PREFIX + "kafka.topics.include": ",".join(TOPICS)})
        try:
            for broker in cluster.brokers:
                archive.agent(broker)
            partitions = [TopicPartition(topic, number) for topic, count in TOPICS.items() for number in range(count)]
            ends = {each: _wait_until_shipped(archive, each) for each in partitions}
            starts = {each: cluster.earliest(each.topic, each.partition) for each in partitions}
            records = below(cluster, read_all(cluster), ends)
            for agent in archive.agents:
                agent.kill()
            _put_snapshots(cluster, archive)
            for server in reversed(cluster.servers):
                if server is not cluster.s3:
                    server.kill()
                    shutil.rmtree(server.directory)
            yield Lost(archive, archive.config, ends, starts, torn_at, records)
        finally:
            archive.close()


def read_all(cluster: LocalCluster, topics: Iterable[str] = TOPICS) -> dict[str, dict[Key, OracleRecord]]:
    """Return all records of topics by Kafka's Java consumer, in both isolation levels."""
    return {
        level: {(each.topic, each.partition, each.offset): each for each in dump(cluster.bootstrap, [*topics], level)}
        for level in LEVELS
    }


def _fill(cluster: LocalCluster) -> None:
    segments = {"segment.bytes": "20000"}
    for topic, count in TOPICS.items():
        replicas = [[*_replicas(cluster, number)] for number in range(count)]
        config = {**segments, **_CONFIGURATIONS[topic], "min.cleanable.dirty.ratio": "0.01"}
        cluster.create_topic(topic, assignment=replicas, config=config)
    for number, codec in enumerate(CODECS):
        cluster.produce(PLAIN, every_field(150), partition=number, config={"compression.type": codec})
    cluster.brokers[1].restart()  # leader epochs above 0
    wait_for(lambda: cluster.in_sync(PLAIN, 0) == {*cluster.brokers}, "all replicas in sync", _SECONDS)
    for number, codec in enumerate(CODECS):
        cluster.produce(PLAIN, every_field(150), partition=number, config={"compression.type": codec})
    late = cluster.producer({"transactional.id": "late", "transaction.timeout.ms": 600_000})
    producer = cluster.producer({"transactional.id": "one", "batch.size": 1000, "linger.ms": 0})
    for each in (producer, late):
        each.init_transactions(_SECONDS)
    for number in range(20):
        producer.begin_transaction()
        for _ in range(5):
            producer.produce(TRANSACTIONS, b"%d" % number * 100, b"k%d" % number, partition=0)
        producer.flush(_SECONDS)  # an abort would drop unsent records
        if number == 10:
            commit_in_transaction(cluster, producer)
        (producer.abort_transaction if number % 3 == 0 else producer.commit_transaction)(_SECONDS)
        if number == 12:
            late.begin_transaction()
            late.produce(TRANSACTIONS, OPEN, partition=0)
            late.flush(_SECONDS)
    cluster.produce(TRANSACTIONS, [Record(bytes(4000)) for _ in range(8)], partition=0)
    (group,) = GROUPS.keys() - {APPLICATION}
    with group_member(cluster, group) as consumer:
        offsets = [TheirPartition(each.topic, each.partition, offset) for each, offset in GROUPS[group].items()]
        consumer.commit(offsets=offsets, asynchronous=False)
    for part in range(6):
        records = [Record(b"%d" % part * 50, key=b"%d" % (number % 40)) for number in range(300)]
        cluster.produce(COMPACTED, records, partition=0)
    cluster.produce(COMPACTED, [Record(bytes(4000), key=b"%d" % number) for number in range(8)], partition=0)


def _tear(cluster: LocalCluster) -> int:
    """Write transactions that a cut by time divides, and return the time.

    Partitions 1 and 3 have a record with a later timestamp before the marker, which partition 0 has below the cut. The
    last transaction has its markers, in partitions 0 and 2, beyond the cut.
    """
    one, other, last = (cluster.producer({"transactional.id": name}) for name in ("torn 1", "torn 2", "torn 3"))
    for producer in (one, other, last):
        producer.init_transactions(_SECONDS)
        producer.begin_transaction()
    later = int(time.time() * 1000) + 600_000
    for producer, value, number in ((one, COMMITTED, 1), (other, ABORTED, 3)):
        for partition in (0, number):
            producer.produce(TORN, value, partition=partition)
        producer.flush(_SECONDS)
        producer.produce(TORN, value, partition=number, timestamp=later)
        producer.flush(_SECONDS)
    one.commit_transaction(_SECONDS)
    other.abort_transaction(_SECONDS)

    def marked() -> bool:
        ends = {number: cluster.latest(TORN, number, committed=True) for number in (0, 1, 3)}
        return ends == {0: 4, 1: 3, 3: 3}

    wait_for(marked, "the markers, which are written after the answer", _SECONDS)
    for number in (0, 2):
        last.produce(TORN, ABORTED, partition=number)
    last.flush(_SECONDS)
    torn_at = int(time.time() * 1000)
    wait_for(lambda: time.time() * 1000 > torn_at + 1, "a later time", _SECONDS)
    last.commit_transaction(_SECONDS)
    for number in range(TOPICS[TORN]):
        cluster.produce(TORN, [Record(bytes(4000)) for _ in range(12)], partition=number)
    return torn_at


def commit_in_transaction(cluster: LocalCluster, producer: Producer) -> None:
    """Commit the offsets of the application in the transaction of its producer."""
    offsets = [TheirPartition(each.topic, each.partition, offset) for each, offset in GROUPS[APPLICATION].items()]
    with group_member(cluster, APPLICATION) as consumer:
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), _SECONDS)


@contextmanager
def group_member(cluster: LocalCluster, group: str) -> Iterator[Consumer]:
    """Yield a consumer of a group, which waits for open transactions."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "error"})
    try:
        yield consumer
    finally:
        consumer.close()


def _replicas(cluster: LocalCluster, partition: int) -> tuple[int, ...]:
    brokers = sorted(cluster.brokers)
    return tuple(brokers if partition % 2 == 0 else reversed(brokers))


def _wait_until_shipped(archive: Archive, partition: TopicPartition) -> int:
    of = Archive(archive.cluster, archive.config.parent, partition.topic)
    try:
        leader = archive.cluster.leader(partition.topic, partition.partition)
        assert leader is not None
        of.agents = archive.agents
        return of.wait_until_shipped(leader, partition.partition)
    finally:
        of.agents = []
        of.close()


def below(
    cluster: LocalCluster, found: dict[str, dict[Key, OracleRecord]], ends: Mapping[TopicPartition, int]
) -> dict[str, dict[Key, OracleRecord]]:
    """Return what consumers see of a restored cluster: beyond the last stable offset the outcomes are in the log.

    Args:
        found: what they see of this one.
    """
    stable = cluster.latest(TRANSACTIONS, 0, committed=True)
    beyond = {
        key: record
        for key, record in found["read_uncommitted"].items()
        if key[0] == TRANSACTIONS and key[2] >= stable and not _is_aborted(record)
    }
    found["read_committed"] |= beyond
    return {
        level: {key: each for key, each in records.items() if key[2] < ends[TopicPartition(*key[:2])]}
        for level, records in found.items()
    }


def _is_aborted(record: OracleRecord) -> bool:
    key = record.key or b""
    return record.value == OPEN or (key[:1] == b"k" and int(key[1:]) % 3 == 0)


def _put_snapshots(cluster: LocalCluster, archive: Archive) -> None:
    now = int(time.time() * 1000)
    topics = {
        name: Topic(None, tuple(_replicas(cluster, number) for number in range(count)), _CONFIGURATIONS[name])
        for name, count in TOPICS.items()
    }
    ClusterSnapshot(now, 1, None, topics, {}, (), (), ()).put(archive.store, archive.keys, now // HOUR * HOUR)
    reading = KafkaCluster(cluster.bootstrap, {})
    groups = {
        group: {partition: GroupOffset(offset, 7, "") for partition, offset in reading.group_offsets(group).items()}
        for group in GROUPS
    }
    GroupsSnapshot(now, groups).put(archive.store, archive.keys, now // FIVE_MINUTES * FIVE_MINUTES)


class Restore:
    """The steps of a restore into a new cluster.

    Args:
        run: runs `tsctl` in this process.
        directory: of the plan.
    """

    def __init__(self, run: Run, lost: Lost, cluster: LocalCluster, directory: Path) -> None:
        self._run = run
        self._lost = lost
        self._cluster = cluster
        self.directory = directory

    def step(self, name: str, *arguments: object, archive: bool = False) -> Ended:
        """Run one step; it must succeed."""
        found = self.tried(name, *arguments, archive=archive)
        assert found.code == 0, (name, found)
        return found

    def tried(self, name: str, *arguments: object, archive: bool = False) -> Ended:
        """Run one step."""
        named = ("--config", self._lost.config) if archive else ()
        return self._run("restore", name, self.directory, *arguments, *named)

    def plan(self, *arguments: object) -> Ended:
        """Make the plan."""
        return self.step("plan", "--brokers", ",".join(map(str, self._cluster.brokers)), *arguments, archive=True)

    def create(self) -> Ended:
        """Create the topics."""
        return self.step("create", *self._brokers, "--continued-in", self._lost.config, archive=True)

    def on(self, broker: int) -> tuple[object, ...]:
        """Return the option that names a host."""
        return ("--server-properties", self._cluster.brokers[broker].server_properties)

    def up_to_finish(self, *arguments: object) -> None:
        """Plan, create, fetch, stop, place, check, start and finish; nothing is compacted yet."""
        self.up_to_check(*arguments)
        self.start()
        ended: list[Ended] = []

        def finished() -> bool:
            ended.append(self.tried("finish", *self._brokers))
            return ended[-1].code == 0

        wait_for(finished, "the groups' offsets to be set", _SECONDS, state=lambda: ended[-1])

    def configure(self) -> None:
        """Give the topics their configurations back; the brokers compact from then on, each at its own time."""
        self.step("finish", *self._brokers, "--configurations", "--approve")

    def up_to_check(self, *arguments: object) -> None:
        """Plan, create, fetch, stop, place and check."""
        self.plan(*arguments)
        self.create()
        for broker in self._cluster.brokers:
            self.step("fetch", *self.on(broker), archive=True)
        for server in self._cluster.brokers.values():
            server.stop()
        for broker in self._cluster.brokers:
            self.step("place", *self.on(broker))
        for broker in self._cluster.brokers:
            self.step("check", *self.on(broker))

    def start(self) -> None:
        """Start all brokers."""
        for server in self._cluster.brokers.values():
            server.launch()
        for server in self._cluster.brokers.values():
            server.wait_ready()

    @property
    def _brokers(self) -> tuple[str, str]:
        return "--bootstrap-server", self._cluster.bootstrap
