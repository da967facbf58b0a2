"""Show the records of held partitions again that a plan hides, as long as nothing of them was deleted.

A note is written first. From then on nothing of the partition is deleted by this plan, and an agent that writes a lost
`log.start` does not hide the records again. If the move of `log.start` fails, each run tries it again under the hold.
"""

from collections.abc import Iterable
from typing import Final

from ts_common.archive.gc_plans import PlannedObject, PlannedPartition, decode_planned
from ts_common.archive.gc_runs import BACK, SHOWN, RunObjects, note_key, write_once
from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.small_objects import get_small
from ts_common.errors import CorruptData
from ts_common.store.contract import ObjectStore
from tsctl.gc.moving import lower_log_start
from tsctl.gc.retention import LeftOut, Retention, Skipped, Why

_NOTE_BYTES: Final = 16 << 10


def show_again(
    store: ObjectStore,
    cluster: ClusterKeys,
    run: RunObjects,
    partition: PlannedPartition,
    objects: Iterable[PlannedObject],
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
    listed = {info.key.removeprefix(keys.prefix) for info in store.list(keys.prefix)}
    if any(each.name not in listed for each in objects):
        return False
    write_once(store, note_key(run, SHOWN, keys.directory), f"{partition.encode()}\n".encode())
    return _show(store, cluster, run, partition)


def show_half_shown(
    store: ObjectStore, cluster: ClusterKeys, runs: Iterable[RunObjects], retention: Retention
) -> list[Skipped]:
    """Complete what earlier runs did not, for partitions that are still held; return what is left out again.

    Raises:
        OutcomeUnknown, StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    skipped: list[Skipped] = []
    for run in runs:
        for directory in run.half_shown():
            try:
                key = note_key(run, SHOWN, directory)
                partition = decode_planned(get_small(store, key, _NOTE_BYTES)[0], key)
                if _is_held(retention, partition):
                    _show(store, cluster, run, partition)
            except (CorruptData, LeftOut) as error:
                left = error if isinstance(error, LeftOut) else LeftOut(str(error))
                skipped.append(Skipped.of(directory, left))
    return skipped


def _show(store: ObjectStore, cluster: ClusterKeys, run: RunObjects, partition: PlannedPartition) -> bool:
    moved = lower_log_start(store, cluster, partition, run.run, "held")
    write_once(store, note_key(run, BACK, partition.keys(cluster).directory), b"{}\n")
    return moved


def _is_held(retention: Retention, partition: PlannedPartition) -> bool:
    try:
        retention.check_holds(partition.partition.topic)
    except LeftOut as left:
        return left.why is Why.HELD
    return False
