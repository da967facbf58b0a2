"""Show the records of held partitions again that a plan hides, as long as nothing of them was deleted.

A note is written first. From then on nothing of the partition is deleted by this plan, and an agent that writes a lost
`log.start` does not hide the records again. If the move of `log.start` fails, each run tries it again under the hold.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from ts_common.archive.gc_plans import PlannedObject, PlannedPartition, decode_planned, read_parts, read_plan
from ts_common.archive.gc_runs import BACK, SHOWN, RunObjects, note_key, write_once
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.archive.small_objects import get_small
from ts_common.errors import CorruptData, NewerFormat, ObjectNotFound
from ts_common.store.contract import ObjectStore
from tsctl.gc.moving import lower_log_start
from tsctl.gc.retention import LeftOut, Retention, Skipped, Why

_NOTE_BYTES: Final = 16 << 10


def show_again(
    store: ObjectStore,
    cluster: ClusterKeys,
    run: RunObjects,
    partition: PlannedPartition,
    objects: Sequence[PlannedObject],
) -> bool:
    """Move `log.start` of a held partition back, and return whether it moved.

    It stays if anything of the plan is no longer there.

    Args:
        store: of the partition.
        cluster: its keys.
        run: of the plan.
        partition: of the plan.
        objects: of the partition in the plan.

    Raises:
        LeftOut: `log.start` could not be moved; each run tries it again.
        OutcomeUnknown, StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    keys = partition.keys(cluster)
    if partition.before >= partition.after:
        return False
    if not _are_listed(store, keys, objects):
        return False
    write_once(store, note_key(run, SHOWN, keys.directory), f"{partition.encode()}\n".encode())
    return _show(store, cluster, run, partition, objects)


def show_half_shown(
    store: ObjectStore, cluster: ClusterKeys, runs: Iterable[RunObjects], retention: Retention
) -> list[Skipped]:
    """Complete what earlier runs did not, for partitions that are still held; return what is left out again.

    Raises:
        OutcomeUnknown, StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    skipped: list[Skipped] = []
    for run in runs:
        for key in run.half_shown():
            where = key
            try:
                partition = decode_planned(get_small(store, key, _NOTE_BYTES)[0], key)
                where = partition.keys(cluster).directory
                if _is_held(retention, partition):
                    _show(store, cluster, run, partition, _objects(store, cluster, run, partition))
            except (CorruptData, NewerFormat, ObjectNotFound, LeftOut) as error:
                left = error if isinstance(error, LeftOut) else LeftOut(str(error))
                skipped.append(Skipped.of(where, left))
    return skipped


def _objects(
    store: ObjectStore, cluster: ClusterKeys, run: RunObjects, partition: PlannedPartition
) -> Sequence[PlannedObject]:
    keys = partition.keys(cluster)
    parts = read_parts(store, cluster, read_plan(store, cluster, run.run))
    return [each for planned, objects in parts if planned.keys(cluster) == keys for each in objects]


def _show(
    store: ObjectStore,
    cluster: ClusterKeys,
    run: RunObjects,
    partition: PlannedPartition,
    objects: Iterable[PlannedObject],
) -> bool:
    """Move `log.start` back, unless a later run deleted an object of the plan; then the note has no effect any more."""
    keys = partition.keys(cluster)
    is_whole = _are_listed(store, keys, objects)
    moved = is_whole and lower_log_start(store, cluster, partition, run.run, "held")
    write_once(store, note_key(run, BACK, keys.directory), b"{}\n")
    return moved


def _are_listed(store: ObjectStore, keys: PartitionKeys, objects: Iterable[PlannedObject]) -> bool:
    listed = {info.key.removeprefix(keys.prefix) for info in store.list(keys.prefix)}
    return all(each.name in listed for each in objects)


def _is_held(retention: Retention, partition: PlannedPartition) -> bool:
    try:
        retention.check_holds(partition.partition.topic)
    except LeftOut as left:
        return left.why is Why.HELD
    return False
