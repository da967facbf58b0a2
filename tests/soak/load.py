"""Producers that continue during all faults, and a ledger of what the brokers acknowledged.

A record's value begins with its id, twelve digits; no two records have the same.
"""

import itertools
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from dev.local.kafka.cluster import LocalCluster
from tests.soak.stage import COMPACTED, UNCLEAN
from ts_common.model import TopicPartition

_EVERY_SECONDS = 0.1
_RECORDS = 12  # of each partition, each time
_PADDING = 250
_KEYS = 40  # of the compacted topic
_PATIENT = {
    "message.timeout.ms": 20_000,
    "request.timeout.ms": 4_000,
    "socket.timeout.ms": 5_000,
    "topic.metadata.refresh.interval.ms": 1_000,
    "retry.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    # A partition without a leader must not fill the memory.
    "queue.buffering.max.messages": 5_000,
}


def id_of(value: bytes | None) -> int:
    """Return the id of the record with this value."""
    assert value is not None
    return int(value[:12])


@dataclass
class Ledger:
    """The acknowledged records; delivery callbacks write it, and any thread may copy it.

    Attributes:
        acknowledged: ids by offset, of each partition.
        unplaced: ids that the broker acknowledged as duplicates, without an offset.
        failed: number of records without an acknowledgement; they may exist or not.
        fatal: number of producers that ended with a permanent error.
    """

    acknowledged: dict[TopicPartition, dict[int, int]] = field(default_factory=dict)
    unplaced: dict[TopicPartition, set[int]] = field(default_factory=dict)
    failed: int = 0
    fatal: int = 0
    guard: threading.Lock = field(default_factory=threading.Lock)

    def below(self, partition: TopicPartition, end: int) -> dict[int, int]:
        """Return acknowledged ids by offset, below `end`."""
        with self.guard:
            return {offset: id_ for offset, id_ in self.acknowledged.get(partition, {}).items() if offset < end}

    def count(self) -> int:
        """Return the number of records acknowledged with an offset."""
        with self.guard:
            return sum(map(len, self.acknowledged.values()))


class Load:
    """Produces to all partitions until `stop`, in the thread that calls `run`."""

    def __init__(self, cluster: LocalCluster, partitions: Iterable[TopicPartition], seed: int) -> None:
        self.ledger = Ledger()
        self._cluster = cluster
        self._partitions = tuple(partitions)
        self._random = Random(seed)
        self._ids = itertools.count(1)
        self._stop = threading.Event()
        self._ended: set[bool] = set()  # kinds of producers with a fatal error

    def stop(self) -> None:
        """End `run` soon."""
        self._stop.set()

    def run(self) -> None:
        """Produce; at the end wait until every record is acknowledged or failed."""
        # An idempotent producer fails permanently if an election removed its records.
        producers = {idempotent: self._producer(idempotent) for idempotent in (True, False)}
        while not self._stop.wait(_EVERY_SECONDS):
            for partition in self._partitions:
                producer = producers[partition.topic != UNCLEAN]
                for _ in range(_RECORDS):
                    if not self._produce(producer, partition):
                        break
            for idempotent, producer in producers.items():
                try:
                    producer.poll(0)
                except KafkaException as error:  # sometimes it raises what the callback has already reported
                    if not error.args[0].fatal():
                        raise
                    self._ended.add(idempotent)
                if idempotent in self._ended:
                    producer.purge()
                    producer.flush(1)
                    producers[idempotent] = self._producer(idempotent)
                    self._ended.discard(idempotent)
                    self.ledger.fatal += 1
        for producer in producers.values():
            with suppress(KafkaException):  # a fatal error: the rest is dropped
                producer.flush(25)

    def _producer(self, idempotent: bool) -> Producer:
        def failed(error: KafkaError) -> None:
            if error.fatal():
                self._ended.add(idempotent)

        return self._cluster.producer({**_PATIENT, "enable.idempotence": idempotent, "error_cb": failed})

    def _produce(self, producer: Producer, partition: TopicPartition) -> bool:
        """Return whether there was room for one record."""
        id_ = next(self._ids)
        key = b"k%d" % self._random.randrange(_KEYS) if partition.topic == COMPACTED else None
        value = b"%012d" % id_ + self._random.randbytes(_PADDING)
        try:
            producer.produce(
                partition.topic,
                value,
                key,
                partition=partition.partition,
                on_delivery=partial(self._delivered, partition, id_),
            )
        except (BufferError, KafkaException):  # a broker that has just started has no topic yet
            return False
        return True

    def _delivered(self, partition: TopicPartition, id_: int, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        with self.ledger.guard:
            if error is not None:
                self.ledger.failed += 1
            elif offset is None or offset < 0:
                self.ledger.unplaced.setdefault(partition, set()).add(id_)
            else:
                self.ledger.acknowledged.setdefault(partition, {})[offset] = id_
