"""Writes metadata snapshots: every five minutes one agent of the cluster reads the brokers. `write` is one round.

All agents try. A round begins at a random second of the first minute. The agent whose round is first reads the brokers
and writes; the others find the groups' object of these five minutes, and only send a HEAD. The object of the groups is
written last, so it means that the round is done: after a failure another agent repeats all of it.

The cluster's snapshot has the name of its hour. If the hour has one, and the newest differs from what was read, a
further one has the name of its minute. So a change is seen within five minutes, and costs the cluster one reading of
its metadata in that time. `ClusterSnapshot.is_like` decides what is a change.

Not a part of shipping: a thread of its own, whose failures are counted, logged and shown, and repeated five minutes
later.
"""

import random
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import structlog

from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.snapshots import FIVE_MINUTES, HOUR, MINUTE, ClusterSnapshot, GroupsSnapshot
from ts_common.broker_connection.security import Security, security_of
from ts_common.config.cluster_config import KAFKA_CLIENT, ClusterConfig
from ts_common.errors import (
    ConfigurationError,
    CorruptData,
    NewerFormat,
    ObjectNotFound,
    PreconditionFailed,
    TieredStorageError,
)
from ts_common.store.contract import ObjectStore
from ts_uploader.environment import Environment
from ts_uploader.health.store_health import failure_reason
from ts_uploader.leadership.kraft.listener import client_settings
from ts_uploader.metrics.counters import WRITE_SNAPSHOT, Metrics
from ts_uploader.snapshots.cluster_reader import read_cluster

log = structlog.get_logger()

OFF: Final = (
    "no metadata snapshots are written: how to connect to the broker is unknown, or not supported; give "
    "ts.segment.uploader.kafka.client.*, or set ts.segment.uploader.metadata.snapshots=false"
)
_SPREAD_SECONDS: Final = 60.0
_FIRST_SECONDS: Final = (60.0, 300.0)
_FAILING: Final = 3  # rounds in a row: a broker that restarts is ordinary
_MILLISECONDS: Final = 1000


Read = Callable[[int], tuple[ClusterSnapshot, GroupsSnapshot]]


class SnapshotWriter:
    """Writes snapshots until `close`.

    Attributes:
        failing: why the last rounds failed, for operators; None while they succeed, and during the first failures.

    Args:
        read: reads the cluster; its argument is the time of the snapshots, milliseconds since the epoch.
        stores: returns the stores of the cluster; each has all snapshots.
        metrics: counts failures, and has the time of the last success.
        note: is called with the operation, no partition, and the reason of a failure.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        keys: ClusterKeys,
        read: Read,
        stores: Callable[[], Sequence[ObjectStore]],
        metrics: Metrics,
        note: Callable[[str, str, str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.failing: str | None = None
        self._keys = keys
        self._read = read
        self._stores = stores
        self._metrics = metrics
        self._note = note
        self._clock = clock
        self._closed = threading.Event()
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
        """Make `run` return after its current round."""
        self._closed.set()

    def write(self) -> None:
        """Run one round; no error is raised."""
        now = int(self._clock() * _MILLISECONDS)
        try:
            self._write(now)
        except ConfigurationError as error:  # an operator's choice, or what this release lacks: no failure
            if error.problems != self._off:
                self._off = error.problems
                log.warning("snapshots_off", message=OFF, problems=list(error.problems))
        except Exception as error:  # noqa: BLE001  (whatever a broker sends, the agent ships)
            self._failures += 1
            self._metrics.errors.labels(WRITE_SNAPSHOT, failure_reason(error)).inc()
            reason = str(error) if isinstance(error, TieredStorageError) else f"{type(error).__name__}: {error}"
            self._note(WRITE_SNAPSHOT, "", reason)
            log.warning("snapshot_not_written", message="repeated in five minutes", error=reason)
            if self._failures >= _FAILING:
                self.failing = reason
        else:
            self._failures, self.failing, self._off = 0, None, ()
            self._metrics.snapshot_time.set(now / _MILLISECONDS)

    def _write(self, now: int) -> None:
        five_minutes = now // FIVE_MINUTES * FIVE_MINUTES
        stores = [store for store in self._stores() if not self._is_done(store, five_minutes)]
        if not stores:
            return
        cluster, groups = self._read(now)
        for store in stores:
            self._put_cluster(store, cluster)
            if self._put(store, groups, five_minutes):
                log.info(
                    "snapshot_written", store=store.location, topics=len(cluster.topics), groups=len(groups.groups)
                )

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


def read_key_store(path: Path, password: str) -> bytes:
    """Return key and certificates of a PKCS#12 file, as PEM.

    Raises:
        StoreError: the file cannot be read, or its password is another one.
    """
    # Here, because cryptography needs 10 MB of memory.
    from ts_uploader.leadership.zookeeper.key_stores import own_certificate_pem  # noqa: PLC0415
    from ts_uploader.leadership.zookeeper.security import StoreType  # noqa: PLC0415

    return own_certificate_pem(path, StoreType.PKCS12, password)


def security_for_snapshots(environment: Environment, config: ClusterConfig) -> Security:
    """Return how to connect to this broker.

    Raises:
        ConfigurationError: the broker's file and the operator's settings do not specify that, or a setting is not
            supported.
    """
    settings = client_settings(environment.broker_properties, config.kafka_client, socket.getfqdn())
    return security_of(settings, KAFKA_CLIENT, read_key_store)


def open_snapshots(
    environment: Environment,
    config: ClusterConfig,
    keys: ClusterKeys,
    stores: Callable[[], Sequence[ObjectStore]],
    metrics: Metrics,
    note: Callable[[str, str, str], None],
) -> SnapshotWriter | None:
    """Return the writer of an agent; None if snapshots are switched off. It sends no request."""

    def read(time: int) -> tuple[ClusterSnapshot, GroupsSnapshot]:
        # Each time: certificates and keys can be new, and a name service can need seconds.
        return read_cluster(security_for_snapshots(environment, config), environment.broker_id, time)

    return SnapshotWriter(keys, read, stores, metrics, note) if config.metadata_snapshots else None
