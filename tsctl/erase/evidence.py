"""What runs did for a request, and what remains of it: the lines of `erasures/<id>.run-<time>.jsonl` after the first.

::

    {"did":"rewritten","partition":"orders-0","key":"...log","made":"...log","list":4,"records":2,"batches":1,
     "bytes":900,"before":"<64>","after":"<64>","etag":"..."}
    {"did":"read","partition":"orders-0","key":"...log","list":5,"etag":"..."}
    {"did":"removing","partition":"orders-0","key":"...log","made":"...log","before":"<64>","after":"<64>"}
    {"did":"removed","partition":"orders-0","key":"...log","made":"...log"}
    {"did":"remains","surface":"copy","where":"...log","reason":"...","until":1764295200000}

`made` is the object with the records that stay, and `etag` its ETag. It has no record of list `list`: agents can write
any metadata, and not this. `read` is about an object without such a record: no run reads it again for this list.
`before` and `after` are the SHA-256 of both. A run puts the lines about rewritten objects before it removes any. An
object that a run removes has a line with both sums before that: of the run that rewrote it, or `removing`. So a killed
run leaves no object without its sums; a line `removed` can lack.

No line has a key of a record, or a hash of one.
"""

import json
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from typing import Any, Final

from ts_common.archive.erasures import (
    EXPECTED_LINE,
    Erasure,
    ErasureDone,
    ErasureRun,
    ErasureState,
    erasure_run_key,
    evidence_lines,
    list_erasure_runs,
    obeyed_of,
    read_erasures,
)
from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import PreconditionFailed
from ts_common.json_objects import decoding, optional_number, text
from ts_common.store.contract import IfAbsent, ObjectStore
from tsctl.erase.remains import Remains, Surface

_MILLISECONDS: Final = 1000
_PART_BYTES: Final = 4 << 20  # a reader reads an object of 16 MiB at most
_MOST_REMAINS: Final = 10_000
_REMAINS_BYTES: Final = 8 << 20  # of their lines: the reason of a hold can have 1,000 characters of six bytes
_MOST_TEXT: Final = 1000  # characters
_ATTEMPTS: Final = 20  # each is lost to a run that put in the same millisecond
_REMAINS: Final = "remains"
_PAIRED: Final = frozenset({"rewritten", "removing"})  # lines with SHA-256 before and after

Pair = tuple[str, str]
"""The key of an object, and of the one that has its other records."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A request, and what runs did for it.

    Attributes:
        request: as it is after all searches.
        done: its end; None before the first run that found nothing stored.
        last: the last run; None before the first.
        remains: what that run found.
        pairs: objects that were replaced, whose SHA-256 are noted, and that no run has removed since.
        made: rewritten and read objects by key and ETag, each with the number of the list that it obeys.
        searched: when it was searched last, milliseconds since the epoch.
        time: of the latest search or run, milliseconds since the epoch.
    """

    request: Erasure
    done: ErasureDone | None
    last: ErasureRun | None
    remains: tuple[Remains, ...]
    pairs: frozenset[Pair]
    made: Mapping[Pair, int]
    searched: int
    time: int

    @property
    def state(self) -> ErasureState:
        """Its state: erased if the last run has ended, and found nothing of its lists.

        If a copy returns, the request is hidden again until a run has removed that copy too.
        """
        if not self.request.is_searched:
            return ErasureState.OPEN
        lists = None if self.last is None else self.last.lists
        if self.done is None or lists is None or self.remains or not covers(lists, self.request):
            return ErasureState.HIDDEN
        return ErasureState.ERASED

    def is_late(self, now: int) -> bool:
        """Return whether its bytes should be removed by now, and are not; `now` is in milliseconds since the epoch."""
        return self.state is not ErasureState.ERASED and now >= self.request.due


def covers(lists: Mapping[str, int], request: Erasure) -> bool:
    """Return whether a run with these lists looked at all offsets of a request."""
    return all(each.number <= lists.get(each.directory, 0) for each in request.partitions)


