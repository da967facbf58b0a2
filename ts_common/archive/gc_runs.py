"""Runs of `tsctl gc`: their objects in `gc/<run>/` of a cluster, and what a run's plan is used for.

::

    <base prefix>/ts-uploader~cluster~<cluster>/gc/20261127T020000000Z-1f2e3d4c/
        moves-00000.jsonl        partitions, written before any log.start is moved: `tsctl gc undo` reads them
        part-00000.jsonl         partitions and their objects, by listings after log.start was moved
        plan.json                written last: without it there is no plan
        claim.json               {"version":1,"use":"delete"} or "undo": the first one to put it decides
        log-<time>-<token>-00000.jsonl   what was deleted, one line for each object of the plan, by each attempt
        shown-<hash>             a partition of the plan that a hold shows again: nothing of it is deleted by this plan
        back-<hash>              nothing is left to do for that
        void.json                why a damaged plan was discarded; a later run deletes nothing of it
        done.json                the counts, once nothing of the plan is left to do

`ts_common.archive.gc_plans` has the content of moves, parts and plans.
"""

import calendar
import hashlib
import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.small_objects import get_small
from ts_common.errors import ObjectNotFound, OutcomeUnknown, PreconditionFailed
from ts_common.format_version import VERSION
from ts_common.json_objects import decoding, parse_fields, text
from ts_common.store.contract import IfAbsent, ObjectInfo, ObjectStore

PLAN_NAME: Final = "plan.json"
CLAIM_NAME: Final = "claim.json"
DONE_NAME: Final = "done.json"
VOID_NAME: Final = "void.json"
PART: Final = "part"
MOVES: Final = "moves"
SHOWN: Final = "shown"
BACK: Final = "back"
_RUN: Final = re.compile(r"([0-9]{8}T[0-9]{6})([0-9]{3})Z-[0-9a-f]{8}")
_SECONDS: Final = "%Y%m%dT%H%M%S"
_CLAIM_BYTES: Final = 16 << 10
_ATTEMPTS: Final = 5
_AHEAD_MS: Final = 30 * 60_000  # twice what the clocks of a collector and its store can differ by


class Use(StrEnum):
    """What a plan is used for; it is decided once."""

    DELETE = "delete"
    UNDO = "undo"


@dataclass(frozen=True, slots=True)
class RunObjects:
    """The objects of one run, by a listing.

    Attributes:
        run: name of the run.
        time: when it began, milliseconds since the epoch: by its name. If that is far ahead of the store's time of its
            last object, no collector gave it, and the store's time counts.
        directory: common prefix of its keys, which ends with a slash.
        planned: when `plan.json` was written, seconds since the epoch by the store's clock; None without it.
        claimed: whether `claim.json` exists.
        void: whether `void.json` exists.
        done: whether `done.json` exists.
        objects: all of them.
    """

    run: str
    time: int
    directory: str
    planned: float | None
    claimed: bool
    void: bool
    done: bool
    objects: tuple[ObjectInfo, ...]

    @property
    def is_pending(self) -> bool:
        """Whether the run has a plan that is not done. Without a plan, or with a void one, it is while its undo is."""
        return not self.done and (self.claimed or (self.planned is not None and not self.void))

    @property
    def has_moves(self) -> bool:
        """Whether the run may have moved a `log.start`."""
        return self.planned is not None or any(self._named(MOVES))

    def shows(self, directory: str) -> bool:
        """Whether a hold shows a partition again, by its directory; it was noted before `log.start` was moved back."""
        return _hash(directory) in self._named(SHOWN)

    def half_shown(self) -> list[str]:
        """Return the keys of the notes of partitions that a hold shows again, and whose `log.start` is not back yet."""
        back = set(self._named(BACK))
        return [f"{self.directory}{SHOWN}-{each}" for each in self._named(SHOWN) if each not in back]

    def _named(self, kind: str) -> list[str]:
        start = f"{self.directory}{kind}-"
        return [info.key.removeprefix(start) for info in self.objects if info.key.startswith(start)]


def note_key(run: RunObjects, kind: str, directory: str) -> str:
    """Return the key of a note about a partition: `SHOWN` or `BACK`. Its content has the partition."""
    return f"{run.directory}{kind}-{_hash(directory)}"


def _hash(directory: str) -> str:
    """Return a name for a partition's directory: with a prefix, its own can be too long for a file."""
    return hashlib.sha256(directory.encode()).hexdigest()[:32]


def run_name(at: int, token: str) -> str:
    """Return the name of a run; names sort by time.

    Args:
        at: milliseconds since the epoch.
        token: 8 hexadecimal digits.
    """
    return f"{time.strftime(_SECONDS, time.gmtime(at // 1000))}{at % 1000:03d}Z-{token}"


def time_of(run: str) -> int | None:
    """Return the time in the name of a run, milliseconds since the epoch; None if it has no such time."""
    match = _RUN.fullmatch(run)
    if match is None:
        return None
    try:
        return calendar.timegm(time.strptime(match[1], _SECONDS)) * 1000 + int(match[2])
    except ValueError:  # no such day
        return None


