"""Actions on leaders and logs in the tests of elections, and background watchers."""

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self, TypeVar

from confluent_kafka import KafkaError, Message
from kazoo.client import KazooClient

from dev.local.agent import AgentProcess
from dev.local.kafka.cluster import LocalCluster, Record, wait_for
from dev.local.kafka.zookeeper import PartitionState, ZooKeeper
from dev.local.oracle import OracleRecord
from tests.uploader.beside import Archive
from ts_common.archive.epoch_history import EpochHistory
from ts_common.log_format.checkpoints import parse_leader_epoch_checkpoint
from ts_uploader.log_dirs.directory_scan import read_high_watermarks

T = TypeVar("T")

PATIENCE = 90.0  # other work runs during the tests


def records(line: str, count: int) -> list[Record]:
    """Return incompressible records whose values begin with the name of their log (`line`)."""
    return [Record(f"{line}-{n:06}-".encode() + Random(f"{line}{n}").randbytes(200)) for n in range(count)]


def produce(
    cluster: LocalCluster, topic: str, line: str, count: int, partition: int = 0, **config: object
) -> dict[int, bytes]:
    """Produce in small batches, so that segments fill; return the value of each acknowledged record by its offset."""
    sent = records(line, count)
    settings = {"batch.size": 4000, **{name.replace("_", "."): value for name, value in config.items()}}
    placed = cluster.produce(topic, sent, partition=partition, config=settings)
    return {offset: record.value or b"" for (_, offset), record in zip(placed, sent, strict=True)}


def lines(seen: list[OracleRecord]) -> list[str]:
    """Return the names of the logs that records belong to, in order of appearance."""
    return list(dict.fromkeys((record.value or b"").split(b"-")[0].decode() for record in seen))


def bases(cluster: LocalCluster, broker: int, topic: str, partition: int = 0) -> list[int]:
    """Return the base offsets of a broker's segments; the last one is active."""
    return sorted(
        int(path.stem) for path in cluster.brokers[broker].partition_directory(topic, partition).glob("*.log")
    )


def log_bytes(cluster: LocalCluster, broker: int, topic: str, base: int) -> bytes:
    """Return a segment's log on a broker's disk."""
    return (cluster.brokers[broker].partition_directory(topic, 0) / f"{base:020d}.log").read_bytes()


def epochs(cluster: LocalCluster, broker: int, topic: str, partition: int = 0) -> tuple[tuple[int, int], ...]:
    """Return a broker's `leader-epoch-checkpoint`."""
    path = cluster.brokers[broker].partition_directory(topic, partition) / "leader-epoch-checkpoint"
    return tuple(parse_leader_epoch_checkpoint(path.read_bytes()))


def high_watermark(cluster: LocalCluster, broker: int, topic: str, partition: int = 0) -> int | None:
    """Return the high watermark in a broker's checkpoint; None without an entry."""
    found = read_high_watermarks(cluster.brokers[broker].log_dirs[0])
    return None if found.offsets is None else found.offsets.get((topic, partition))


def zookeeper_of(cluster: LocalCluster) -> ZooKeeper:
    """Return the cluster's ZooKeeper."""
    assert cluster.zookeeper is not None
    return cluster.zookeeper


def state(cluster: LocalCluster, topic: str, partition: int = 0) -> PartitionState:
    """Return leader, epoch and in-sync replicas."""
    found = zookeeper_of(cluster).partition_state(topic, partition)
    assert found is not None
    return found


_JOURNAL_MAGIC = 16  # "ZKLG", version, database id
_CREATE_SESSION, _CLOSE_SESSION = -10, -11


def open_sessions(zookeeper: ZooKeeper) -> dict[int, int]:
    """Return the timeout (ms) by id of ZooKeeper's open sessions, from its journal (`FileTxnLog`, `TxnHeader`).

    Each entry: checksum (8 bytes), length (4), session id (8), cxid (4), zxid (8), time (8), type (4), the type's
    content (of a new session: its timeout, 4), an end mark (1). Preallocated space is zeros.
    """
    found: dict[int, int] = {}
    journals = (zookeeper.directory / "data" / "version-2").glob("log.*")
    for journal in sorted(journals, key=lambda path: int(path.suffix[1:], 16)):
        with journal.open("rb") as file:
            file.seek(_JOURNAL_MAGIC)
            while (length := int.from_bytes(file.read(12)[8:])) > 0:
                entry = file.read(length + 1)
                session, kind = int.from_bytes(entry[:8]), int.from_bytes(entry[28:32], signed=True)
                if kind == _CREATE_SESSION:
                    found[session] = int.from_bytes(entry[32:36])
                elif kind == _CLOSE_SESSION:
                    found.pop(session, None)
    return found


