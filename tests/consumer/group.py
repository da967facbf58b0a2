"""A group of consumers whose application stores results together with their offsets, and what they must have stored.

The application is the one that the field calls exactly-once by storage: `on_assign` continues at the stored offsets,
and only the partition's present owner can store.
"""

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, KafkaError, Message, Producer, TopicPartition

from dev.local.kafka.cluster import LocalCluster
from dev.local.waiting import wait_for
from ts_consumer import TieredConsumer

SECONDS = 120.0
_LOT = 20  # records that the application handles at once
_WORK_SECONDS = 0.01  # that it needs for a lot, so that faults find partitions that are not read to their ends
# A broker or the store is away, which a busy machine makes longer; and the topic, before it is created again.
_EXPECTED = {
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}
Place = tuple[str, int]  # a topic's life and the number of a partition


@dataclass
class Results:
    """What the application stored, with the next offset of each partition.

    Attributes:
        life: names the present topic, as its id would: a topic that was created again has other offsets.
        rows: offset and value of each stored record, in the order of storing.
        problems: whatever must not happen.
    """

    life: str = "first"
    rows: dict[Place, list[tuple[int, bytes]]] = field(default_factory=lambda: defaultdict(list))
    problems: list[str] = field(default_factory=list)
    _owners: dict[Place, object] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def begin(self, owner: object, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return partitions at their next offsets; from now on only this owner's records of them are stored."""
        with self._lock:
            for each in partitions:
                self._owners[self.life, each.partition] = owner
            return [TopicPartition(each.topic, each.partition, self._next(each.partition)) for each in partitions]

    def end(self, owner: object, partitions: Sequence[TopicPartition]) -> None:
        """Store nothing of this owner any more."""
        with self._lock:
            for each in partitions:
                if self._owners.get((self.life, each.partition)) is owner:
                    del self._owners[self.life, each.partition]

    def store(self, owner: object, messages: Iterable[Message]) -> None:
        """Store records; those of another owner's partition are refused, as by a database's transaction."""
        with self._lock:
            for message in messages:
                number, offset, value = message.partition(), message.offset(), message.value()
                assert number is not None
                assert offset is not None
                if self._owners.get((self.life, number)) is not owner:
                    continue
                rows = self.rows[self.life, number]
                if rows and offset <= rows[-1][0]:
                    self.problems.append(f"{number}: offset {offset} after {rows[-1][0]}")
                rows.append((offset, value or b""))

    def count(self) -> int:
        """Return how many records are stored."""
        with self._lock:
            return sum(map(len, self.rows.values()))

    def owners(self) -> dict[int, object]:
        """Return the owner of each partition."""
        with self._lock:
            return {number: owner for (life, number), owner in self._owners.items() if life == self.life}

    def begin_life(self, name: str) -> None:
        """The topic was created again."""
        with self._lock:
            self.life = name

    def _next(self, partition: int) -> int:
        rows = self.rows[self.life, partition]
        return rows[-1][0] + 1 if rows else OFFSET_BEGINNING


class Member:
    """One consumer of the group on a thread of its own.

    Attributes:
        consumer: of this package.
        name: of the thread.

    Args:
        config: of the consumer.
        topic: what it subscribes to.
        results: of the application.
    """

    def __init__(self, name: str, config: Mapping[str, Any], topic: str, results: Results) -> None:
        self.consumer = TieredConsumer(config)
        self.name = name
        self._is_incremental = "protocol" in str(config) or "cooperative" in str(config)
        self._topic = topic
        self._results = results
        self._holds = threading.Event()
        self._is_held = threading.Event()
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def assigned(self) -> set[int]:
        """The partitions that this member owns."""
        return {number for number, owner in self._results.owners().items() if owner is self}

    def hold(self) -> None:
        """Let the application pause its partitions while it polls; return when it does."""
        self._is_held.clear()
        self._holds.set()
        wait_for(self._is_held.is_set, f"{self.name} to pause", SECONDS)

    def resume(self) -> None:
        """Let it handle records again."""
        self._holds.clear()

    def close(self) -> None:
        """Leave the group."""
        self._stops.set()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive(), f"{self.name} hangs"

    def _run(self) -> None:
        try:
            self.consumer.subscribe([self._topic], self._on_assign, self._on_revoke)
            while not self._stops.is_set():
                self._step()
        except BaseException as error:  # noqa: BLE001  (the test's thread reports it)
            self._results.problems.append(f"{self.name}: {type(error).__name__}: {error}")
        finally:
            self.consumer.close()

    def _step(self) -> None:
        assignment = self.consumer.assignment()
        if self._holds.is_set():
            self.consumer.pause(assignment)
        elif self._is_held.is_set():
            self.consumer.resume(assignment)
            self._is_held.clear()
        messages = self.consumer.consume(_LOT, 0.2)
        records = [each for each in messages if each.error() is None]
        for each in messages:
            error = each.error()
            if error is not None and error.code() not in _EXPECTED:
                self._results.problems.append(f"{self.name}: {error}")
        self._results.store(self, records)
        if self._holds.is_set() and not records:
            self._is_held.set()
        self._stops.wait(_WORK_SECONDS if records else 0)

    def _on_assign(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        placed = self._results.begin(self, partitions)
        if self._is_incremental:
            consumer.incremental_assign(placed)
        else:
            consumer.assign(placed)

    def _on_revoke(self, _: Any, partitions: list[TopicPartition]) -> None:
        self._results.end(self, partitions)


class Writer:
    """Produces records to all partitions on a thread, until it is stopped.

    Attributes:
        acknowledged: offset and value of each record that brokers acknowledged, by partition.

    Args:
        cluster: the brokers.
        topic: what it produces to.
        partitions: their number.
        size: bytes of a value.
        seconds: between two rounds, each with a record of each partition.
    """

    def __init__(self, cluster: LocalCluster, topic: str, partitions: int, size: int, seconds: float) -> None:
        self.acknowledged: dict[int, list[tuple[int, bytes]]] = {number: [] for number in range(partitions)}
        self.refused: list[str] = []
        self._producer: Producer = cluster.producer({"enable.idempotence": True, "message.timeout.ms": 90_000})
        self._topic = topic
        self._size = size
        self._seconds = seconds
        self._round = 0
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)

    def write(self, rounds: int) -> None:
        """Produce some rounds now; only before `start`."""
        for _ in range(rounds):
            self._write_round()
        assert self._producer.flush(SECONDS) == 0

    def start(self) -> None:
        """Produce until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for all acknowledgements."""
        self._stops.set()
        if self._thread.is_alive():
            self._thread.join(SECONDS)
        assert self._producer.flush(SECONDS) == 0
        assert not self.refused, self.refused[:3]

    def _run(self) -> None:
        while not self._stops.wait(self._seconds):
            self._write_round()

    def _write_round(self) -> None:
        for number in self.acknowledged:
            value = f"{number}-{self._round}-".encode().ljust(self._size, b"x")
            while True:
                try:
                    self._producer.produce(self._topic, value, partition=number, on_delivery=self._on_delivery)
                    break
                except BufferError:
                    self._producer.poll(0.1)
        self._round += 1
        self._producer.poll(0)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        number, offset = message.partition(), message.offset()
        if error is not None or number is None or offset is None:
            self.refused.append(str(error))
            return
        self.acknowledged[number].append((offset, message.value() or b""))