def run_directory(keys: ClusterKeys, run: str) -> str:
    """Return the common prefix of a run's keys.

    Raises:
        ValueError: it is no name of a run.
    """
    if not _RUN.fullmatch(run):
        raise ValueError(f"{run!r} is no name of a run, as in 20261127T020000000Z-1f2e3d4c")
    return f"{keys.gc_runs}{run}/"


def numbered_key(keys: ClusterKeys, run: str, kind: str, number: int) -> str:
    """Return the key of a part or of one of the moves; they are numbered from 0."""
    return run_directory(keys, run) + numbered(kind, number)


def numbered(kind: str, number: int) -> str:
    """Return the name of a part or of one of the moves in the directory of its run."""
    return f"{kind}-{number:05d}.jsonl"


def list_runs(store: ObjectStore, keys: ClusterKeys) -> list[RunObjects]:
    """Return the runs of a cluster in a store, oldest first; objects with other names are ignored.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    found: dict[str, list[ObjectInfo]] = {}
    for info in store.list(keys.gc_runs):
        run, slash, _ = info.key.removeprefix(keys.gc_runs).partition("/")
        if slash and _RUN.fullmatch(run):
            found.setdefault(run, []).append(info)
    return sorted((_run(keys, run, infos) for run, infos in found.items()), key=lambda run: (run.time, run.run))


def _run(keys: ClusterKeys, run: str, infos: Iterable[ObjectInfo]) -> RunObjects:
    directory = run_directory(keys, run)
    by_name = {info.key.removeprefix(directory): info for info in infos}
    plan = by_name.get(PLAN_NAME)
    named, last = time_of(run), int(max(info.modified for info in by_name.values()) * 1000)
    return RunObjects(
        run,
        last if named is None or named > last + _AHEAD_MS else named,
        directory,
        None if plan is None else plan.modified,
        CLAIM_NAME in by_name,
        VOID_NAME in by_name,
        DONE_NAME in by_name,
        tuple(by_name.values()),
    )


def claim(store: ObjectStore, keys: ClusterKeys, run: str, use: Use) -> Use:
    """Decide what a plan is used for, and return what was decided; an earlier decision stays.

    Raises:
        CorruptData: the claim is damaged.
        OutcomeUnknown: the store did not answer.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    return use if claim_first(store, keys, run, use) else read_claim(store, keys, run)


def claim_first(store: ObjectStore, keys: ClusterKeys, run: str, use: Use) -> bool:
    """Decide what a plan is used for, and return whether nothing was decided before.

    Raises:
        OutcomeUnknown: the store did not answer.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    data = (json.dumps({"version": VERSION, "use": use}, separators=(",", ":")) + "\n").encode()
    return put_once(store, run_directory(keys, run) + CLAIM_NAME, data)


def claim_of(store: ObjectStore, keys: ClusterKeys, run: str) -> Use | None:
    """Return what a plan is used for; None if nothing was decided. It raises as `read_claim` otherwise."""
    try:
        return read_claim(store, keys, run)
    except ObjectNotFound:
        return None


def read_claim(store: ObjectStore, keys: ClusterKeys, run: str) -> Use:
    """Return what a plan is used for.

    Raises:
        ObjectNotFound: nothing was decided.
        CorruptData: the claim is damaged.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    key = run_directory(keys, run) + CLAIM_NAME
    data, _ = get_small(store, key, _CLAIM_BYTES)
    fields = parse_fields(data, key, "a claim of a plan", _CLAIM_BYTES)
    with decoding(key, "a claim of a plan", data):
        return Use(text(fields["use"]))


def mark_done(
    store: ObjectStore, run: RunObjects, now: int, *, undone: bool, objects: Mapping[str, int], size: int
) -> None:
    """Write `done.json`: nothing of the plan is left to do.

    Args:
        store: of the run.
        run: the run.
        now: milliseconds since the epoch.
        undone: whether it was undone.
        objects: number of objects by outcome.
        size: bytes of those that were removed.

    Raises:
        OutcomeUnknown, StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    fields = {
        "version": VERSION,
        "time": now,
        "undone": undone,
        "objects": dict(sorted(objects.items())),
        "bytes": size,
    }
    write_once(store, run.directory + DONE_NAME, (json.dumps(fields, separators=(",", ":")) + "\n").encode())


def mark_void(store: ObjectStore, run: RunObjects, now: int, reason: str) -> None:
    """Write `void.json`: the plan is damaged, so nothing more of it is deleted.

    Args:
        store: of the run.
        run: the run.
        now: milliseconds since the epoch.
        reason: for the operator.

    Raises:
        OutcomeUnknown, StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    fields = {"version": VERSION, "time": now, "reason": reason}
    write_once(store, run.directory + VOID_NAME, (json.dumps(fields, separators=(",", ":")) + "\n").encode())


def put_once(store: ObjectStore, key: str, data: bytes) -> bool:
    """Put an object where none exists; return whether the key had none.

    Raises:
        OutcomeUnknown, StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    try:
        store.put(key, data, condition=IfAbsent())
    except PreconditionFailed:
        return False
    return True


def write_once(store: ObjectStore, key: str, data: bytes) -> None:
    """Put an object under a key that no other process writes; a lost response is repeated.

    Raises:
        OutcomeUnknown, StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    for attempt in range(_ATTEMPTS):
        try:
            put_once(store, key, data)
        except OutcomeUnknown:
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return
