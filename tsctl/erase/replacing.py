"""Puts rewritten copies next to the stored ones, which they replace for all readers (erase rule 6).

Nothing is deleted here, and a run that is killed leaves whole copies only: the next one finds them. The list hides the
same records before and after each put, so no order of puts matters to readers.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from secrets import token_hex
from typing import Final

from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.object_keys import PartitionKeys, SegmentName
from ts_common.archive.segment_inspection import scan_object
from ts_common.archive.segment_metadata import ERASED_FIELD, decode_metadata, erased_number
from ts_common.archive.small_objects import INDEX_BYTES, get_small
from ts_common.archive.unsealing import unsealed
from ts_common.errors import BatchTooLarge, CorruptData, NewerFormat, ObjectNotFound, OperatorError, PreconditionFailed
from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit
from ts_common.store.contract import IfAbsent, ObjectInfo, ObjectStore
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
from tsctl.erase.rewriting import HiddenOnly, Rewritten, rewritten
from tsctl.gc.objects import Locked
from tsctl.gc.retention import LeftOut, Why

_REPAIRS: Final = 99  # names of equal bytes that replace different copies
_MILLISECONDS: Final = 1000


def replace_copies(
    store: ObjectStore,
    keys: PartitionKeys,
    *,
    held: Held,
    locked: Locked,
    limit: BatchLimit = DEFAULT_LIMIT,
    noted: Noted = NOTHING_NOTED,
    read: Callable[[Outcome], None] = lambda _: None,
    writes: bool = True,
) -> Iterator[Outcome]:
    """Put a copy without erased records for each copy of a partition that has some; yield what became of each.

    If others have all offsets of a copy in its place, it is not rewritten: readers do not choose it, and it is removed.

    Args:
        held: is called before each put.
        locked: returns, by key, the lock of each object that the store keeps.
        noted: as of `tsctl.erase.erased_copies.ErasedCopies`.
        read: called for each copy that was read and has no record of the list.
        writes: False for a dry run: no copy is read, so one that only can have such records is yielded too.

    Raises:
        LeftOut: the partition stays as it is now, or its commit changed meanwhile.
        CorruptData, NewerFormat: as `read_erased_copies`.
        OutcomeUnknown: a put had no answer; the same call finds what it put.
        OperatorError: no temporary file can be written, or no name is free.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    found = read_erased_copies(store, keys, noted)
    if found is None:
        return
    for reason in found.unread:
        yield Outcome(keys.prefix, Did.HIDDEN, reason)
    for copy in found.copies:
        if found.can_have(copy) and not found.is_replaced(copy):
            try:
                outcome = _replace(store, found, copy, held, locked, limit, writes=writes)
            except ObjectNotFound:
                outcome = why_left(store, copy)
            if outcome is None:
                continue
            if outcome.did is Did.READ:
                read(outcome)
            else:
                yield outcome


def _replace(
    store: ObjectStore,
    found: ErasedCopies,
    copy: SegmentCopy,
    held: Held,
    locked: Locked,
    limit: BatchLimit,
    *,
    writes: bool,
) -> Outcome | None:
    """Put the copy that replaces another one; None if a run has noted that this one has no erased record."""
    obeys = found.obeys(info := store.head(copy.key))
    if obeys >= found.number:
        return None
    outcome = Outcome(copy.key, Did.TO_REWRITE, base=copy.base, obeys=obeys)
    if (why := found.why_kept(copy) or held()) is not None:
        return replace(outcome, did=Did.WAITS, reason=why)
    if (lock := lock_of(locked, [copy.key])) is not None:
        return replace(outcome, did=Did.WAITS, reason=lock.reason, until=end_of(lock))
    if not writes:
        return outcome
    try:
        with rewritten(store, copy, found.erased, limit=limit) as new:
            if new is None:
                if store.head(copy.key).etag != info.etag:
                    raise LeftOut(f"{copy.key}: it was written again meanwhile; the next run continues", Why.CHANGED)
                return replace(outcome, did=Did.READ, etag=info.etag, list=found.number)
            if (why := held()) is not None:
                return replace(outcome, did=Did.WAITS, reason=why)
            made = _put(store, found, copy, new)
            return replace(
                outcome,
                did=Did.REWRITTEN,
                made=made.key,
                etag=made.etag,
                list=found.number,
                records=new.records,
                batches=new.batches,
                before=new.before,
                after=new.after,
                bytes=new.size,
            )
    except (HiddenOnly, BatchTooLarge) as error:
        return replace(outcome, did=Did.HIDDEN, reason=str(error))


