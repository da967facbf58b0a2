"""A cluster with agents and applications, whose topic was deleted, and the seed that gets its files."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from dev.local.kafka.broker import Broker, KRaftBroker, ZooKeeperBroker
from dev.local.kafka.cluster import LocalCluster, Mode, wait_for
from dev.local.ports import LOOPBACK, free_port
from tests.uploader.beside import BUCKET, PREFIX, SMALL_FETCHES, Archive
from ts_common.archive.snapshots import FIVE_MINUTES, MINUTE, ClusterSnapshot, GroupOffset, GroupsSnapshot, Topic
from ts_common.log_format.checkpoints import parse_offset_checkpoint
from ts_common.model import TopicPartition

ORDERS, OTHER, GROUP = "orders", "other", "reports"
HOMES: Final = ((1, 2), (2, 1))  # of the partitions of both topics
SEED: Final = 9
_SECONDS = 90
_PROPERTIES = {**SMALL_FETCHES, "replica.high.watermark.checkpoint.interval.ms": "500"}
Key = tuple[str, int, int]


def give_listeners(broker: Broker, mode: Mode) -> None:
    """Give a broker a listener for brokers."""
    inside = f"INSIDE://{LOOPBACK}:{free_port()}"
    controller = ",CONTROLLER:PLAINTEXT" if mode == "kraft" else ""
    broker.properties |= {
        "listeners": f"PLAINTEXT://{broker.bootstrap},{inside}",
        "advertised.listeners": f"PLAINTEXT://{broker.bootstrap},{inside}",
        "inter.broker.listener.name": "INSIDE",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT{controller}",
    }


def fence(seed: Broker) -> None:
    """Advertise the listener for clients where no process listens."""
    listeners = seed.properties["listeners"]
    seed.properties["advertised.listeners"] = listeners.replace(seed.bootstrap, f"{LOOPBACK}:{free_port()}")


@contextmanager
def serving_cluster(mode: Mode, brokers: int = 2, *, s3: bool = True) -> Iterator[LocalCluster]:
    """Start brokers with a listener of their own."""
    internal = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor")
    cluster = LocalCluster(
        brokers,
        mode=mode,
        own_controller=mode == "kraft",
        s3=s3,
        buckets=[BUCKET] if s3 else [],
        properties={**_PROPERTIES, **dict.fromkeys(internal, str(brokers))},
        name="serving",
    )
    for broker in cluster.brokers.values():
        give_listeners(broker, mode)
    with cluster:
        yield cluster


@contextmanager
def seed_of(cluster: LocalCluster, mode: Mode, *, is_fenced: bool = True) -> Iterator[Broker]:
    """Start a seed next to a cluster. The helpers of `LocalCluster` do not see it."""
    directory = cluster.directory / "seed"
    seed: Broker
    if mode == "kraft":
        assert cluster.controller is not None
        kafka = cluster.cluster_id
        seed = KRaftBroker(SEED, directory, cluster.logs, kafka, _PROPERTIES, cluster.controller, 2)
    else:
        assert cluster.zookeeper is not None
        seed = ZooKeeperBroker(SEED, directory, cluster.logs, cluster.zookeeper, _PROPERTIES, 2)
    give_listeners(seed, mode)
    if is_fenced:
        fence(seed)
    seed.start()
    try:
        yield seed
    finally:
        if seed.alive:
            seed.kill()


class Applications:
    """A producer of both topics, a transactional application of both, and a group of `orders`; all run until `close`.

    Attributes:
        acknowledged: value of each acknowledged record of the plain producer.
        committed: values of the transactions that were committed.
        aborted: values of those that ended after an error.
        consumed: (partition, offset) of each record that the group got since `consume`.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._ended = threading.Event()
        self._paused = threading.Event()
        self._idle = [threading.Event(), threading.Event()]
        self.acknowledged: dict[Key, bytes] = {}
        self.committed: list[bytes] = []
        self.aborted: list[bytes] = []
        self.consumed: list[tuple[int, int]] = []
        self._stop_consuming = threading.Event()
        self._consumer: threading.Thread | None = None
        self._threads = [
            threading.Thread(target=self._produce, args=(OTHER, None)),
            threading.Thread(target=self._produce, args=(ORDERS, self._idle[0])),
            threading.Thread(target=self._transact, args=(self._idle[1],)),
        ]
        for each in self._threads:
            each.start()

    def pause(self) -> None:
        """Pause what writes to `orders`; all that it has sent is acknowledged then."""
        self._paused.set()
        for each in self._idle:
            assert each.wait(_SECONDS)

    def resume(self) -> None:
        """Let it write again."""
        self._paused.clear()

    def consume(self) -> None:
        """Start a consumer of the group."""
        self.consumed = []
        self._stop_consuming.clear()
        self._consumer = threading.Thread(target=self._consume)
        self._consumer.start()

    def stop_consuming(self) -> None:
        """Stop the consumer; its offsets are committed."""
        self._stop_consuming.set()
        if self._consumer is not None:
            self._consumer.join(_SECONDS)

    def close(self) -> None:
        """End all."""
        self._ended.set()
        self._paused.clear()
        self.stop_consuming()
        for each in self._threads:
            each.join(_SECONDS)

    def _produce(self, topic: str, idle: threading.Event | None) -> None:
        producer = self._cluster.producer({"enable.idempotence": True, "message.timeout.ms": 120_000})
        for number in self._numbers(idle, producer):
            for partition in range(len(HOMES)):
                value = b"%s %d %d %s" % (topic.encode(), partition, number, bytes(150))
                # An unknown topic: it is deleted.
                with suppress(KafkaException, BufferError):
                    producer.produce(topic, value, b"k", partition=partition, on_delivery=self._delivered)
            producer.poll(0)
            self._ended.wait(0.03)
        producer.flush(_SECONDS)

    def _numbers(self, idle: threading.Event | None, producer: Producer) -> Iterator[int]:
        number = 0
        while not self._ended.is_set():
            if idle is not None and self._paused.is_set():
                producer.flush(_SECONDS)
                idle.set()
                self._ended.wait(0.05)
                continue
            if idle is not None:
                idle.clear()
            number += 1
            yield number

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            place = message.topic() or "", message.partition() or 0, message.offset() or 0
            assert place not in self.acknowledged
            self.acknowledged[place] = message.value() or b""

    def _transact(self, idle: threading.Event) -> None:
        producer: Producer | None = None
        number = 0
        while not self._ended.is_set():
            if self._paused.is_set():
                idle.set()
                self._ended.wait(0.05)
                continue
            idle.clear()
            number += 1
            value = b"transaction %d" % number
            try:
                if producer is None:
                    producer = self._cluster.producer(
                        {"transactional.id": "app", "transaction.timeout.ms": 20_000, "message.timeout.ms": 15_000}
                    )
                    producer.init_transactions(_SECONDS)
                producer.begin_transaction()
                for topic in (ORDERS, OTHER):
                    for partition in range(len(HOMES)):
                        producer.produce(topic, value, b"t", partition=partition)
                if number % 3:
                    producer.commit_transaction(_SECONDS)
                    self.committed.append(value)
                else:
                    producer.flush(5)
                    producer.abort_transaction(_SECONDS)
            except (KafkaException, BufferError):
                producer = self._aborted(producer)
                if producer is not None:
                    self.aborted.append(value)
            self._ended.wait(0.05)

    def _aborted(self, producer: Producer | None) -> Producer | None:
        try:
            if producer is not None:
                producer.abort_transaction(_SECONDS)
        except KafkaException:
            return None
        return producer

    def _consume(self) -> None:
        settings = {
            "bootstrap.servers": self._cluster.bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 200,
            "topic.metadata.refresh.interval.ms": 1000,
            "log_level": 0,
        }
        consumer = Consumer(settings)
        consumer.subscribe([ORDERS])
        while not self._stop_consuming.is_set():
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                self.consumed.append((message.partition() or 0, message.offset() or 0))
        consumer.close()