def start_agents(archive: Archive, *brokers: int) -> dict[int, AgentProcess]:
    """Start an agent on each of these brokers, all at once; return them by broker."""
    agents = {broker: archive.agent(broker, waits=False) for broker in brokers}
    for agent in agents.values():
        agent.wait_ready()
    return agents


def die(cluster: LocalCluster, broker: int) -> None:
    """Kill a broker, and expire its session."""
    cluster.brokers[broker].kill()
    cluster.zookeeper_broker(broker).expire_session()


def suspend(cluster: LocalCluster, broker: int) -> None:
    """Pause a broker; in ZooKeeper mode its session expires at once, elsewhere after its timeout."""
    cluster.brokers[broker].pause()
    if cluster.zookeeper is not None:
        cluster.zookeeper_broker(broker).expire_session()


def wait_led(cluster: LocalCluster, topic: str, leader: int, partition: int = 0, *, by: int | None = None) -> None:
    """Wait until every broker that answers names this leader, or until the broker `by` does.

    A producer that learns the former leader's name continues to send to it for as long as that one names itself.
    """
    wait_for(
        lambda: cluster.leader(topic, partition, by=by) == leader,
        f"broker {leader} to lead {topic}-{partition}",
        PATIENCE,
        state=lambda: state(cluster, topic, partition),
    )


def wait_in_sync(cluster: LocalCluster, topic: str, *brokers: int, partition: int = 0) -> None:
    """Wait until exactly these replicas are in sync."""
    wait_for(
        lambda: cluster.in_sync(topic, partition) == set(brokers),
        f"{topic}-{partition} in sync on {brokers}",
        PATIENCE,
        state=lambda: state(cluster, topic, partition),
    )


def move_leader(client: KazooClient, topic: str, to: int, other: int, partition: int = 0) -> None:
    """Make an in-sync replica the preferred leader, and elect it.

    Writes the nodes that Kafka's own tools wrote before there were requests for it, the fastest way to move a leader.
    """
    one = {"topic": topic, "partition": partition}
    orders: tuple[tuple[str, dict[str, object]], ...] = (
        ("/admin/reassign_partitions", {"version": 1, "partitions": [{**one, "replicas": [to, other]}]}),
        ("/admin/preferred_replica_election", {"version": 1, "partitions": [one]}),
    )
    path = f"/brokers/topics/{topic}/partitions/{partition}/state"

    def moved() -> bool:
        for order, content in orders:
            client.create(order, json.dumps(content).encode())
            wait_for(lambda: client.exists(order) is None, f"the controller to obey {order}", PATIENCE)  # noqa: B023
        return bool(json.loads(client.get(path)[0])["leader"] == to)

    wait_for(moved, f"{topic}-{partition} to move to broker {to}", PATIENCE, state=lambda: client.get(path)[0])


def wait_leadership_shipped(archive: Archive, broker: int, partition: int = 0) -> int:
    """Wait until every segment that a leader has closed is committed, as in its own log; return their end.

    A commit of an earlier leader epoch can reach as far; then the present leader has nothing to ship yet.
    """
    topic = archive.topic
    active = bases(archive.cluster, broker, topic, partition)[-1]
    epoch = state(archive.cluster, topic, partition).leader_epoch
    line = EpochHistory(epochs(archive.cluster, broker, topic, partition))

    def done() -> bool:
        commit = archive.commit(partition)
        if commit is None or commit.next_offset < active:
            return False
        last = commit.next_offset - 1
        return commit.epoch >= epoch or commit.epochs.at(last) == line.at(last)

    wait_for(
        done,
        f"{topic}-{partition} shipped up to {active} in epoch {epoch}",
        PATIENCE,
        state=lambda: archive.commit(partition),
    )
    return active


