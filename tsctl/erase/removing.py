"""Removes copies that a rewritten one replaces, a grace after its put (erase rule 7).

A chain is removed from its far end: if R replaces X, and E replaces R, then X is removed before R. Without R, readers
would choose X again. What is not removed keeps the rest of its chain.

Nothing is removed before the copies that stay were read and compared: from then on their bytes are the only ones, and
agents can write what a `ts-replaces` names.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from ts_common.archive.copies import SegmentCopy
from ts_common.archive.object_keys import INDEX_SUFFIXES, LOG_SUFFIX, PartitionKeys
from ts_common.archive.segment_metadata import erased_number
from ts_common.errors import BatchTooLarge, ObjectNotFound
from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit
from ts_common.store.contract import ObjectInfo, ObjectStore
from tsctl.erase.comparing import Comparison
from tsctl.erase.erased_copies import (
    NOTHING_NOTED,
    Did,
    ErasedCopies,
    Held,
    Noted,
    Outcome,
    end_of,
    lock_of,
    read_erased_copies,
    why_left,
)
from tsctl.erase.rewriting import HiddenOnly, rewritten
from tsctl.gc import objects
from tsctl.gc.objects import Locked
from tsctl.gc.retention import LeftOut, Why

_MOST_LINKS: Final = 100  # of one chain; metadata of others can make it a ring


def remove_replaced(
    store: ObjectStore,
    keys: PartitionKeys,
    *,
    grace: float,
    held: Held,
    locked: Locked,
    limit: BatchLimit = DEFAULT_LIMIT,
    noted: Noted = NOTHING_NOTED,
    removing: Callable[[Outcome], None] = lambda _: None,
    writes: bool = True,
) -> Iterator[Outcome]:
    """Delete the copies of a partition that rewritten ones replace; yield what became of each.

    Args:
        grace: seconds since the put of the copy that replaces it: queries that were planned before can still read it.
        held: is called before each deletion.
        locked: returns, by key, the lock of each object that the store keeps.
        noted: as of `tsctl.erase.erased_copies.ErasedCopies`.
        removing: is called with the outcome of each removal before it begins.
        writes: False for a dry run: no copy is read, so one that only can have such records is yielded too.

    Raises:
        LeftOut: the partition stays as it is now, or it changed meanwhile.
        CorruptData, NewerFormat: as `read_erased_copies`.
        OperatorError: no temporary file can be written.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed; the next run continues.
    """
    found = read_erased_copies(store, keys, noted)
    if found is None:
        return
    run = _Run(store, found, grace, held, locked, limit, removing)
    for copy in sorted(found.copies, key=run.links):
        try:
            outcome = run.remove(copy, writes=writes)
        except ObjectNotFound:
            outcome = why_left(store, copy)
        if outcome is not None:
            yield outcome


class _Run:
    """One run over a partition."""

    def __init__(
        self,
        store: ObjectStore,
        found: ErasedCopies,
        grace: float,
        held: Held,
        locked: Locked,
        limit: BatchLimit,
        removing: Callable[[Outcome], None],
    ) -> None:
        self._store = store
        self._limit = limit
        self._found = found
        self._now = store.current_time() * 1000
        self._grace = grace * 1000
        self._held = held
        self._locked = locked
        self._removing = removing
        self._comparison = Comparison(store, found, limit)
        self._there = {name.removesuffix(LOG_SUFFIX) for name in found.listed if name.endswith(LOG_SUFFIX)}
        self._by_stem = {copy.segment.name.stem: copy for copy in found.copies}

    def links(self, copy: SegmentCopy) -> int:
        """Return how many stored copies are between this one and the far end of its chain."""
        count, stem = 0, copy.metadata.replaces
        while stem is not None and stem in self._by_stem and count < _MOST_LINKS:
            stem = self._by_stem[stem].metadata.replaces
            count += 1
        return count

    def remove(self, copy: SegmentCopy, *, writes: bool) -> Outcome | None:
        """Remove a copy; None if no copy replaces it, or it has no record of the list."""
        staying = self._found.near_ends(copy) if self._found.can_have(copy) else []
        made = next((each.key for each in staying if self._is_rewritten(each)), None)
        if made is None:
            if not staying or (writes and not self._may_have(copy)):
                return None
            made = staying[0].key
        obeys = self._found.obeys(self._store.head(copy.key))
        outcome = Outcome(copy.key, Did.TO_REMOVE, made=made, base=copy.base, obeys=obeys)
        if (why := self._why_kept(copy) or self._held()) is not None:
            return replace(outcome, did=Did.WAITS, reason=why)
        if (lock := lock_of(self._locked, self._keys_of(copy))) is not None:
            return replace(outcome, did=Did.WAITS, reason=lock.reason, until=end_of(lock))
        if (over := self._grace_of(copy)) > self._now:
            why = "a query that was planned before can still read it"
            return replace(outcome, did=Did.WAITS, reason=why, until=int(over))
        if (lacking := self._found.lacking(copy, staying)) is not None:
            why = f"no copy that replaces it has offset {lacking}: repair it"
            return replace(outcome, did=Did.HIDDEN, reason=why)
        return self._checked(copy, staying, outcome) if writes else outcome

    def _checked(self, copy: SegmentCopy, staying: Sequence[SegmentCopy], outcome: Outcome) -> Outcome:
        """Remove a copy if those that stay have its records, and none of the list."""
        for each in staying:
            if (unfit := self._comparison.why_unfit(each)) is not None:
                did, why = unfit
                return replace(outcome, did=did, reason=why)
            try:
                end = min(self._found.live_end(copy), self._found.live_end(each))
                differing = self._comparison.differing(copy, each, end)
            except HiddenOnly as error:
                return replace(outcome, did=Did.HIDDEN, reason=f"{copy.key}: {error}")
            if differing is not None:
                why = f"{each.key} has other records from offset {differing} on: compare them with tsctl verify"
                return replace(outcome, did=Did.HIDDEN, reason=why)
        return self._delete(copy, staying, replace(outcome, did=Did.REMOVED))

    def _is_rewritten(self, copy: SegmentCopy) -> bool:
        with suppress(ObjectNotFound):
            info = self._store.head(copy.key)
            return erased_number(info.metadata) > 0 and self._found.obeys(info) > 0
        return False

    def _may_have(self, copy: SegmentCopy) -> bool:
        """Return whether a copy that a repair replaced has a record of the list; if it cannot be read, it may."""
        try:
            with rewritten(self._store, copy, self._found.erased, limit=self._limit) as found:
                return found is not None
        except (HiddenOnly, BatchTooLarge):
            return True
        except ObjectNotFound:
            return False

    def _why_kept(self, copy: SegmentCopy) -> str | None:
        stem = copy.metadata.replaces
        if stem in self._there and not self._is_replaced_without(copy):
            return f"it replaces {stem}{LOG_SUFFIX}, which stays: without it readers would choose that one"
        return self._found.why_kept(copy)

    def _is_replaced_without(self, copy: SegmentCopy) -> bool:
        """Return whether a copy that stays replaces what this one replaces, and has all of its offsets.

        Names can make a ring: a repair of a rewritten copy can get the name of the removed one that it replaces.
        """
        replaced = self._by_stem.get(copy.metadata.replaces or "")
        if replaced is None:
            return False
        ends = self._found.near_ends(copy)
        others = [each for each in self._found.replacing[replaced.segment.name.stem] if each in ends]
        return bool(others) and self._found.lacking(replaced, others) is None

    def _grace_of(self, copy: SegmentCopy) -> float:
        """Return when the grace of a copy is over, milliseconds since the epoch."""
        # A copy that was put again under its name was replaced from then on, and no earlier.
        begun = max(_modified(each) for each in (copy, *self._found.replacing[copy.segment.name.stem]))
        return begun + self._grace

    def _keys_of(self, copy: SegmentCopy) -> list[str]:
        return [info.key for info in self._objects_of(copy)]

    def _objects_of(self, copy: SegmentCopy) -> list[ObjectInfo]:
        """Return the objects of a copy as listed, the `.log` first."""
        names = (copy.segment.name.stem + suffix for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES))
        return [self._found.listed[name] for name in names if name in self._found.listed]

    def _delete(self, copy: SegmentCopy, staying: Sequence[SegmentCopy], done: Outcome) -> Outcome:
        def look() -> None:
            if (why := self._held()) is not None:
                raise LeftOut(why, Why.HELD)
            self._comparison.check_unchanged(staying)

        self._removing(done)
        outcomes = [*objects.delete(self._store, self._objects_of(copy), locked=self._locked, look=look)]
        for info, outcome, error in outcomes:
            if outcome is not objects.Outcome.REMOVED:
                return replace(done, did=Did.WAITS, reason=f"{info.key}: {error or outcome}")
        self._there.discard(copy.segment.name.stem)
        return done


def _modified(copy: SegmentCopy) -> int:
    return copy.segment.modified or 0
