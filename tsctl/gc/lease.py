"""The lease of a store: one collector at a time moves `log.start` and deletes objects of a cluster.

Two collectors at once are safe only as long as neither lowers `log.start` while the other deletes. A hold and an undo
do that, and no condition of a store includes two objects. So a run and an undo first put `gc/lease.json`, on condition
that no other process holds it, and renew it while they write.

The lease of a process that was killed ends by itself. A process that was suspended for longer finds that another one
has the lease, before its next write.
"""

import json
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, Final

from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.small_objects import get_small
from ts_common.errors import (
    CorruptData,
    NewerFormat,
    ObjectNotFound,
    OutcomeUnknown,
    PreconditionFailed,
    StaleStateError,
    TieredStorageError,
)
from ts_common.format_version import VERSION
from ts_common.json_objects import decoding, parse_fields, text, whole_number
from ts_common.store.contract import Condition, DeleteOutcome, IfAbsent, IfMatch, ObjectInfo, ObjectStore
from ts_common.store.wrappers.wrapped import WrappedStore
from ts_reader.query.timestamps import time_text

LEASE_SECONDS: Final = 600.0
_RENEWED_EVERY_SECONDS: Final = 60.0
_BYTES: Final = 4 << 10
_DELETES: Final = 32  # four rounds of the requests that a store sends at once


def _since_boot() -> float:
    """Return seconds since the boot. It counts while the host is suspended; other clocks stop then."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@contextmanager
def leased(
    store: ObjectStore,
    keys: ClusterKeys,
    *,
    seconds: float = LEASE_SECONDS,
    clock: Callable[[], float] = _since_boot,
) -> Iterator[ObjectStore]:
    """Hold the lease for a block, and yield a store that renews it before writes; the block ends with its release.

    Args:
        store: of the cluster.
        keys: its keys.
        seconds: how long the lease lasts without a renewal.
        clock: returns seconds, which never go back.

    Raises:
        StaleStateError: another process holds the lease, or got it during the block.
        OutcomeUnknown, StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    lease = _Lease(store, keys, seconds, clock)
    lease.begin()
    try:
        yield _LeasedStore(store, lease)
    finally:
        lease.end()


class _Lease:
    """A lease that this process holds."""

    def __init__(self, store: ObjectStore, keys: ClusterKeys, seconds: float, clock: Callable[[], float]) -> None:
        self._store = store
        self._key, self._clock_key = f"{keys.gc_runs}lease.json", f"{keys.gc_runs}lease-clock.json"
        self._seconds = seconds
        self._clock = clock
        self._holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._etag = ""
        self._renewed = 0.0

    def begin(self) -> None:
        """Put the lease if nothing holds it."""
        condition: Condition = IfAbsent()
        with suppress(ObjectNotFound):
            data, info = self._read()
            condition = IfMatch(info.etag)
            self._check_free(data, info)
        self._put(condition)

    def keep(self) -> None:
        """Renew the lease if it is time; a lease that another process got is not renewed."""
        if self._clock() - self._renewed >= min(_RENEWED_EVERY_SECONDS, self._seconds / 2):
            self._put(IfMatch(self._etag))

    def end(self) -> None:
        """Release the lease; if that fails, it ends by itself."""
        with suppress(TieredStorageError):
            self._put(IfMatch(self._etag), seconds=0)

    def _read(self) -> tuple[bytes, ObjectInfo]:
        """Return the content and its info; no content if it is too large, which is damage too."""
        try:
            return get_small(self._store, self._key, _BYTES)
        except CorruptData:
            return b"", self._store.head(self._key)

    def _check_free(self, data: bytes, info: ObjectInfo) -> None:
        """Raise if the lease is held, by the clock of the store."""
        try:
            fields = parse_fields(data, self._key, "a lease of tsctl gc", _BYTES)
            with decoding(self._key, "a lease of tsctl gc", data):
                holder, lasts = text(fields["holder"]), whole_number(fields["milliseconds"])
        except (CorruptData, NewerFormat):
            holder, lasts = "unknown", int(self._seconds * 1000)
        until = int(info.modified * 1000) + min(lasts, int(max(self._seconds, LEASE_SECONDS) * 1000))
        if lasts and self._store_now() < until:
            raise StaleStateError(
                f"{holder} runs tsctl gc on {self._store.location} now; its lease ends at {time_text(until)} at the "
                f"latest. Wait for it. If that process has ended and you cannot wait, delete {self._key}"
            )

    def _store_now(self) -> int:
        """Return the time of the store, milliseconds since the epoch."""
        self._store.put(self._clock_key, b"{}\n")
        return int(self._store.head(self._clock_key).modified * 1000)

    def _put(self, condition: Condition, *, seconds: float | None = None) -> None:
        lasts = int((self._seconds if seconds is None else seconds) * 1000)
        fields = {"version": VERSION, "holder": self._holder, "milliseconds": lasts, "nonce": secrets.token_hex(8)}
        data = (json.dumps(fields, separators=(",", ":")) + "\n").encode()
        began = self._clock()  # before the request: the lease never lasts longer than this process counts
        try:
            self._etag = self._store.put(self._key, data, condition=condition).etag
        except (PreconditionFailed, OutcomeUnknown, ObjectNotFound) as error:
            self._etag = self._own_etag(data, error)
        self._renewed = began

    def _own_etag(self, data: bytes, error: StaleStateError) -> str:
        """Return the ETag of a lease that was written although the response was lost or a retry was rejected."""
        with suppress(ObjectNotFound):
            found, info = get_small(self._store, self._key, _BYTES)
            if found == data:
                return info.etag
        raise StaleStateError(f"{self._key}: another process runs tsctl gc now; run it again later") from error


class _LeasedStore(WrappedStore):
    """A store that renews the lease before each write."""

    def __init__(self, inner: ObjectStore, lease: _Lease) -> None:
        super().__init__(inner, threads=1)
        self._lease = lease

    def put(self, key: str, *arguments: Any, **named: Any) -> ObjectInfo:
        """Renew the lease, and put."""
        self._lease.keep()
        return self._inner.put(key, *arguments, **named)

    def delete(self, keys: Iterable[str]) -> None:
        """Renew the lease, and delete."""
        self._lease.keep()
        self._inner.delete(keys)

    def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
        """Renew the lease before each few deletes: another collector can have it once this process was suspended."""
        found = DeleteOutcome((), (), {})
        rest = iter(etags.items())
        while some := dict(islice(rest, _DELETES)):
            self._lease.keep()
            found = found.joined(self._inner.delete_matching(some))
        return found