def assert_shown(
    archive: Archive, acknowledged: Mapping[int, bytes], end: int, partition: int = 0
) -> list[OracleRecord]:
    """Check that readers see exactly what Kafka's consumer sees, at least up to `end`, and each record once."""
    seen = archive.read(partition)
    below = seen[-1].offset + 1 if seen else 0
    assert below >= end
    kafkas = archive.oracle(partition, below)
    differing = [(ours, theirs) for ours, theirs in zip(seen, kafkas, strict=False) if ours != theirs]
    facts = f"commit {archive.commit(partition)}, objects {sorted(archive.objects())}"
    assert differing == [], f"{len(differing)} differ, first ours, Kafka's: {differing[0]}; {facts}"
    assert len(seen) == len(kafkas), facts
    shown = {record.offset: record.value for record in seen}
    assert len(shown) == len(seen)
    assert {offset: shown.get(offset) for offset in acknowledged if offset < below} == {
        offset: value for offset, value in acknowledged.items() if offset < below
    }
    return seen


class Background:
    """A thread for the length of a `with`; its error is raised at the end."""

    def __init__(self) -> None:
        self._ending = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._running: Future[None] | None = None

    def run(self) -> None:
        """Run until `_ending` is set."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise the thread's error, if it has ended by one."""
        if self._running is not None and self._running.done():
            self._running.result()

    def __enter__(self) -> Self:
        self._running = self._pool.submit(self.run)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._pool.shutdown()
        if self._running is not None and error is None:
            self._running.result()


class CommitWatch(Background):
    """Reads a partition's commit again and again.

    Attributes:
        pairs: (epoch, next offset) at each change.
        first_lines: of `offset.wm`, at each change.
    """

    def __init__(self, archive: Archive, partition: int = 0) -> None:
        super().__init__()
        self.pairs: list[tuple[int, int]] = []
        self.first_lines: list[int] = []
        self._archive = archive
        self._partition = partition
        _ = archive.store  # opened by this thread

    def run(self) -> None:
        while not self._ending.wait(0.005):
            commit = self._archive.commit(self._partition)
            if commit is not None:
                _note(self.pairs, (commit.epoch, commit.next_offset))
                _note(self.first_lines, commit.highest_base)


def _note(seen: list[T], value: T) -> None:
    if not seen or seen[-1] != value:
        seen.append(value)


class Load(Background):
    """Produces to every partition of a topic without a pause, about four hundred records a second.

    Attributes:
        acknowledged: value by offset, by partition; nothing is sent twice.

    Args:
        cluster: that has the topic.
        topic: a topic.
        partitions: number of its partitions.
        every: seconds between twenty records.
        timeout: seconds until a record that no leader acknowledges is an error.
    """

    def __init__(
        self, cluster: LocalCluster, topic: str, partitions: int, every: float = 0.05, timeout: float = PATIENCE
    ) -> None:
        super().__init__()
        self._every = every
        self.acknowledged: dict[int, dict[int, bytes]] = defaultdict(dict)
        self._errors: list[KafkaError] = []
        self._partitions = partitions
        self._topic = topic
        self._producer = cluster.producer(
            {"enable.idempotence": True, "batch.size": 4000, "message.timeout.ms": int(timeout * 1000)}
        )

    def run(self) -> None:
        number = 0
        while not self._ending.wait(self._every):
            for partition in range(self._partitions):
                for _ in range(20 // self._partitions):
                    number += 1
                    value = b"load-%07d-" % number + Random(number).randbytes(200)
                    self._producer.produce(
                        self._topic, value, partition=partition, on_delivery=partial(self._delivered, value)
                    )
            self._producer.poll(0)
        assert self._producer.flush(PATIENCE) == 0
        assert self._errors == [], ", ".join(sorted({str(error) for error in self._errors}))

    def _delivered(self, value: bytes, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._errors.append(error)
        else:
            self.acknowledged[message.partition() or 0][message.offset() or 0] = value


def logged(path: Path, text: str) -> Callable[[], bool]:
    """Return a predicate: whether a log file contains a text."""
    return lambda: text in path.read_text(errors="replace")
