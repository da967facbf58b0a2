"""Writes the high watermarks of the partitions that this broker leads, and their positions.

`ts_common.archive.high_watermarks` and `ts_common.archive.positions` have the two objects. One attempt every five
minutes, on its own thread. A failure is logged and counted, and the next attempt replaces it. If the broker leads
nothing in a store, nothing is written there. High watermarks that the agent reads again are a proof for deleted topics
(protocol rule 14). Positions that it reads at its start defer other reads (protocol rule 8).
"""

import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping

import structlog

from ts_common.archive.catalog import StoredLogStart
from ts_common.archive.commit import Commit
from ts_common.archive.high_watermarks import End, Ends, read_ends
from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.positions import Idle, Positions, Row
from ts_common.errors import AccessDenied, CorruptData, NewerFormat, TieredStorageError
from ts_common.format_version import FORMATS
from ts_common.installed import version
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_uploader.health.store_health import failure_reason
from ts_uploader.messages.tasks import Position
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
        keeps_positions: whether positions are read and written: stores without conditional writes have none.
        every_seconds: longest time between two attempts.
    """

    def __init__(
        self,
        keys: ClusterKeys,
        broker: int,
        backlog: Callable[[], Mapping[TopicPartition, Backlog]],
        store_of: Callable[[str], ObjectStore],
        metrics: Metrics,
        keeps_positions: Callable[[], bool] = lambda: True,
        every_seconds: float = _EVERY_SECONDS,
    ) -> None:
        self._keys = keys
        self._broker = broker
        self._backlog = backlog
        self._store_of = store_of
        self._metrics = metrics
        self._keeps_positions = keeps_positions
        self._every = every_seconds
        self._former: dict[TopicPartition, Row] = {}  # of the process before
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
            backlog = self._backlog()
        except TimeoutError:
            return  # `/healthz` reports a main thread that does not answer
        now = int(time.time() * _MILLISECONDS)
        rows = self._rows(backlog) if self._keeps_positions() else {}
        for store, partitions in self._by_place(ends_in(backlog)):
            body = Ends(self._broker, now, partitions, version(), FORMATS).encode()
            led = {partition: rows[partition] for partition in partitions if partition in rows}
            try:
                store.put(self._keys.ends_of(self._broker), body)
                if self._keeps_positions():
                    Positions(self._broker, now, led).put(store, self._keys)
            except TieredStorageError as error:
                self._metrics.errors.labels(WRITE_ENDS, failure_reason(error)).inc()
                log.warning("ends_not_written", store=store.location, error=str(error))

    def read_idle(self, stores: Iterable[ObjectStore]) -> dict[TopicPartition, Idle]:
        """Return for which partitions nothing was to be done, by the positions in the stores; call it before `run`.

        A store that fails, and a damaged object, only cost time: the agent then reads each position.
        """
        idle: dict[TopicPartition, Idle] = {}
        for store in stores if self._keeps_positions() else ():
            try:
                found = Positions.load(store, self._keys, self._broker)
            except TieredStorageError as error:
                log.warning("positions_not_read", store=store.location, error=str(error))
                continue
            if found is not None:
                self._former |= found.partitions
                idle |= found.idle()
        return idle

    def _rows(self, backlog: Mapping[TopicPartition, Backlog]) -> dict[TopicPartition, Row]:
        """Return the rows of the partitions whose position is known, or is not read yet because of a row."""
        rows = {
            partition: _row(waiting.position, waiting.position.commit, waiting.position.start)
            for partition, waiting in backlog.items()
            if waiting.position is not None
            and isinstance(waiting.position.commit, Commit)
            and waiting.position.start is not None
        }
        kept = {partition for partition, waiting in backlog.items() if waiting.is_deferred}
        self._former = {partition: row for partition, row in self._former.items() if partition in kept}
        return self._former | rows

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


def _row(position: Position, commit: Commit, start: StoredLogStart) -> Row:
    text, log_start = commit.encode().decode(), start.content.encode().decode()
    return Row(text, position.etag or "", log_start, start.etag, bool(position.gaps), 0)


def ends_in(backlog: Mapping[TopicPartition, Backlog]) -> dict[TopicPartition, End]:
    """Return the high watermarks that count, of the led partitions."""
    return {
        partition: End(waiting.high_watermark, waiting.counted_at // _NANOSECONDS_EACH)
        for partition, waiting in backlog.items()
        if waiting.high_watermark is not None and waiting.counted_at is not None
    }
