"""Writes the high watermarks of the partitions that this broker leads; see `ts_common.archive.high_watermarks`.

One attempt every five minutes, on its own thread. A failure is logged and counted, and the next attempt replaces it. If
the broker leads nothing in a store, nothing is written there. What the agent reads again is a proof for deleted topics
(protocol rule 14).
"""

import random
import threading
import time
from collections.abc import Callable, Mapping

import structlog

from ts_common.archive.high_watermarks import End, Ends, read_ends
from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import AccessDenied, CorruptData, NewerFormat, TieredStorageError
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_uploader.health.store_health import failure_reason
from ts_uploader.metrics.counters import WRITE_ENDS, Metrics
from ts_uploader.tracking.backlog import Backlog

log = structlog.get_logger()

_EVERY_SECONDS = 300.0
_NANOSECONDS_EACH = 1_000_000
_MILLISECONDS = 1000


class HighWatermarksWriter:
    """Writes the ends until `close`.

    Args:
        backlog: returns the backlog of every led partition; raises TimeoutError if the main thread does not answer.
        store_of: returns the store of a topic.
        metrics: counts failures.
        every_seconds: longest time between two attempts.
    """

    def __init__(
        self,
        keys: ClusterKeys,
        broker: int,
        backlog: Callable[[], Mapping[TopicPartition, Backlog]],
        store_of: Callable[[str], ObjectStore],
        metrics: Metrics,
        every_seconds: float = _EVERY_SECONDS,
    ) -> None:
        self._keys = keys
        self._broker = broker
        self._backlog = backlog
        self._store_of = store_of
        self._metrics = metrics
        self._every = every_seconds
        self._closed = threading.Event()

    def run(self) -> None:
        """Write until `close`; the first time is random, since a fleet may have started at once."""
        wait = random.uniform(self._every / 10, self._every)  # noqa: S311  (spreads requests)
        while not self._closed.wait(wait):
            self.write()
            wait = self._every

    def write(self) -> None:
        """Write the current ends once; failures of stores or of the main thread are not raised."""
        try:
            ends = ends_in(self._backlog())
        except TimeoutError:
            return  # `/healthz` reports a main thread that does not answer
        now = int(time.time() * _MILLISECONDS)
        for store, partitions in self._by_place(ends):
            body = Ends(self._broker, now, partitions).encode()
            try:
                store.put(self._keys.ends_of(self._broker), body)
            except TieredStorageError as error:
                self._metrics.errors.labels(WRITE_ENDS, failure_reason(error)).inc()
                log.warning("ends_not_written", store=store.location, error=str(error))

    def written(self, partition: TopicPartition) -> End | None:
        """Return the end of a partition in the object, perhaps by an earlier process; None without one.

        Raises:
            StoreUnavailable, BucketMissing: the store's.
        """
        try:
            ends = read_ends(self._store_of(partition.topic), self._keys, self._broker)
        except (AccessDenied, CorruptData, NewerFormat) as error:
            log.warning("ends_not_read", message="they prove nothing", partition=str(partition), error=str(error))
            return None
        return None if ends is None else ends.partitions.get(partition)

    def close(self) -> None:
        """Make `run` return after its current write."""
        self._closed.set()

    def _by_place(self, ends: Mapping[TopicPartition, End]) -> list[tuple[ObjectStore, dict[TopicPartition, End]]]:
        """Return the partitions by location: two store configurations with one location share one object."""
        places: dict[str, tuple[ObjectStore, dict[TopicPartition, End]]] = {}
        for partition, end in ends.items():
            try:
                store = self._store_of(partition.topic)
            except TieredStorageError:
                continue  # a topic without a location ships nothing; that is reported elsewhere
            places.setdefault(store.location, (store, {}))[1][partition] = end
        return list(places.values())


def ends_in(backlog: Mapping[TopicPartition, Backlog]) -> dict[TopicPartition, End]:
    """Return the high watermarks that count, of the led partitions."""
    return {
        partition: End(waiting.high_watermark, waiting.counted_at // _NANOSECONDS_EACH)
        for partition, waiting in backlog.items()
        if waiting.high_watermark is not None and waiting.counted_at is not None
    }
