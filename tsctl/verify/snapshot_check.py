"""Check the metadata snapshots of a cluster in a store: names, contents, and the age of the newest."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.snapshots import HOUR, ClusterSnapshot, GroupsSnapshot, Snapshot
from ts_common.errors import CorruptData, NewerFormat
from ts_common.store.contract import ObjectStore
from ts_common.store.retry import OPERATION_POLICY
from tsctl.verify.finding_kinds import FOREIGN_OBJECT, NEWER_FORMAT, SNAPSHOT_DAMAGED, SNAPSHOT_OLD
from tsctl.verify.findings import Finding

_RUNNING_SECONDS: Final = 1800  # an agent writes `ends/` every five minutes
_OLD: Final = 3 * HOUR
_AHEAD_SECONDS: Final = 3600  # of an agent's clock; a later name is of a wrong one, and hides no age
_REQUESTS: Final = 16


def snapshot_findings(store: ObjectStore, keys: ClusterKeys, now: float, *, every: bool) -> Iterator[Finding]:
    """Yield the findings on the snapshots of one store.

    Args:
        now: seconds since the epoch.
        every: whether to read all of them, and not only the newest of each kind.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    times: dict[type[Snapshot], list[int]] = {ClusterSnapshot: [], GroupsSnapshot: []}
    for info in OPERATION_POLICY(lambda: list(store.list(keys.meta))):
        named = ((kind, kind.time_of(keys, info.key)) for kind in times)
        kind, at = next(((kind, at) for kind, at in named if at is not None), (None, None))
        if kind is None or at is None:
            detail = "the name is not a metadata snapshot's"
            yield Finding(FOREIGN_OBJECT, keys.meta, detail, info.key)
        else:
            times[kind].append(at)
    with ThreadPoolExecutor(_REQUESTS, "snapshots") as pool:
        for kind, found in times.items():
            chosen = found if every else found[-1:]
            yield from filter(None, pool.map(lambda at, kind=kind: _problem(store, keys, kind, at), chosen))
    past = (at for at in times[ClusterSnapshot] if at <= (now + _AHEAD_SECONDS) * 1000)
    newest = max(past, default=None)
    if newest is not None and now * 1000 - newest > _OLD and _is_shipped_to(store, keys, now):
        detail = f"the newest is {ClusterSnapshot.key(keys, newest)}, and agents write to this store"
        yield Finding(SNAPSHOT_OLD, keys.meta, detail, ClusterSnapshot.key(keys, newest))


def _problem(store: ObjectStore, keys: ClusterKeys, kind: type[Snapshot], at: int) -> Finding | None:
    try:
        OPERATION_POLICY(lambda: kind.load(store, keys, at))
    except (CorruptData, NewerFormat) as error:
        found = NEWER_FORMAT if isinstance(error, NewerFormat) else SNAPSHOT_DAMAGED
        return Finding(found, keys.meta, str(error), kind.key(keys, at))
    return None


def _is_shipped_to(store: ObjectStore, keys: ClusterKeys, now: float) -> bool:
    return any(info.modified > now - _RUNNING_SECONDS for info in OPERATION_POLICY(lambda: list(store.list(keys.ends))))
