"""Phase 1 of retention: move `log.start` up, before any object is deleted (retention rule 1)."""

import secrets
from typing import Final

from ts_common.archive.catalog import read_commit, read_snapshot
from ts_common.archive.commit import Commit, LogStart, decode_log_start
from ts_common.archive.gc_plans import PlannedPartition
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.archive.plan import Hole
from ts_common.archive.small_objects import LOG_START_BYTES, get_small
from ts_common.archive.view import open_view
from ts_common.errors import ObjectNotFound, OutcomeUnknown, PreconditionFailed
from ts_common.store.contract import IfMatch, ObjectInfo, ObjectStore
from tsctl.gc.retention import UNREADABLE, LeftOut, Why

_CHANGED: Final = "log.start was written meanwhile, by an agent or another collector"
_OTHER_LINEAGE: Final = "the commit has another lineage than log.start; the leader's agent writes log.start next"


def read_log_start(store: ObjectStore, keys: PartitionKeys) -> tuple[LogStart, ObjectInfo]:
    """Return `log.start` and its info.

    Raises:
        LeftOut: it is missing, damaged, or of a later release.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    try:
        data, info = get_small(store, keys.log_start, LOG_START_BYTES)
        return decode_log_start(data, keys.log_start), info
    except ObjectNotFound as error:
        raise LeftOut(f"{keys.log_start} is missing; the leader's agent writes it when it next starts") from error
    except UNREADABLE as error:
        raise LeftOut(str(error)) from error


def move_log_start(
    store: ObjectStore, keys: PartitionKeys, start: int, target: int, run: str, *, is_over: bool = False
) -> LogStart:
    """Move `log.start` up, and return what it has afterwards; it is never moved down.

    `log.start` is read first, the commit second. The write is on the ETag that was read. If the commit went back below
    the target meanwhile, `log.start` goes back to its former content.

    Args:
        store: of the partition.
        keys: of the partition.
        start: the offset that it has, by the survey: an undo writes it again.
        target: an offset.
        run: name of the run that moves it.
        is_over: whether the incarnation is over, so that no transaction of it is open any more.

    Raises:
        LeftOut: the lineages differ, the target is above the next offset or an open transaction, or another process
            wrote one of the objects.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    before, info = read_log_start(store, keys)
    if before.offset != start:
        raise LeftOut(_CHANGED, Why.CHANGED)
    if before.offset >= target:
        return before
    _check(store, keys, before, target, is_over=is_over)
    after = LogStart(target, before.lineage, run)
    written = _write(store, keys, after, info.etag)
    try:
        _check(store, keys, after, target, is_over=is_over)
    except LeftOut:
        _write(store, keys, before, written)
        raise
    return after


def lower_log_start(
    store: ObjectStore, cluster: ClusterKeys, moved: PlannedPartition, run: str, reason: str, *, least: int = 0
) -> bool:
    """Move `log.start` back to where it was before a run, and return whether it moved.

    It goes back as far as readers then find no hole. Another run can have written it last, or an agent after an
    election or after the object was lost. Plans name the writer, so nothing is deleted by them afterwards. The
    caller has the lease of the store and has decided about all pending plans: no deletion is in progress.

    Args:
        store: of the partition.
        cluster: its keys.
        moved: the move; `moved.before` is where it goes back to.
        run: name of the run.
        reason: one word.
        least: it stays at this offset or above.

    Raises:
        LeftOut: an object of the partition is unreadable, or another process wrote it meanwhile.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    keys, target = moved.keys(cluster), max(moved.before, least)
    try:
        found, info = read_log_start(store, keys)
    except LeftOut:
        if moved.over or not any(True for _ in store.list(keys.prefix)):  # nothing reads it, or it was removed by hand
            return False
        raise
    if found.offset <= target or (offset := _without_hole(store, moved, keys, found, target)) >= found.offset:
        return False
    # Each write has an ETag of its own: a late one cannot succeed after another one of the same content.
    writer = f"{run}-{reason}-{secrets.token_hex(4)}"
    _write(store, keys, LogStart(offset, found.lineage, writer), info.etag)
    return True


def _without_hole(
    store: ObjectStore, moved: PlannedPartition, keys: PartitionKeys, log_start: LogStart, offset: int
) -> int:
    """Return the lowest offset, `offset` or above, that `log.start` can have without a new hole for readers."""
    try:
        catalog = read_snapshot(store, keys)
        commit = catalog.commit
        if not isinstance(commit, Commit) or not log_start.fits(commit.lineage):
            if moved.over:  # no run moves it there, and no agent writes it again
                return log_start.offset
            raise LeftOut(_OTHER_LINEAGE)
        shown = log_start.shown_from(commit.lineage)
        if shown <= offset:
            return log_start.offset
        plan = open_view(store, catalog).with_hidden(offset).plan(offset, shown)
    except UNREADABLE as error:
        raise LeftOut(str(error)) from error
    except ObjectNotFound as error:
        raise LeftOut(f"the partition changed meanwhile: {error}", Why.CHANGED) from error
    lowest = max((step.end for step in plan if isinstance(step, Hole) and not step.recorded), default=offset)
    return lowest if lowest < shown else log_start.offset


def _check(store: ObjectStore, keys: PartitionKeys, log_start: LogStart, target: int, *, is_over: bool) -> None:
    try:
        commit, _ = read_commit(store, keys)
    except UNREADABLE as error:
        raise LeftOut(str(error)) from error
    if not isinstance(commit, Commit) or commit.lineage != log_start.lineage:
        raise LeftOut(_OTHER_LINEAGE)
    stable = None if is_over else commit.last_stable_offset
    stable = commit.next_offset if stable is None else stable
    if target > min(commit.next_offset, stable):
        raise LeftOut(f"the commit went back: the archive ends at {commit.next_offset}, below {target}")


def _write(store: ObjectStore, keys: PartitionKeys, content: LogStart, etag: str) -> str:
    try:
        return store.put(keys.log_start, content.encode(), condition=IfMatch(etag)).etag
    except PreconditionFailed as error:
        raise LeftOut(_CHANGED, Why.CHANGED) from error
    except OutcomeUnknown as error:
        found, info = read_log_start(store, keys)
        if found != content:
            raise LeftOut(_CHANGED, Why.CHANGED) from error
        return info.etag
