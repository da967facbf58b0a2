"""The writes of one step: each is a conditional write of `log.start` and its copy, or a deletion.

`partition.py` decides which of them is due. An object that another process wrote since it was read ends the step.
"""

from dataclasses import replace
from typing import Final

from ts_common.archive.catalog import StoredLogStart, read_log_start
from ts_common.archive.commit import LogStart
from ts_common.errors import OutcomeUnknown, PreconditionFailed
from ts_common.store.contract import IfAbsent, IfMatch
from tsctl.gc.partition import Partition, Work
from tsctl.gc.retention import LeftOut, Why

CHANGED: Final = "log.start was written meanwhile, by an agent or another collector"


def hide(work: Work, partition: Partition, target: int) -> None:
    """Raise the start: `log.start` first, then its copy.

    Raises:
        LeftOut: another process wrote one of them.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    content = _next(work, partition, target, partition.known_floor)
    content = replace(content, since=content.written_by)
    put(work, partition.keys.log_start, content, partition.log_start)
    put_copy(work, partition, content)
    work.report.add(partition.keys, "hidden", start=partition.start, to=target, limit=str(partition.found.limit))


def show(work: Work, partition: Partition) -> None:
    """Lower the start to the target, but not below the floor: the copy loses `since` before, and is written after.

    Raises:
        As `hide`.
    """
    target = partition.shown_from
    if partition.copy is not None:
        before = replace(partition.copy.content, since=None, written_by=work.writer())
        partition = replace(partition, copy=put_copy(work, partition, before))
    content = _next(work, partition, target, partition.known_floor)
    put(work, partition.keys.log_start, content, partition.log_start)
    put_copy(work, partition, content)
    work.report.add(partition.keys, "shown", start=target, to=partition.start, limit=str(partition.found.limit))


def release(work: Work, partition: Partition) -> Partition:
    """Raise the floor to the start, in the copy first; from then on nothing below shows again."""
    start = partition.start
    _look(work, partition)
    content = _next(work, partition, start, start)
    kept = None if partition.copy is None else partition.copy.content.since
    copy = put_copy(work, partition, replace(content, since=kept))
    log_start = put(work, partition.keys.log_start, content, partition.log_start)
    return replace(partition, copy=copy, log_start=log_start, floor=start)


def delete(work: Work, partition: Partition, below: int) -> bool:
    """Delete what the listing showed below an offset; return whether all of it is removed."""
    objects = partition.removable(below, work.now)
    return work.report.deleting(
        work.store, partition.keys, objects, locked=work.locked, look=lambda: _look(work, partition)
    )


def _look(work: Work, partition: Partition) -> None:
    """Raise `LeftOut` if a hold was set, or `log.start` was written, since it was read."""
    work.retention.check_holds(partition.keys.partition.topic)
    if read_log_start(work.store, partition.keys.log_start) != partition.log_start:
        raise LeftOut(CHANGED, Why.CHANGED)


def _next(work: Work, partition: Partition, start: int, floor: int | None) -> LogStart:
    """Return the next content of `log.start`, with all fields that are not the collector's."""
    former = partition.log_start.content
    since = former.since if floor != start and partition.floor < start <= former.offset else None
    return replace(former, offset=start, floor=floor, since=since, written_by=work.writer())


def put_copy(work: Work, partition: Partition, content: LogStart) -> StoredLogStart:
    """Write the copy of `log.start`, on the ETag of the former one; it raises as `put`."""
    content = replace(content, written_by=content.written_by or work.writer())
    return put(work, work.cluster.log_start_copy(partition.keys), content, partition.copy)


def put(work: Work, key: str, content: LogStart, former: StoredLogStart | None) -> StoredLogStart:
    """Write `log.start` or its copy, on the ETag of the former one.

    Raises:
        LeftOut: another process wrote it.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    try:
        etag = work.store.put(key, content.encode(), condition=IfMatch(former.etag) if former else IfAbsent()).etag
    except PreconditionFailed as error:
        raise LeftOut(CHANGED, Why.CHANGED) from error
    except OutcomeUnknown as error:
        found = read_log_start(work.store, key)
        if found is None or found.content != content:
            raise LeftOut(CHANGED, Why.CHANGED) from error
        etag = found.etag
    if key.startswith(work.cluster.log_start_copies):
        work.copies.add(key)
    return StoredLogStart(content, etag)
