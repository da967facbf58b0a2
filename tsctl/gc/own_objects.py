"""Objects that retention, repair and agents' checks write themselves: they are deleted by their own ages."""

from collections.abc import Iterator
from typing import Final

from ts_common.archive.gc_runs import (
    CLAIM_NAME,
    DONE_NAME,
    PLAN_NAME,
    VOID_NAME,
    RunObjects,
    Use,
    list_runs,
    read_claim,
)
from ts_common.archive.object_keys import PROBE_NAME, ClusterKeys
from ts_common.errors import CorruptData, NewerFormat, ObjectNotFound
from ts_common.store.contract import DeleteOutcome, ObjectInfo, ObjectStore
from tsctl.gc.deletion import Locked
from tsctl.gc.deletion_log import LOG
from tsctl.gc.policy import OwnObjects

_LAST: Final = frozenset({CLAIM_NAME, DONE_NAME, VOID_NAME})
_ORDERED: Final = _LAST | {PLAN_NAME}


def old_objects(store: ObjectStore, keys: ClusterKeys, own: OwnObjects, now: int) -> Iterator[ObjectInfo]:
    """Yield the objects that are older than their age. The newest plan that was not undone stays.

    A lost `log.start` is written by it.

    Args:
        store: of the cluster.
        keys: its keys.
        own: the ages.
        now: milliseconds since the epoch, by the clock of the store.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    runs = list_runs(store, keys)
    plans = (run for run in reversed(runs) if run.planned is not None)
    newest = next((run.run for run in plans if not _is_undone(store, keys, run)), None)
    for run in runs:
        if not run.is_pending:
            yield from _of_run(run, own, now, is_newest=run.run == newest)
    for prefix, age in ((keys.repairs, own.repairs), (PROBE_NAME, own.probes)):
        yield from (info for info in store.list(prefix) if _is_older(info, age, now))


def delete_old(
    store: ObjectStore, keys: ClusterKeys, own: OwnObjects, now: int, *, locked: Locked = lambda _: {}
) -> DeleteOutcome:
    """Delete these objects, except those that the store keeps; raise as `old_objects`.

    A run's `plan.json` is deleted first, and what shows that it is not pending last: a killed run leaves no undone plan
    that would be deleted by.

    Args:
        store: of the cluster.
        keys: its keys.
        own: the ages.
        now: milliseconds since the epoch, by the clock of the store.
        locked: returns, by key, why the store keeps an object.
    """
    etags = {info.key: info.etag for info in old_objects(store, keys, own, now)}
    held = locked(list(etags)) if etags else {}
    etags = {key: etag for key, etag in etags.items() if key not in held}
    found = store.delete_matching({key: etag for key, etag in etags.items() if _name(key) == PLAN_NAME})
    found = found.joined(
        store.delete_matching({key: etag for key, etag in etags.items() if _name(key) not in _ORDERED})
    )
    if last := {key: etag for key, etag in etags.items() if _name(key) in _LAST}:
        planned = {run.directory for run in list_runs(store, keys) if run.planned is not None}
        last = {key: etag for key, etag in last.items() if key.removesuffix(_name(key)) not in planned}
        for names in ({CLAIM_NAME}, _LAST - {CLAIM_NAME}):  # a claim alone would be an undo that is not complete
            found = found.joined(store.delete_matching({key: last[key] for key in last if _name(key) in names}))
    return found


def _name(key: str) -> str:
    return key.rpartition("/")[2]


def _is_undone(store: ObjectStore, keys: ClusterKeys, run: RunObjects) -> bool:
    try:
        return run.claimed and read_claim(store, keys, run.run) is Use.UNDO
    except (CorruptData, NewerFormat, ObjectNotFound):  # in doubt the plan stays
        return False


def _of_run(run: RunObjects, own: OwnObjects, now: int, *, is_newest: bool) -> Iterator[ObjectInfo]:
    for info in run.objects:
        if info.key.removeprefix(run.directory).startswith(LOG):
            if _is_older(info, own.deletion_log, now):
                yield info
        elif not is_newest and _is_older(info, own.plans, now):
            yield info


def _is_older(info: ObjectInfo, age: int, now: int) -> bool:
    return now - info.modified * 1000 >= age
