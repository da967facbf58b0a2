"""Finds the `log.start` of a partition before runs that hid records and deleted nothing.

Such a run was killed before its plan was written, or its plan is void. A later plan stores that `log.start`, so that an
undo or a hold shows all of these records again. Once the deletion of a plan began, its partitions do not count, because
some of its objects can be deleted.
"""

from collections.abc import Iterable

from ts_common.archive.gc_plans import read_moves
from ts_common.archive.gc_runs import RunObjects, Use, claim_of
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.errors import CorruptData, NewerFormat
from ts_common.store.contract import ObjectStore


def still_hidden(store: ObjectStore, cluster: ClusterKeys, runs: Iterable[RunObjects]) -> dict[PartitionKeys, int]:
    """Return the lowest `log.start` before runs that hid records and began no deletion, by partition.

    Args:
        store: of the cluster.
        cluster: its keys.
        runs: all that are not pending, oldest first.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    found: dict[PartitionKeys, int] = {}
    deleted: set[PartitionKeys] = set()
    for run in reversed(list(runs)):
        try:
            use = claim_of(store, cluster, run.run) if run.claimed else None
            if use is Use.UNDO:
                continue
            moves = list(read_moves(store, run))
        except (CorruptData, NewerFormat):  # earlier records stay hidden, until the policy deletes them
            break
        if use is Use.DELETE:
            deleted |= {move.keys(cluster) for move in moves}
            continue
        for move in moves:
            keys = move.keys(cluster)
            if keys not in deleted:
                found[keys] = min(move.before, found.get(keys, move.before))
    return found