def _put(store: ObjectStore, found: ErasedCopies, copy: SegmentCopy, new: Rewritten) -> ObjectInfo:
    """Put a rewritten copy, unless another run did; return its object."""
    fields = new.metadata.encode() | {ERASED_FIELD: str(found.number)}
    token = f"{int(store.current_time() * _MILLISECONDS):013d}-erase-{token_hex(4)}"
    with unsealed(store, found.keys, token, copy.base, max(copy.end, copy.base + 1)):
        epoch = _checked_epoch(store, found, copy, new)
        for number in (None, *range(1, _REPAIRS + 1)):
            name = SegmentName(copy.base, epoch, new.metadata.crc32c, number)
            key = found.keys.segment(name)
            if _is_free(store, key) and (put := _put_objects(store, found.keys, name, new, fields)) is not None:
                return put
            if (same := _same(store, key, new, fields)) is not None:
                return same
    raise OperatorError(f"{key}: other objects have all names of this copy; compare the partition with tsctl verify")


def _checked_epoch(store: ObjectStore, found: ErasedCopies, copy: SegmentCopy, new: Rewritten) -> int:
    """Return the commit's leader epoch now, which is a part of the name.

    Raises:
        LeftOut: the commit went back, or the copy is another object by now: rewriting it took minutes.
        ObjectNotFound: it was removed.
    """
    commit, _ = read_commit(store, found.keys)
    if not isinstance(commit, Commit) or commit.lineage != found.commit.lineage:
        raise LeftOut(f"{found.keys.commit}: it went back meanwhile; the next run continues", Why.CHANGED)
    if store.head(copy.key).etag != new.etag:
        raise LeftOut(f"{copy.key}: it was written again meanwhile; the next run continues", Why.CHANGED)
    return commit.epoch


def _is_free(store: ObjectStore, key: str) -> bool:
    try:
        store.head(key)
    except ObjectNotFound:
        return True
    return False


def _put_objects(
    store: ObjectStore, keys: PartitionKeys, name: SegmentName, new: Rewritten, fields: Mapping[str, str]
) -> ObjectInfo | None:
    """Put the indexes, then the `.log`, and return that; None if others have one of the names."""
    for suffix, data in new.indexes.items():
        key = keys.segment(name, suffix)
        try:
            store.put(key, data, condition=IfAbsent(), archived=True)
        except PreconditionFailed:
            with suppress(CorruptData):
                if get_small(store, key, INDEX_BYTES)[0] == data:  # a killed run put it
                    continue
            return None
    new.file.seek(0)
    try:
        return store.put(
            keys.segment(name),
            new.file,
            size=new.size,
            metadata=fields,
            condition=IfAbsent(),
            crc32c=new.metadata.crc32c,
            archived=True,
        )
    except PreconditionFailed:
        return None


def _same(store: ObjectStore, key: str, new: Rewritten, fields: Mapping[str, str]) -> ObjectInfo | None:
    """Return this copy if another run put it; its list can be a later one. Bytes are compared, not metadata alone."""
    try:
        info = store.head(key)
        found = decode_metadata(info.metadata, key)
        if found != decode_metadata(fields, key) or erased_number(info.metadata) < erased_number(fields):
            return None
        is_same = info.size == new.size and scan_object(store, key, info.size).crc32c == new.metadata.crc32c
    except (ObjectNotFound, CorruptData, NewerFormat):
        return None
    return info if is_same else None
