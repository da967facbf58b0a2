"""Incarnations that are over: everything of them is due, with the commit and `log.start` at the end.

An incarnation is over once a later one of the topic was seen, or once the running cluster has not had the topic in any
run for a time. The list of incarnations stays. If an agent wrote the commit since the plan, it is not over.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit, LogStart
from ts_common.archive.gc_plans import PlannedObject
from ts_common.archive.object_keys import (
    CACHE_DIRECTORY,
    COMMIT_NAME,
    FORMER_CACHE_DIRECTORY,
    GAPS_DIRECTORY,
    LOG_START_NAME,
    PartitionKeys,
    SegmentName,
)
from ts_common.errors import OutcomeUnknown, PreconditionFailed
from ts_common.store.contract import IfMatch, ObjectInfo, ObjectStore
from tsctl.gc.moving import move_log_start, read_log_start
from tsctl.gc.retention import UNREADABLE, LeftOut, Why

# Deleted in this order after everything else: without a commit, agents and readers do not use `log.start`.
MARKS = (COMMIT_NAME, LOG_START_NAME)


@dataclass(frozen=True, slots=True)
class Over:
    """A partition in an incarnation that is over.

    Attributes:
        commit: its commit; None without one.
        log_start: its `log.start`; None without one.
        objects: all its objects under names that agents write, ascending.
    """

    commit: Commit | None
    log_start: LogStart | None
    objects: tuple[PlannedObject, ...]

    @property
    def start(self) -> int:
        """The first offset that readers return; 0 without `log.start`."""
        if self.log_start is None:
            return 0
        return self.log_start.offset if self.commit is None else self.log_start.shown_from(self.commit.lineage)


def read_over(store: ObjectStore, keys: PartitionKeys) -> Over:
    """Return what a partition in an incarnation that is over has.

    Raises:
        LeftOut: the commit is unreadable, or of the Java uploader.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    commit = _read_commit(store, keys)
    objects = _own(keys, store.list(keys.prefix))
    has_start = any(each.name == LOG_START_NAME for each in objects)
    return Over(commit, read_log_start(store, keys)[0] if has_start else None, objects)


def _read_commit(store: ObjectStore, keys: PartitionKeys) -> Commit | None:
    try:
        commit, _ = read_commit(store, keys)
    except UNREADABLE as error:
        raise LeftOut(str(error)) from error
    if commit is not None and not isinstance(commit, Commit):
        raise LeftOut(
            f"{keys.commit} is of the Java uploader, which ships a later topic of that name to the same keys: if none "
            "does, delete the partition by hand"
        )
    return commit


def hide(store: ObjectStore, keys: PartitionKeys, over: Over, run: str) -> None:
    """Move `log.start` to the end for a run, so that no reader reads the incarnation while it is deleted.

    The last agent may have ended between a commit that went back and its `log.start`. No agent writes `log.start` any
    more, so it gets the commit's lineage here first. If its lineage is the later one, readers fail already, and it
    stays.

    Raises:
        LeftOut: as `move_log_start`.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    if over.commit is None or over.log_start is None or not over.log_start.fits(over.commit.lineage):
        return
    start = over.log_start.offset
    if over.log_start.lineage != over.commit.lineage:
        start = _settle(store, keys, over.commit, over.log_start, run)
    move_log_start(store, keys, start, over.commit.next_offset, run, is_over=True)


def _settle(store: ObjectStore, keys: PartitionKeys, commit: Commit, log_start: LogStart, run: str) -> int:
    """Write `log.start` with the commit's lineage, and return its offset; readers begin where they began before."""
    found, info = read_log_start(store, keys)
    if found != log_start or _read_commit(store, keys) != commit:
        raise LeftOut("an agent wrote the commit or log.start meanwhile", Why.CHANGED)
    settled = LogStart(log_start.shown_from(commit.lineage), commit.lineage, f"{run}-settled")
    try:
        store.put(keys.log_start, settled.encode(), condition=IfMatch(info.etag))
    except (PreconditionFailed, OutcomeUnknown) as error:  # the next run reads what it is now
        raise LeftOut(f"log.start was not written: {error}", Why.CHANGED) from error
    return settled.offset


def has_before(name: str, left: Iterable[str]) -> bool:
    """Return whether a mark has to stay because something is left that is deleted before it.

    Args:
        name: of an object of the incarnation.
        left: the names of the objects that are left.
    """
    return name in MARKS and not set(left).issubset(MARKS[MARKS.index(name) :])


def _own(keys: PartitionKeys, listed: Iterable[ObjectInfo]) -> tuple[PlannedObject, ...]:
    objects = {info.key.removeprefix(keys.prefix): info for info in listed}
    directories = (GAPS_DIRECTORY, CACHE_DIRECTORY, FORMER_CACHE_DIRECTORY)
    chosen = (
        name for name in objects if name in MARKS or SegmentName.parse(name) is not None or name.startswith(directories)
    )
    return tuple(PlannedObject(name, objects[name].size, objects[name].etag) for name in sorted(chosen))
