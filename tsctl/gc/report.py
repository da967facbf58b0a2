r"""The report of a run, `gc/<run>.jsonl`: what it hid, showed, deleted and left out, and why. No run reads it.

::

    {"version":1,"run":"gc-20261128T020000000Z-1f2e3d4c","time":1764295200000}
    {"partition":"orders-0","did":"hidden","start":0,"to":250,"limit":"the rule"}
    {"partition":"orders-1","did":"deleted","objects":[["00000000000000000000.log",1048576,"\"9e10...\"","removed"]]}
    {"partition":"orders-3","did":"deleted","objects":[["00000000000000000000.log",1048576,"\"4b1f...\"","locked"]],
     "retained":"retained until 2027-01-01 00:00:00 UTC (GOVERNANCE)"}
    {"partition":"orders-2","did":"left out","why":"hold","reason":"hold case-17: audit 17"}
    {"did":"ended","failed":false}

A run that was killed has the first line alone.
"""

import json
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any, Final

from ts_common.archive.commit import new_writer
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.errors import ObjectNotFound, TieredStorageError
from ts_common.json_objects import parse_fields
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_common.store.protection import Lock
from tsctl.gc.objects import Locked, Outcome, delete
from tsctl.gc.retention import LEAVES_OUT, Skipped

SUFFIX: Final = ".jsonl"
_MOST_ERRORS: Final = 10
_IN_MEMORY: Final = 1 << 20
_LINE_BYTES: Final = 1 << 20


class Report:
    """What a run did in one store; several threads may use it.

    Attributes:
        began: when the store got its first line, seconds since the epoch.
        did: how many partitions were `hidden`, `shown`, and so on.
        outcomes: number of objects by what became of each.
        bytes: of the objects that were removed.
        errors: the first failures of deletes.
        locked_until: when the last lock of an object that stays ends, seconds since the epoch; None without one.
        legal_holds: number of objects that stay by a legal hold, which has no end.
    """

    def __init__(self) -> None:
        self.run = new_writer("gc")
        self.began = 0.0
        self.did: Counter[str] = Counter()
        self.outcomes: Counter[Outcome] = Counter()
        self.bytes = 0
        self.errors: list[str] = []
        self.locked_until: float | None = None
        self.legal_holds = 0
        self._skipped: dict[Skipped, None] = {}
        self._lock = threading.Lock()
        self._lines: IO[bytes] | None = None  # only a run that `writing` writes has lines

    @property
    def skipped(self) -> list[Skipped]:
        """What was left out."""
        return [*self._skipped]

    def line(self, **fields: Any) -> None:
        """Add a line."""
        with self._lock:
            if self._lines is not None:
                self._lines.write((json.dumps(fields, separators=(",", ":")) + "\n").encode())

    def add(self, keys: PartitionKeys, did: str, **fields: Any) -> None:
        """Add what was done with a partition."""
        with self._lock:
            self.did[did] += 1
        self.line(partition=keys.directory, did=did, **fields)

    def stays(self, directory: str, place: str, since: int | None) -> None:
        """Add a former incarnation, or an old place, that the policy keeps; `since` in ms since the epoch."""
        with self._lock:
            self.did["stays"] += 1
        self.line(directory=directory, did="stays", place=place, since=since)

    def skip(self, skipped: Skipped) -> None:
        """Add what was left out, once."""
        with self._lock:
            if skipped in self._skipped:
                return
            self._skipped[skipped] = None
        self.line(partition=skipped.where, did="left out", why=str(skipped.why), reason=skipped.reason)

    def deleting(
        self,
        store: ObjectStore,
        keys: PartitionKeys,
        objects: Sequence[ObjectInfo],
        *,
        locked: Locked,
        look: Callable[[], None],
    ) -> bool:
        """Delete objects of a partition, and return whether all are removed; a change or a hold ends it."""
        done: list[tuple[str, int, str, str]] = []
        locks: list[Lock] = []

        def noted(asked: Sequence[str]) -> Mapping[str, Lock]:
            found = locked(asked)
            locks.extend(found.values())
            return found

        try:
            for info, outcome, error in delete(store, objects, locked=noted, look=look):
                done.append((info.key.removeprefix(keys.prefix), info.size, info.etag, outcome))
                with self._lock:
                    self.outcomes[outcome] += 1
                    self.bytes += info.size if outcome is Outcome.REMOVED else 0
                    if error is not None and len(self.errors) < _MOST_ERRORS:
                        self.errors.append(f"{info.key}: {error}")
        except LEAVES_OUT as error:
            self.skip(Skipped.of(keys.directory, error))
            return False
        finally:
            if done:
                self.add(keys, "deleted", objects=done, **self._note(locks))
        return all(outcome is Outcome.REMOVED for *_, outcome in done)

    def _note(self, locks: Sequence[Lock]) -> dict[str, str]:
        """Note what keeps objects, and return the field of it: the lock that ends last."""
        if not locks:
            return {}
        with self._lock:
            self.legal_holds += sum(lock.legal_hold for lock in locks)
            ends = [lock.until for lock in locks if lock.until is not None]
            self.locked_until = max((*ends, self.locked_until or 0.0)) or None
        return {"retained": max(locks, key=lambda lock: (lock.legal_hold, lock.until or 0.0)).reason}

    def key(self, keys: ClusterKeys) -> str:
        """Return its key."""
        return f"{keys.gc}{self.run}{SUFFIX}"

    def write(self, store: ObjectStore, keys: ClusterKeys) -> None:
        """Write the report as it is now.

        Raises:
            OutcomeUnknown, StoreUnavailable, AccessDenied, BucketMissing: the store failed.
        """
        with self._lock:
            if (lines := self._lines) is None:
                raise ValueError("no block of `writing` is open")
            length = lines.tell()
            lines.seek(0)
            try:
                store.put(self.key(keys), lines, size=length)
            finally:
                lines.seek(length)

    @contextmanager
    def writing(self, store: ObjectStore, keys: ClusterKeys) -> Iterator[None]:
        """Write the report at the end of the block, whatever ends it, and remove its lines from this host."""
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as lines:
            self._lines = lines
            try:
                yield
                self.write(store, keys)
            except BaseException:
                with suppress(TieredStorageError):
                    self.write(store, keys)
                raise
            finally:
                self._lines = None


def list_reports(store: ObjectStore, keys: ClusterKeys) -> Iterator[ObjectInfo]:
    """Yield the reports of all runs, oldest first.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    for info in store.list(keys.gc):
        name = info.key.removeprefix(keys.gc)
        if name.endswith(SUFFIX) and "/" not in name:
            yield info


def read_report(store: ObjectStore, keys: ClusterKeys, run: str) -> Iterator[dict[str, Any]]:
    """Yield the lines of a report; none if the store has no such report.

    Raises:
        CorruptData: it is damaged.
        NewerFormat: a later release wrote it.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    key = f"{keys.gc}{run}{SUFFIX}"
    with suppress(ObjectNotFound), store.open(key) as stream:
        rest = b""
        while data := stream.read(_LINE_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            yield from (parse_fields(line, key, "a report of tsctl gc", len(line)) for line in lines)
        if rest:
            yield parse_fields(rest, key, "a report of tsctl gc", len(rest))
