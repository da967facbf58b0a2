"""The copies of a partition that can have erased records, and what keeps them (erase rule 6).

A list is the greatest that a listing shows, as for readers. The evidence of runs has the list that a rewritten copy
obeys, so a run reads it again only once a greater list exists.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Final

from ts_common.archive.catalog import read_log_start, read_snapshot
from ts_common.archive.commit import Commit, LogStart
from ts_common.archive.copies import SegmentCopy, describe
from ts_common.archive.erased_offsets import ErasedOffsets
from ts_common.archive.erasures import Obeyed
from ts_common.archive.object_keys import PartitionKeys
from ts_common.errors import ObjectNotFound
from ts_common.json_objects import MAX_INT64
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_common.store.protection import Lock
from tsctl.gc.objects import Locked, is_of_later_leader
from tsctl.gc.retention import LeftOut, Why

Held = Callable[[], str | None]
"""Returns why bytes of the topic must stay now; None if nothing keeps them."""


Noted = Obeyed
NOTHING_NOTED: Final[Noted] = MappingProxyType({})


class Did(StrEnum):
    """What a run did with a copy."""

    READ = "read"  # it has no record of the list
    REWRITTEN = "rewritten"
    REMOVED = "removed"
    TO_REWRITE = "to rewrite"  # of a dry run
    TO_REMOVE = "to remove"  # of a dry run, after the grace
    WAITS = "waits"  # a later run can do it
    HIDDEN = "hidden only"  # a person must act; until then the list hides its records


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one copy with erased records, or of an earlier version of its object.

    Attributes:
        key: of its `.log`; the prefix of the partition for copies that could not be described.
        reason: why it stays as it is; empty otherwise.
        made: key of the `.log` that replaces it; None without one.
        records: the number of records that the new one lacks.
        batches: the number of batches that had them.
        before: SHA-256 of the old `.log`, hexadecimal; empty if it was not read whole.
        after: SHA-256 of the new one; empty if nothing was put.
        bytes: of the new one; 0 if nothing was put.
        until: the earliest time that its reason ends, milliseconds since the epoch; None if that is unknown.
        base: of the copy: it has no record of a lower offset.
        obeys: number of the list whose records it lacks; 0 if no eraser put it.
        version: id of the earlier version of the object that this is about; empty for the object itself.
        etag: of the new one, or of a copy without such records; empty for others.
        list: number of the list whose records the object with this ETag lacks; 0 without one.
    """

    key: str
    did: Did
    reason: str = ""
    made: str | None = None
    records: int = 0
    batches: int = 0
    before: str = ""
    after: str = ""
    bytes: int = 0
    until: int | None = None
    base: int = 0
    obeys: int = 0
    version: str = ""
    etag: str = ""
    list: int = 0


@dataclass(frozen=True)
class ErasedCopies:
    """The copies of a partition with a list, at one moment.

    Attributes:
        copies: all that could be described, in the order of their bases: dead tails and hidden ones too.
        listed: every object of the directory, by its name in it.
        erased: the offsets of the greatest list.
        number: of a list that `erased` contains.
        floor: what ends at or below it is released: retention deletes it. 0 if that is unknown.
        unread: a sentence for each copy that could not be described.
        noted: by key and ETag, the number of the list whose records an object lacks, as the evidence of runs has it.
            Agents can write any `ts-erased`, so that of an object proves nothing.
    """

    keys: PartitionKeys
    commit: Commit
    copies: tuple[SegmentCopy, ...]
    listed: Mapping[str, ObjectInfo]
    erased: ErasedOffsets
    number: int
    floor: int
    unread: tuple[str, ...]
    noted: Noted

    def obeys(self, info: ObjectInfo) -> int:
        """Return the number of the list whose records an object lacks; 0 if no run has noted that."""
        return self.noted.get((info.key, info.etag), 0)

    @cached_property
    def replacing(self) -> Mapping[str, Sequence[SegmentCopy]]:
        """The copies that replace others, by the stem that their metadata names."""
        found = dict[str, list[SegmentCopy]]()
        for copy in self.copies:
            if copy.metadata.replaces is not None:
                found.setdefault(copy.metadata.replaces, []).append(copy)
        return found

    def near_ends(self, copy: SegmentCopy) -> list[SegmentCopy]:
        """Return the copies that readers choose instead of one: no other replaces them. A ring has none."""
        found, waiting, seen = list[SegmentCopy](), [copy], {copy.key}
        while waiting:
            each = waiting.pop()
            replacing = self.replacing.get(each.segment.name.stem, ())
            if not replacing and each is not copy:
                found.append(each)
            waiting += [other for other in replacing if other.key not in seen]
            seen |= {other.key for other in replacing}
        return found

    def live_end(self, copy: SegmentCopy) -> int:
        """Return the end of the live part of a copy."""
        return self.commit.epochs.live_end(copy.metadata.epochs or (), copy.base, copy.end)

    def lacking(self, copy: SegmentCopy, staying: Sequence[SegmentCopy]) -> int | None:
        """Return the first offset of a copy that those which stay lack, now or after an election; None without one."""
        lacking = [
            first_outside(copy.base, end_of(copy), [(each.base, end_of(each)) for each in staying])
            for end_of in (_end, self.live_end)
        ]
        return min((offset for offset in lacking if offset is not None), default=None)

    def can_have(self, copy: SegmentCopy) -> bool:
        """Return whether a copy can have a record of the list."""
        return self.erased.meets(copy.base, MAX_INT64 if copy.may_overrun else copy.end)

    def is_replaced(self, copy: SegmentCopy) -> bool:
        """Return whether others have all offsets of a copy in its place.

        A name alone does not decide: an agent can ship another segment under the name of a removed one.
        """
        staying = self.near_ends(copy)
        return bool(staying) and self.lacking(copy, staying) is None

    def why_kept(self, copy: SegmentCopy) -> str | None:
        """Return why a copy must stay as it is for now; None if nothing of the archive needs it."""
        commit = self.commit
        if copy.base == commit.highest_base:
            return f"it is the last segment in {self.keys.commit}: it stays as it is until a later one is committed"
        if copy.end >= commit.next_offset or (commit.tail is not None and copy.base <= commit.tail[0] < copy.end):
            return f"the log of the leader is compared with it, until a later segment is in {self.keys.commit}"
        if is_of_later_leader(copy, commit):
            return "a leader that has not committed yet shipped it"
        if copy.end <= self.floor:
            return "retention has released it, and deletes it"
        return None


