"""Removes copies that a rewritten one replaces, a grace after its put (erase rule 7).

A chain is removed from its far end: if R replaces X, and E replaces R, then X is removed before R. Without R, readers
would choose X again. What is not removed keeps the rest of its chain.

Nothing is removed before the copies that stay were read and compared: from then on their bytes are the only ones, and
agents can write what a `ts-replaces` names.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.object_keys import INDEX_SUFFIXES, LOG_SUFFIX, PartitionKeys
from ts_common.errors import BatchTooLarge, CorruptData, ObjectFrozen, ObjectNotFound
from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit
from ts_common.store.contract import ObjectInfo, ObjectStore
from tsctl.erase.erased_copies import Did, ErasedCopies, Held, Outcome, erased_number, read_erased_copies, why_locked
from tsctl.erase.rewriting import HiddenOnly, first_difference, rewritten
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
) -> Iterator[Outcome]:
    """Delete the copies of a partition that rewritten ones replace; yield what became of each.

    Args:
        grace: seconds since the put of the copy that replaces it: queries that were planned before can still read it.
        held: is called before each deletion.
        locked: returns, by key, the lock of each object that the store keeps.

    Raises:
        LeftOut: the partition stays as it is now, or it changed meanwhile.
        CorruptData, NewerFormat: as `read_erased_copies`.
        OperatorError: no temporary file can be written.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed; the next run continues.
    """
    found = read_erased_copies(store, keys)
    if found is None:
        return
    run = _Run(store, found, grace, held, locked, limit)
    for copy in sorted(found.copies, key=run.links):
        with suppress(ObjectNotFound):  # retention removed one of them meanwhile
            if (outcome := run.remove(copy)) is not None:
                yield outcome


class _Run:
    """One run over a partition."""

    def __init__(
        self, store: ObjectStore, found: ErasedCopies, grace: float, held: Held, locked: Locked, limit: BatchLimit
    ) -> None:
        self._store = store
        self._limit = limit
        self._found = found
        self._before = (store.current_time() - grace) * 1000
        self._held = held
        self._locked = locked
        self._there = {name.removesuffix(LOG_SUFFIX) for name in found.listed if name.endswith(LOG_SUFFIX)}
        self._by_stem = {copy.segment.name.stem: copy for copy in found.copies}

    def links(self, copy: SegmentCopy) -> int:
        """Return how many stored copies are between this one and the far end of its chain."""
        count, stem = 0, copy.metadata.replaces
        while stem is not None and stem in self._by_stem and count < _MOST_LINKS:
            stem = self._by_stem[stem].metadata.replaces
            count += 1
        return count

    def remove(self, copy: SegmentCopy) -> Outcome | None:
        """Remove a copy; None if no copy replaces it, or it has no record of the list."""
        staying = self._found.near_ends(copy) if self._found.can_have(copy) else []
        made = next((each.key for each in staying if self._is_rewritten(each)), None)
        if made is None:
            if not staying or not self._may_have(copy):
                return None
            made = staying[0].key
        if why := self._why_kept(copy) or self._held() or why_locked(self._locked, self._keys_of(copy)):
            return Outcome(copy.key, Did.WAITS, why, made)
        if (lacking := self._found.lacking(copy, staying)) is not None:
            why = f"no copy that replaces it has offset {lacking}: repair it"
            return Outcome(copy.key, Did.HIDDEN, why, made)
        for each in staying:
            try:
                with rewritten(self._store, each, self._found.erased, limit=self._limit) as again:
                    if again is not None:
                        return Outcome(copy.key, Did.WAITS, f"{each.key}: rewrite it; it has records of the list", made)
                differing = self._differing(copy, each)
            except (HiddenOnly, BatchTooLarge, ObjectFrozen) as error:
                return Outcome(copy.key, Did.HIDDEN, f"{each.key}: {error}", made)
            if differing is not None:
                why = f"{each.key} has other records from offset {differing} on: compare them with tsctl verify"
                return Outcome(copy.key, Did.HIDDEN, why, made)
        return self._delete(copy, staying, made)

    def _is_rewritten(self, copy: SegmentCopy) -> bool:
        with suppress(ObjectNotFound):
            return erased_number(self._store.head(copy.key).metadata) > 0
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

    def _differing(self, copy: SegmentCopy, stays: SegmentCopy) -> int | None:
        """Return the first live offset where a copy that stays has another row; None also if the copy is damaged."""
        end = self._found.live_end(copy)
        try:
            return first_difference(self._store, copy, stays, end, self._found.erased, limit=self._limit)
        except CorruptData:
            return None

    def _why_kept(self, copy: SegmentCopy) -> str | None:
        stem = copy.metadata.replaces
        if stem in self._there:
            return f"it replaces {stem}{LOG_SUFFIX}, which stays: without it readers would choose that one"
        if (why := self._found.why_kept(copy)) is not None:
            return why
        # A copy that was put again under its name was replaced from then on, and no earlier.
        begun = max(_modified(each) for each in (copy, *self._found.replacing[copy.segment.name.stem]))
        return "a query that was planned before can still read it" if begun > self._before else None

    def _keys_of(self, copy: SegmentCopy) -> list[str]:
        return [info.key for info in self._objects_of(copy)]

    def _objects_of(self, copy: SegmentCopy) -> list[ObjectInfo]:
        """Return the objects of a copy as listed, the `.log` first."""
        names = (copy.segment.name.stem + suffix for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES))
        return [self._found.listed[name] for name in names if name in self._found.listed]

    def _delete(self, copy: SegmentCopy, staying: Sequence[SegmentCopy], made: str) -> Outcome:
        def look() -> None:
            if (why := self._held()) is not None:
                raise LeftOut(why, Why.HELD)
            commit, _ = read_commit(self._store, self._found.keys)
            if not isinstance(commit, Commit) or commit.lineage != self._found.commit.lineage:
                raise LeftOut(f"{self._found.keys.commit}: it went back meanwhile", Why.CHANGED)
            for each in staying:
                if self._store.head(each.key).etag != each.segment.etag:
                    raise LeftOut(f"{each.key}: it was written again meanwhile", Why.CHANGED)

        outcomes = [*objects.delete(self._store, self._objects_of(copy), locked=self._locked, look=look)]
        for info, outcome, error in outcomes:
            if outcome is not objects.Outcome.REMOVED:
                return Outcome(copy.key, Did.WAITS, f"{info.key}: {error or outcome}", made)
        self._there.discard(copy.segment.name.stem)
        return Outcome(copy.key, Did.REMOVED, "", made)


def _modified(copy: SegmentCopy) -> int:
    return copy.segment.modified or 0
