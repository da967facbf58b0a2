"""Writes metadata snapshots: every five minutes one agent of the cluster reads the brokers. `write` is one round.

All agents try. A round begins at a random second of the first minute. The agent whose round is first reads the brokers
and writes; the others find the groups' object of these five minutes, and only send a HEAD. The object of the groups is
written last, so it means that the round is done: after a failure another agent repeats all of it.

The cluster's snapshot has the name of its hour. If the hour has one, and the newest differs from what was read, a
further one has the name of its minute. So a change is seen within five minutes, and costs the cluster one reading of
its metadata in that time. `ClusterSnapshot.is_like` decides what is a change.

Each store has a thread for the round, so that one that fails or is slow delays no other; the brokers are read once for
all of them. A round has an end: what is not written by then has failed.

Not a part of shipping: threads of its own, whose failures are counted, logged and shown, and repeated five minutes
later.
"""

import queue
import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

import structlog

from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.snapshots import FIVE_MINUTES, HOUR, MINUTE, ClusterSnapshot, GroupsSnapshot
from ts_common.config.cluster_config import ClusterConfig
from ts_common.errors import (
    ConfigurationError,
    CorruptData,
    NewerFormat,
    ObjectNotFound,
    PreconditionFailed,
    TieredStorageError,
    TransientError,
)
from ts_common.store.contract import ObjectStore
from ts_uploader.environment import Environment
from ts_uploader.health.store_health import failure_reason
from ts_uploader.leadership.broker_settings import security_of_broker
from ts_uploader.metrics.counters import WRITE_SNAPSHOT, Metrics
from ts_uploader.snapshots.cluster_reader import ClusterReader

log = structlog.get_logger()

OFF: Final = (
    "no metadata snapshots are written: how to connect to the broker is unknown, or not supported; give "
    "ts.segment.uploader.kafka.client.*, or set ts.segment.uploader.metadata.snapshots=false"
)
_SPREAD_SECONDS: Final = 60.0
_FIRST_SECONDS: Final = (60.0, 300.0)
_FAILING: Final = 3  # rounds in a row: a broker that restarts is ordinary
_ROUND_SECONDS: Final = 240.0  # the next one begins after five minutes
_MILLISECONDS: Final = 1000


Content = tuple[ClusterSnapshot, GroupsSnapshot]


class Reader(Protocol):
    """What reads the cluster: `ts_uploader.snapshots.cluster_reader.ClusterReader`."""

    def read(self, time: int, /) -> Content:
        """Return the snapshots of a time, in milliseconds since the epoch."""

    def close(self) -> None:
        """End a reading soon, from any thread."""


class RoundTimeout(TransientError):
    """A round, or the one before it, has not ended in time in a store."""