def read_erased_copies(store: ObjectStore, keys: PartitionKeys, noted: Noted = NOTHING_NOTED) -> ErasedCopies | None:
    """Return the copies of a partition; None without a list of erased offsets.

    Args:
        noted: as of `ErasedCopies`; an object that it lacks is read again.

    Raises:
        LeftOut: no agent committed it, or its commit and `log.start` do not fit now.
        CorruptData: the commit, `log.start` or the list is damaged, or a list was lost.
        NewerFormat: a later release wrote one of them.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    listed = dict[str, ObjectInfo]()

    def note(info: ObjectInfo) -> None:
        listed[info.key.removeprefix(keys.prefix)] = info

    catalog = read_snapshot(store, keys, seen=note)
    log_start = None if catalog.stored_log_start is None else catalog.stored_log_start.content
    number = catalog.erased_number
    if not number:
        return None
    if not isinstance(catalog.commit, Commit):
        raise LeftOut(f"{keys.commit} is not of an agent, so no copy is changed: the list alone hides records")
    if log_start is None or not catalog.settled:
        raise LeftOut(
            f"{keys.log_start} is missing, or has another lineage than the commit; the leader's agent writes it",
            Why.CHANGED,
        )
    erased = catalog.read_erased(store)
    unread = list[str]()
    copies = describe(store, keys, catalog.segments, catalog.cache_objects, damaged=unread, removed=[])
    floor = _floor(store, keys, log_start)
    return ErasedCopies(keys, catalog.commit, copies, listed, erased, number, floor, tuple(unread), noted)


def _floor(store: ObjectStore, keys: PartitionKeys, log_start: LogStart) -> int:
    """Return the floor that counts: the least of `log.start` and its copy (retention rule 2); 0 if it is unknown.

    Agents may not write the copy, so they cannot declare a copy or a version released.
    """
    copy = None if log_start.floor is None else read_log_start(store, keys.cluster.log_start_copy(keys))
    if log_start.floor is None or copy is None or copy.content.floor is None:
        return 0
    return min(log_start.floor, log_start.offset, copy.content.floor, copy.content.offset)


def why_left(store: ObjectStore, copy: SegmentCopy) -> Outcome | None:
    """Return that a copy stays, because an object next to it was not found; None if retention removed the copy itself.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    try:
        store.head(copy.key)
    except ObjectNotFound:
        return None
    return Outcome(copy.key, Did.WAITS, "an object next to it was removed meanwhile", base=copy.base)


def lock_of(locked: Locked, keys: Sequence[str]) -> Lock | None:
    """Return the lock of one of some objects that ends last; None if the store keeps none of them."""
    return max(locked(keys).values(), key=lambda lock: (lock.legal_hold, lock.until or 0.0), default=None)


def end_of(lock: Lock | None) -> int | None:
    """Return when a lock ends, milliseconds since the epoch; None without a known end."""
    return None if lock is None or lock.until is None or lock.legal_hold else int(lock.until * 1000)


def _end(copy: SegmentCopy) -> int:
    return copy.end


def first_outside(start: int, end: int, ranges: Iterable[tuple[int, int]]) -> int | None:
    """Return the first offset of `[start, end)` that no range has; None if they have all."""
    for low, high in sorted(ranges):
        if low <= start:
            start = max(start, high)
    return start if start < end else None
