"""Thin metadata snapshots by the policy's `meta`: all of some days, then one of each hour, then one of each day.

A snapshot of the cluster that a change caused stays as long as those of days: an auditor reads its minute. The newest
of each kind stays at any age: a cluster that was lost writes no other. Any hold that has not expired stops the
thinning, because a snapshot has all topics.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ts_common.archive.holds import read_holds
from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.snapshots import HOUR, ClusterSnapshot, GroupsSnapshot, Snapshot
from ts_common.durations import DAY
from ts_common.errors import CorruptData, NewerFormat
from ts_common.store.contract import DeleteOutcome, ObjectInfo, ObjectStore
from tsctl.gc.objects import Locked
from tsctl.gc.policy import SnapshotKeeping

_NOTHING: Final = DeleteOutcome((), (), {})


def thin_snapshots(
    store: ObjectStore,
    stores: Iterable[ObjectStore],
    keys: ClusterKeys,
    keeping: SnapshotKeeping | None,
    now: int,
    locked: Locked = lambda _: {},
) -> DeleteOutcome:
    """Delete the snapshots of a store that the policy does not keep.

    Args:
        stores: all stores of the archive, whose holds count.
        keeping: of the policy; None keeps all.
        now: milliseconds since the epoch.
        locked: finds objects that the store keeps.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: a store failed.
    """
    if keeping is None or _is_held(stores, keys, now):
        return _NOTHING
    etags: dict[str, str] = {}
    for kind in (ClusterSnapshot, GroupsSnapshot):
        infos = ((kind.time_of(keys, info.key), info) for info in store.list(kind.prefix(keys)))
        named = [(at, info) for at, info in infos if at is not None]
        etags |= {info.key: info.etag for info in due(kind, named, keeping, now)}
    held = locked(list(etags)) if etags else {}
    return store.delete_matching({key: etag for key, etag in etags.items() if key not in held})


def due(
    kind: type[Snapshot], named: Sequence[tuple[int, ObjectInfo]], keeping: SnapshotKeeping, now: int
) -> Iterator[ObjectInfo]:
    """Yield the snapshots to delete.

    Args:
        kind: of all of them.
        named: the time in the name of each, ascending, in milliseconds since the epoch. Its age counts from that time,
            or from its writing if that was later: a clock of an agent can be wrong.
        keeping: of the policy.
        now: milliseconds since the epoch.
    """
    kept: set[tuple[int, int]] = set()  # hours and days that have one
    newest = max((at for at, _ in named if at <= now), default=None)  # a wrong clock can name later ones
    for at, info in named:
        if at == newest:
            continue
        age = now - max(at, int(info.modified * 1000))
        if age < keeping.every:
            continue
        if keeping.daily is not None and age >= keeping.daily:
            yield info
        elif not (kind is ClusterSnapshot and at % HOUR):
            length = HOUR if age < keeping.hourly else DAY
            if (length, at // length) in kept:
                yield info
            kept.add((length, at // length))


def _is_held(stores: Iterable[ObjectStore], keys: ClusterKeys, now: int) -> bool:
    try:
        return any(not hold.is_expired(now) for store in stores for hold in read_holds(store, keys))
    except (CorruptData, NewerFormat):  # the run reports it
        return True