def progress_of(store: ObjectStore, cluster: ClusterKeys, request: Erasure) -> Progress:
    """Return what was done for a request, as it was put.

    Raises:
        CorruptData: an object of it is damaged.
        NewerFormat: a later release wrote one.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    runs, last, remains, pairs = list[ErasureRun](), None, list[Remains](), set[Pair]()
    made = dict[Pair, int]()
    for run, lines in list_erasure_runs(store, cluster, request.name):
        runs.append(run)
        if run.is_search:
            continue
        last, remains = run, []
        for fields in _lines(run, lines, cluster):
            if isinstance(fields, Remains):
                remains.append(fields)
                continue
            (pairs.add if fields[0] in _PAIRED else pairs.discard)(fields[1])
            made |= fields[2]
    done = ErasureDone.read(store, ErasureDone.key(cluster, request.name), name=request.name)
    searched = max([request.time, *(each.time for each in runs if each.is_search)])
    time = max([request.time, *(each.time for each in runs)])
    return Progress(request.after(runs), done, last, tuple(remains), frozenset(pairs), made, searched, time)


def read_progress(store: ObjectStore, cluster: ClusterKeys) -> tuple[Progress, ...]:
    """Return all requests of a cluster in one store by id, with what was done; it raises as `progress_of`."""
    return tuple(progress_of(store, cluster, each) for each in read_erasures(store, cluster))


def read_replaced(store: ObjectStore, cluster: ClusterKeys) -> Iterator[Pair]:
    """Yield the pairs of all objects that runs rewrote or removed, by the time of the run.

    Raises:
        As `progress_of`.
    """
    for run, lines in list_erasure_runs(store, cluster, None):
        for fields in _lines(run, lines, cluster):
            if not isinstance(fields, Remains) and all(fields[1]):
                yield fields[1]


def _lines(
    run: ErasureRun, lines: bytes, cluster: ClusterKeys
) -> Iterable[Remains | tuple[str, Pair, Mapping[Pair, int]]]:
    for key, line, fields in evidence_lines(run, lines, cluster):
        with decoding(key, EXPECTED_LINE, line):
            did = text(fields["did"])
            if did != _REMAINS:
                pair = text(fields.get("key", "")), text(fields.get("made", ""))
                yield did, pair, obeyed_of(fields)
                continue
            where, reason = text(fields["where"]), text(fields["reason"])
            yield Remains(Surface(fields["surface"]), where, reason, optional_number(fields["until"]))


class Evidence:
    """What one run notes of the requests in one store; several threads may use it."""

    def __init__(self, store: ObjectStore, cluster: ClusterKeys, requests: Iterable[Progress]) -> None:
        self._store = store
        self._cluster = cluster
        self._requests = {each.request.name: each for each in requests}
        self._times = {name: each.time for name, each in self._requests.items()}
        self._pairs = {name: set(each.pairs) for name, each in self._requests.items()}
        self.made: dict[Pair, int] = {}  # as of `Progress`, of all requests
        for pair, number in chain.from_iterable(each.made.items() for each in self._requests.values()):
            self.made[pair] = max(number, self.made.get(pair, 0))
        self._lines: dict[str, list[bytes]] = {}
        self._noted = set[str]()  # requests that this run has put an object for
        self._lock = threading.RLock()

    def lacking(self, names: Iterable[str], pair: Pair) -> list[str]:
        """Return the requests without a line that has the SHA-256 of two objects."""
        with self._lock:
            return [name for name in names if pair not in self._pairs[name]]

    def note(self, names: Iterable[str], did: str, **fields: Any) -> None:
        """Note a line about an object for some requests.

        Raises:
            StaleStateError, StoreUnavailable, AccessDenied, BucketMissing: as `put`, if many lines wait.
        """
        line = (json.dumps({"did": did, **fields}, separators=(",", ":")) + "\n").encode()
        pair = fields.get("key", ""), fields.get("made", "")
        with self._lock:
            if "etag" in fields:
                self.made[fields.get("made", fields["key"]), fields["etag"]] = fields["list"]
            for name in names:
                self._lines.setdefault(name, []).append(line)
                (self._pairs[name].add if did in _PAIRED else self._pairs[name].discard)(pair)
                if sum(map(len, self._lines[name])) > _PART_BYTES:
                    self.put([name])

    def put(self, names: Collection[str] | None = None) -> None:
        """Put the lines that wait, of some requests or of all.

        Raises:
            OutcomeUnknown, StoreUnavailable, AccessDenied, BucketMissing: the store failed.
        """
        with self._lock:
            for name in [*self._lines] if names is None else names:
                if lines := self._lines.pop(name, None):
                    self._put(name, lines, None)

    def end(self, name: str, lists: Mapping[str, int], remains: Sequence[Remains]) -> None:
        """Note what remains of a request, if that is news; and the end of the request, if nothing does.

        Args:
            lists: the greatest list of each partition that the run looked at.

        Raises:
            OutcomeUnknown, StoreUnavailable, AccessDenied, BucketMissing: the store failed.
        """
        former = self._requests[name]
        shown = _bounded(remains)
        with self._lock:
            lines = self._lines.pop(name, [])
            is_same = former.last is not None and former.last.lists == lists and former.remains == tuple(shown)
            if lines or name in self._noted or not is_same:
                self._put(name, [*lines, *(_line_of(each) for each in shown)], lists)
        if not remains and former.request.is_searched and former.done is None:
            done = ErasureDone(name, self._now(), self._store.identity(), lists)
            try:
                self._store.put(ErasureDone.key(self._cluster, name), done.encode(), condition=IfAbsent())
            except PreconditionFailed:
                return  # another run put it

    def _put(self, name: str, lines: Sequence[bytes], lists: Mapping[str, int] | None) -> None:
        time = max(self._now(), self._times[name] + 1)
        for attempt in range(_ATTEMPTS):
            run = ErasureRun(name, time + attempt, self._store.identity(), None, (), lists)
            key = erasure_run_key(self._cluster, name, run.time)
            try:
                self._store.put(key, run.encode() + b"".join(lines), condition=IfAbsent())
            except PreconditionFailed:
                if attempt + 1 == _ATTEMPTS:
                    raise
                continue
            self._times[name] = run.time
            self._noted.add(name)
            return

    def _now(self) -> int:
        return int(self._store.current_time() * _MILLISECONDS)


def _bounded(remains: Sequence[Remains]) -> list[Remains]:
    found = sorted(set(remains), key=lambda each: (each.surface, each.where, each.reason))
    short = [replace(each, where=each.where[:_MOST_TEXT], reason=each.reason[:_MOST_TEXT]) for each in found]
    sizes = accumulate(len(_line_of(each)) for each in short[:_MOST_REMAINS])
    most = sum(each <= _REMAINS_BYTES for each in sizes)
    if len(short) > most:
        more = Remains(Surface.COPY, "", f"and {len(short) - most + 1} more", None)
        short[most - 1 :] = [more]
    return short


def _line_of(each: Remains) -> bytes:
    fields = {"did": _REMAINS, "surface": each.surface.value, "where": each.where, "reason": each.reason}
    return (json.dumps(fields | {"until": each.until}, separators=(",", ":")) + "\n").encode()