class SnapshotWriter:
    """Writes snapshots until `close`.

    Attributes:
        failing: why the last rounds failed, for operators; None while they succeed, and during the first failures.

    Args:
        stores: returns the stores of the cluster; each has all snapshots.
        metrics: counts failures, and has the time of the last success.
        note: is called with the operation, no partition, and the reason of a failure.
        clock: seconds since the epoch.
        seconds: for a round.
    """

    def __init__(
        self,
        keys: ClusterKeys,
        reader: Reader,
        stores: Callable[[], Sequence[ObjectStore]],
        metrics: Metrics,
        note: Callable[[str, str, str], None],
        clock: Callable[[], float] = time.time,
        seconds: float = _ROUND_SECONDS,
    ) -> None:
        self.failing: str | None = None
        self._keys = keys
        self._reader = reader
        self._stores = stores
        self._metrics = metrics
        self._note = note
        self._clock = clock
        self._seconds = seconds
        self._closed = threading.Event()
        self._rounds = 0
        self._busy: set[str] = set()  # locations of stores with a thread
        # Of each store's thread: its round, its location, its error. None from `close`.
        self._ended: queue.SimpleQueue[tuple[int, str, Exception | None] | None] = queue.SimpleQueue()
        self._failures = 0  # in a row
        self._off: Sequence[str] = ()  # why this agent cannot connect, as last logged

    def run(self) -> None:
        """Write snapshots until `close`; the first time is random, since a fleet may have started at once."""
        wait = random.uniform(*_FIRST_SECONDS)  # noqa: S311  (spreads requests)
        while not self._closed.wait(wait):
            self.write()
            left = FIVE_MINUTES / _MILLISECONDS - self._clock() % (FIVE_MINUTES / _MILLISECONDS)
            wait = left + random.uniform(0, _SPREAD_SECONDS)  # noqa: S311

    def close(self) -> None:
        """Make `run` return soon: the round ends, and threads of stores that do not answer end with the process."""
        self._closed.set()
        self._reader.close()
        self._ended.put(None)

    def write(self) -> None:
        """Run one round; no error is raised."""
        now = int(self._clock() * _MILLISECONDS)
        failed = self._round(now)
        if self._closed.is_set():
            return
        off = next((error for error in failed if isinstance(error, ConfigurationError)), None)
        if off is not None:  # an operator's choice, or what this release lacks: no failure
            if off.problems != self._off:
                self._off = off.problems
                log.warning("snapshots_off", message=OFF, problems=list(off.problems))
            return
        reasons = list(dict.fromkeys(map(_reason, failed)))
        for error in failed:
            self._metrics.errors.labels(WRITE_SNAPSHOT, failure_reason(error)).inc()
        for reason in reasons:
            self._note(WRITE_SNAPSHOT, "", reason)
            log.warning("snapshot_not_written", message="repeated in five minutes", error=reason)
        if failed:
            self._failures += 1
            if self._failures >= _FAILING:
                self.failing = "; ".join(reasons)
        else:
            self._failures, self.failing, self._off = 0, None, ()
            self._metrics.snapshot_time.set(now / _MILLISECONDS)

    def _round(self, now: int) -> list[Exception]:
        """Write a round into all stores, and return what failed."""
        self._rounds += 1
        deadline = time.monotonic() + self._seconds
        content, waiting = _Once(partial(self._reader.read, now)), set[str]()
        failed: list[Exception] = []
        try:
            stores = self._stores()
        except Exception as error:  # noqa: BLE001  (as in `_write`)
            return [error]
        for store in stores:
            location = store.location
            if location in self._busy:
                failed.append(RoundTimeout(f"{location}: the round before has not ended"))
                continue
            self._busy.add(location)
            waiting.add(location)
            arguments = (self._rounds, store, content, now)
            threading.Thread(target=self._write, args=arguments, name=f"snapshots-{len(waiting)}", daemon=True).start()
        while waiting:
            try:
                ended = self._ended.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return failed + [
                    RoundTimeout(f"{each}: not written in {self._seconds:g} s") for each in sorted(waiting)
                ]
            if ended is None:
                break
            number, location, its_error = ended
            if number == self._rounds:
                waiting.discard(location)
                failed += [] if its_error is None else [its_error]
        return failed

    def _write(self, number: int, store: ObjectStore, content: "_Once", now: int) -> None:
        """Write a round into one store; no error is raised."""
        failed: Exception | None = None
        try:
            five_minutes = now // FIVE_MINUTES * FIVE_MINUTES
            if not self._is_done(store, five_minutes):
                cluster, groups = content.get()
                self._put_cluster(store, cluster)
                if self._put(store, groups, five_minutes):
                    counts = {"topics": len(cluster.topics), "groups": len(groups.groups)}
                    log.info("snapshot_written", store=store.location, **counts)
        except Exception as error:  # noqa: BLE001  (whatever a broker sends, the agent ships)
            failed = error
        self._busy.discard(store.location)
        self._ended.put((number, store.location, failed))

    def _is_done(self, store: ObjectStore, five_minutes: int) -> bool:
        try:
            store.head(GroupsSnapshot.key(self._keys, five_minutes))
        except ObjectNotFound:
            return False
        return True

    def _put_cluster(self, store: ObjectStore, cluster: ClusterSnapshot) -> None:
        hour, minute = (cluster.time // step * step for step in (HOUR, MINUTE))
        try:
            newest = ClusterSnapshot.newest(store, self._keys, cluster.time)
        except (CorruptData, NewerFormat) as error:
            log.warning("snapshot_unusable", message="the next one is written all the same", error=str(error))
            if not self._put(store, cluster, hour):  # perhaps it is the unusable one
                self._put(store, cluster, minute)
            return
        if newest is None or newest.time < hour:
            self._put(store, cluster, hour)
        elif not cluster.is_like(newest):
            self._put(store, cluster, minute)

    def _put(self, store: ObjectStore, snapshot: ClusterSnapshot | GroupsSnapshot, at: int) -> bool:
        """Write a snapshot; return whether it was this agent's that was written."""
        try:
            snapshot.put(store, self._keys, at)
        except PreconditionFailed:
            return False  # another agent's round is as good
        return True


class _Once:
    """What the threads of a round read once, with its error; the first one that needs it reads it."""

    def __init__(self, read: Callable[[], Content]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._found: Content | Exception | None = None

    def get(self) -> Content:
        """Return the content, or raise what the reading raised."""
        with self._lock:
            if self._found is None:
                try:
                    self._found = self._read()
                except Exception as error:  # noqa: BLE001  (each thread reports it)
                    self._found = error
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, TieredStorageError) else f"{type(error).__name__}: {error}"


def open_snapshots(
    environment: Environment,
    config: ClusterConfig,
    keys: ClusterKeys,
    stores: Callable[[], Sequence[ObjectStore]],
    metrics: Metrics,
    note: Callable[[str, str, str], None],
) -> SnapshotWriter | None:
    """Return the writer of an agent; None if snapshots are switched off. It sends no request."""
    if not config.metadata_snapshots:
        return None
    # Each time: certificates and keys can be new, and a name service can need seconds.
    reader = ClusterReader(lambda: security_of_broker(environment, config), environment.broker_id)
    return SnapshotWriter(keys, reader, stores, metrics, note)
