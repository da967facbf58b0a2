"""Earlier versions of a partition's segments that have erased records, in a bucket with versions (erase rule 9).

What is deleted or overwritten there stays as a version that is not current. A repair can put it back, so it can be the
only copy of other records. A second identity deletes it: the one that rewrites and removes copies may not.

A version is deleted only if copies that readers can choose have each of its records that the list does not hide. They
are read and compared before, as before any removal. What retention has released needs no copy.

Indexes of segments have no key and no value, so their versions stay. So do delete markers, which have no bytes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import Final

from ts_common.archive.catalog import StoredSegment
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.object_keys import LOG_SUFFIX, PartitionKeys, SegmentName
from ts_common.archive.segment_inspection import describe_segment
from ts_common.archive.segment_metadata import decode_metadata
from ts_common.errors import (
    AccessDenied,
    BatchTooLarge,
    CorruptData,
    NewerFormat,
    ObjectFrozen,
    ObjectNotFound,
)
from ts_common.json_objects import MAX_INT64
from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit
from ts_common.store.contract import ByteRange, ObjectInfo, ObjectStore, ObjectStream, ObjectVersion
from ts_common.store.protection import Lock, Protection
from ts_common.store.wrappers.wrapped import WrappedStore
from tsctl.erase.comparing import Comparison
from tsctl.erase.erased_copies import (
    NOTHING_NOTED,
    Did,
    ErasedCopies,
    Held,
    Noted,
    Outcome,
    end_of,
    first_outside,
    read_erased_copies,
)
from tsctl.erase.remains import UNLISTED, Remains, Surface
from tsctl.erase.rewriting import HiddenOnly, rewritten
from tsctl.gc.retention import LeftOut, Why

_MILLISECONDS: Final = 1000
_TXNINDEX: Final = ".txnindex"
COMMAND: Final = "tsctl erase versions deletes it"


@dataclass(frozen=True, slots=True)
class _Earlier:
    """A version of a `.log` that is not current.

    Attributes:
        since: when a later version or a delete marker replaced it, seconds since the epoch by the store's clock.
        store: where it is the object of its key.
    """

    version: ObjectVersion
    name: SegmentName
    since: float
    store: ObjectStore

    @property
    def key(self) -> str:
        """The key of the `.log`."""
        return self.version.info.key


@dataclass(frozen=True, slots=True)
class _Look:
    """What a look into a version found: it has records of the list, or can have some.

    Attributes:
        copy: its coverage; None if that cannot be read.
        why: why its records are unknown; empty if they are known.
        records: the number of records of the list; 0 if that is unknown.
        batches: the number of batches that have them.
        before: SHA-256 of its bytes, hexadecimal; empty if they are unknown.
        obeys: number of the list whose records it lacks; 0 if no eraser put it.
    """

    copy: SegmentCopy | None
    why: str = ""
    records: int = 0
    batches: int = 0
    before: str = ""
    obeys: int = 0


def remaining_versions(
    store: ObjectStore,
    keys: PartitionKeys,
    *,
    protection: Protection,
    grace: float,
    held: Held,
    limit: BatchLimit = DEFAULT_LIMIT,
    noted: Noted = NOTHING_NOTED,
    since: float = 0.0,
) -> Iterator[Remains]:
    """Yield the versions of a partition that have records of its list, or can have some; they are not current.

    Args:
        protection: of the store's bucket. Without versions there, no request is sent.
        grace: as of `remove_versions`.
        held: returns why bytes of the topic must stay.
        noted: as of `tsctl.erase.erased_copies.ErasedCopies`.
        since: seconds since the epoch by the store's clock; versions that were put before are not read.

    Raises:
        LeftOut, CorruptData, NewerFormat: as `tsctl.erase.erased_copies.read_erased_copies`.
        OperatorError: no temporary file can be written.
        StoreUnavailable, BucketMissing: the store failed.
    """
    if not protection.versioned or (found := read_erased_copies(store, keys, noted)) is None:
        return
    try:
        listed = _earlier(store, keys)
        if listed is None:
            yield Remains(Surface.VERSION, keys.prefix, UNLISTED)
            return
        for earlier in listed:
            if earlier.version.info.modified < since:
                continue
            if (look := _look(found, earlier, limit)) is not None:
                waiting = _why_waiting(store, earlier, protection, held, grace)
                reason, until = waiting or (COMMAND, None)
                obeys = {keys.directory: look.obeys}
                where = f"{earlier.key}, version {earlier.version.id}"
                yield Remains(Surface.VERSION, where, reason, until, obeys, earlier.name.base)
    except AccessDenied as error:  # doubt remains
        yield Remains(Surface.VERSION, keys.prefix, f"its earlier versions are unknown: {error}")


def remove_versions(
    store: ObjectStore,
    keys: PartitionKeys,
    *,
    protection: Protection,
    grace: float,
    held: Held,
    limit: BatchLimit = DEFAULT_LIMIT,
    noted: Noted = NOTHING_NOTED,
    removing: Callable[[Sequence[Outcome]], None] = lambda _: None,
    writes: bool = True,
) -> Iterator[Outcome]:
    """Delete the versions of a partition that have records of its list, or can have some; yield what became of each.

    Args:
        protection: of the store's bucket. Without versions there, no request is sent.
        grace: seconds since a later version or a delete marker replaced it.
        held: is called before each deletion.
        noted: as of `tsctl.erase.erased_copies.ErasedCopies`.
        removing: is called once, before the first deletion, with the outcome of each.
        writes: False for a dry run.

    Raises:
        LeftOut: the partition stays as it is now, or it changed meanwhile.
        CorruptData, NewerFormat: as `tsctl.erase.erased_copies.read_erased_copies`.
        OperatorError: no temporary file can be written.
        AccessDenied: this identity may not list, read or delete versions, or not read their locks.
        StoreUnavailable, BucketMissing: the store failed; the next run continues.
    """
    if not protection.versioned or (found := read_erased_copies(store, keys, noted)) is None:
        return
    listed = _earlier(store, keys)
    if listed is None:
        yield Outcome(keys.prefix, Did.HIDDEN, UNLISTED)
        return
    run = _Run(store, found, protection, grace, held, limit)
    due = list[_Due]()
    for earlier in listed:
        decided = run.decide(earlier)
        if isinstance(decided, _Due):
            due.append(decided)
        elif decided is not None:
            yield decided
    if not writes:
        yield from (replace(each.outcome, did=Did.TO_REMOVE) for each in due)
        return
    if due:
        removing([each.outcome for each in due])
    for each in due:
        with suppress(ObjectNotFound):
            yield run.remove(each)


@dataclass(frozen=True, slots=True)
class _Due:
    """A version that can be deleted.

    Attributes:
        outcome: of its deletion.
        agreeing: the copies that have its other records.
    """

    earlier: _Earlier
    outcome: Outcome
    agreeing: tuple[SegmentCopy, ...]


class _Run:
    """One run over a partition."""

    def __init__(
        self,
        store: ObjectStore,
        found: ErasedCopies,
        protection: Protection,
        grace: float,
        held: Held,
        limit: BatchLimit,
    ) -> None:
        self._store = store
        self._found = found
        self._limit = limit
        self._protection = protection
        self._grace = grace
        self._held = held
        self._comparison = Comparison(store, found, limit)
        # Readers choose none of those that others replace, and these are removed.
        self._staying = [copy for copy in found.copies if not found.replacing.get(copy.segment.name.stem)]

    def decide(self, earlier: _Earlier) -> "_Due | Outcome | None":
        """Return a version as one that can be deleted, or why it stays; None if it has no record of the list."""
        with suppress(ObjectNotFound):  # retention or a rule of the bucket removed something of it meanwhile
            if (look := _look(self._found, earlier, self._limit)) is not None:
                return self._decide(earlier, look)
        return None

    def _decide(self, earlier: _Earlier, look: _Look) -> "_Due | Outcome":
        outcome = Outcome(
            earlier.key,
            Did.REMOVED,
            records=look.records,
            batches=look.batches,
            before=look.before,
            base=earlier.name.base,
            version=earlier.version.id,
        )
        waiting = _why_waiting(self._store, earlier, self._protection, self._held, self._grace)
        if waiting is not None:
            return replace(outcome, did=Did.WAITS, reason=waiting[0], until=waiting[1])
        agreeing, needed = self._compare(earlier, look)
        if needed is not None:
            return replace(outcome, did=needed[0], reason=needed[1])
        return _Due(earlier, outcome, tuple(agreeing))

    def remove(self, due: _Due) -> Outcome:
        """Delete a version, unless something keeps it by now."""
        if (why := self._held()) is not None:
            raise LeftOut(why, Why.HELD)
        self._comparison.check_unchanged(due.agreeing)
        if (again := self._found_again(due.earlier)) is None:
            why = "readers find it again, or a rule of the bucket removed it"
            return replace(due.outcome, did=Did.WAITS, reason=why)
        self._store.delete_version(again)
        return due.outcome

    def _compare(self, earlier: _Earlier, look: _Look) -> tuple[list[SegmentCopy], tuple[Did, str] | None]:
        """Return the copies that have all of a version, and why it is needed; None if they have all."""
        if look.copy is None:
            return [], (Did.HIDDEN, f"its offsets are unknown, so no copy can be compared: {look.why}")
        copy, agreeing = look.copy, list[SegmentCopy]()
        start, unfit = max(copy.base, self._found.floor), None
        for each in self._staying:
            if each.base >= copy.end or each.end <= start or start >= copy.end:
                continue
            if (why := self._comparison.why_unfit(each)) is not None:
                unfit = unfit or why
                continue
            try:
                differs = self._comparison.differing(copy, each, copy.end, earlier.store)
            except HiddenOnly as error:
                return [], (Did.HIDDEN, str(error))
            if differs is None:
                agreeing.append(each)
        lacking = first_outside(start, copy.end, [(each.base, each.end) for each in agreeing])
        if lacking is None:
            return agreeing, None
        return [], unfit or (Did.HIDDEN, f"no object has its records from offset {lacking} on: it is their only copy")

    def _found_again(self, earlier: _Earlier) -> ObjectVersion | None:
        """Return a version as it is listed now; None if it is the current one by now, or was removed."""
        listed = self._store.versions(earlier.key) or ()
        return next(
            (
                each
                for each in listed
                if (each.info.key, each.id) == (earlier.key, earlier.version.id)
                and not each.is_latest
                and not each.is_delete_marker
            ),
            None,
        )


def _why_waiting(
    store: ObjectStore, earlier: _Earlier, protection: Protection, held: Held, grace: float
) -> tuple[str, int | None] | None:
    """Return why a version must stay for now, and until when, ms since the epoch; None if nothing keeps it."""
    now = store.current_time()
    if (lock := lock_now(store, earlier.version, protection)) is not None:
        return lock.reason, end_of(lock)
    if (why := held()) is not None:
        return why, None
    if earlier.since + grace > now:
        return "a repair can still need it", int((earlier.since + grace) * _MILLISECONDS)
    return None


def lock_now(store: ObjectStore, version: ObjectVersion, protection: Protection) -> Lock | None:
    """Return the lock that keeps a version now; None without one.

    Raises:
        AccessDenied: this identity may not read it.
        StoreUnavailable, BucketMissing: the store failed.
    """
    if not protection.locks:
        return None
    try:
        lock = store.version_lock(version)
    except ObjectNotFound:
        return None
    return None if lock is None or not lock.holds(store.current_time()) else lock


def _look(found: ErasedCopies, earlier: _Earlier, limit: BatchLimit) -> _Look | None:
    """Return what a version has; None if it has no record of the list, or does not exist any more."""
    name, size = earlier.name, earlier.version.info.size
    try:
        if not found.erased.meets(name.base, MAX_INT64):
            return None
        info = earlier.store.head(earlier.key)
        obeys = found.obeys(replace(info, key=earlier.key))
        if decode_metadata(info.metadata, earlier.key) is None:
            return _Look(None, "a Java uploader shipped it, or its metadata was lost")
        metadata = describe_segment(earlier.store, found.keys, name, size, has_index=False)
        copy = SegmentCopy(found.keys, StoredSegment(name, size, frozenset()), metadata)
        if not found.can_have(copy):
            return None
    except ObjectNotFound:
        return None
    except (CorruptData, NewerFormat, ObjectFrozen) as error:
        return _Look(None, str(error))
    try:
        with rewritten(earlier.store, copy, found.erased, limit=limit) as new:
            return None if new is None else _Look(copy, "", new.records, new.batches, new.before, obeys)
    except ObjectNotFound:
        return None
    except (HiddenOnly, BatchTooLarge) as error:
        return _Look(copy, str(error))


def _earlier(store: ObjectStore, keys: PartitionKeys) -> list[_Earlier] | None:
    """Return the versions of a partition's `.log` objects that are not current; None if the store lists none."""
    listed = store.versions(keys.prefix)
    if listed is None:
        return None
    found = list[tuple[ObjectVersion, SegmentName, float]]()
    newest = dict[str, ObjectVersion]()  # of each `.txnindex` without an object
    living = set[str]()
    before: ObjectVersion | None = None
    for version in listed:
        key = version.info.key
        parsed = SegmentName.parse(key.removeprefix(keys.prefix))
        replaced, before = before if before is not None and before.info.key == key else None, version
        if parsed is None or version.is_delete_marker:
            continue
        if version.is_latest:
            living.add(key)
        elif parsed[1] == LOG_SUFFIX:
            since = store.current_time() if replaced is None else replaced.info.modified
            found.append((version, parsed[0], since))
        elif parsed[1] == _TXNINDEX and key not in living:
            newest.setdefault(key, version)
    return [
        _Earlier(version, name, since, _AsObjects(store, {**newest, version.info.key: version}))
        for version, name, since in found
    ]


class _AsObjects(WrappedStore):
    """A store where versions are the objects of their keys.

    Args:
        versions: by key.
    """

    def __init__(self, inner: ObjectStore, versions: Mapping[str, ObjectVersion]) -> None:
        super().__init__(inner, threads=1)
        self._versions = versions

    def head(self, key: str) -> ObjectInfo:
        """Return the info of a version, by a get of its first byte."""
        if (version := self._versions.get(key)) is None:
            return self._inner.head(key)
        with self._inner.open_version(version, ByteRange(0, 1) if version.info.size else None) as stream:
            return stream.info

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        """Open a version."""
        if (version := self._versions.get(key)) is None:
            return self._inner.open(key, byte_range)
        return self._inner.open_version(version, byte_range)