@contextmanager
def agents_of(cluster: LocalCluster, directory: Path) -> Iterator[Archive]:
    """Start the agents of the serving brokers."""
    properties = {PREFIX + "kafka.topics.include": f"{ORDERS},{OTHER}", PREFIX + "metadata.snapshots": "false"}
    archive = Archive(cluster, directory, ORDERS, properties=properties)
    try:
        for broker in cluster.brokers:
            archive.agent(broker)
        yield archive
    finally:
        archive.close()


def wait_for_watermarks(cluster: LocalCluster, topic: str) -> None:
    """Wait until each leader's checkpoint has the end of its log, so that agents can ship all of a deleted topic."""

    def written() -> bool:
        for number in range(len(HOMES)):
            leader = cluster.leader(topic, number)
            assert leader is not None
            path = cluster.brokers[leader].log_dirs[0] / "replication-offset-checkpoint"
            if parse_offset_checkpoint(path.read_bytes()).get((topic, number)) != cluster.latest(topic, number):
                return False
        return True

    wait_for(written, f"the high watermarks of {topic} on the disks", _SECONDS)


def put_snapshots(archive: Archive, committed: Mapping[int, int], configs: Mapping[str, str]) -> None:
    """Put snapshots of before the deletion, and of after it."""
    now = int(time.time() * 1000)
    known = {ORDERS: Topic(None, HOMES, dict(configs)), OTHER: Topic(None, HOMES, {})}
    groups = {GROUP: {TopicPartition(ORDERS, number): GroupOffset(at, 7, "") for number, at in committed.items()}}
    rest = {GROUP: {TopicPartition(OTHER, 0): GroupOffset(1, 0, "")}}
    for at, topics, offsets in (
        (now - 2 * FIVE_MINUTES, known, groups),
        (now, {OTHER: known[OTHER]}, rest),
    ):
        ClusterSnapshot(at, 1, None, topics, {}, (), (), ()).put(archive.store, archive.keys, at // MINUTE * MINUTE)
        GroupsSnapshot(at, offsets).put(archive.store, archive.keys, at // FIVE_MINUTES * FIVE_MINUTES)
