"""Lives of topics that are over: everything of them is due, with the commit and `log.start` at the end.

A life is over once a later incarnation of the topic was seen, or once the running cluster has not had the topic in any
run for a time. The list of incarnations stays. If an agent wrote the commit since the plan, the life is not over.
"""

from collections.abc import Iterable

from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit
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
from ts_common.errors import CorruptData, NewerFormat
from ts_common.store.contract import ObjectInfo, ObjectStore
from tsctl.gc.moving import move_log_start
from tsctl.gc.retention import LeftOut

# Deleted in this order after everything else: without a commit, agents and readers do not use `log.start`.
MARKS = (COMMIT_NAME, LOG_START_NAME)


def read_over(store: ObjectStore, keys: PartitionKeys) -> tuple[Commit | None, list[PlannedObject]]:
    """Return the commit of a partition in a life that is over, and all its objects under names that agents write.

    Raises:
        LeftOut: the commit is unreadable, or of the Java uploader.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    try:
        commit, _ = read_commit(store, keys)
    except (CorruptData, NewerFormat) as error:
        raise LeftOut(str(error)) from error
    if commit is not None and not isinstance(commit, Commit):
        raise LeftOut("the partition has a commit of the Java uploader")
    return commit, _own(keys, store.list(keys.prefix))


def hide(store: ObjectStore, keys: PartitionKeys, commit: Commit) -> None:
    """Move `log.start` to the end, so that no reader reads the life while it is deleted.

    Raises:
        LeftOut: as `move_log_start`.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    move_log_start(store, keys, commit.next_offset, is_over=True)


def _own(keys: PartitionKeys, listed: Iterable[ObjectInfo]) -> list[PlannedObject]:
    objects = {info.key.removeprefix(keys.prefix): info for info in listed}
    directories = (GAPS_DIRECTORY, CACHE_DIRECTORY, FORMER_CACHE_DIRECTORY)
    chosen = (
        name
        for name in objects
        if name in MARKS or SegmentName.parse(name) is not None or name.startswith(directories)
    )
    return [PlannedObject(name, objects[name].size, objects[name].etag) for name in sorted(chosen)]
