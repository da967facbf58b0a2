"""What earlier runs hid, and no run deleted: a plan that hides more has their `log.start` to go back to.

A run hides a partition without deleting it if it was killed before its plan was written, if its plan is void, or if the
deletion left the partition out, for example after an election. An undo or a hold shows all of that again.
"""

from collections.abc import Iterable, Iterator

from ts_common.archive.gc_plans import PlannedPartition, read_moves
from ts_common.archive.gc_runs import RunObjects, Use, claim_of
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.errors import CorruptData
from ts_common.store.contract import ObjectStore
from tsctl.gc.deletion_log import Outcome, read_log


def still_hidden(store: ObjectStore, cluster: ClusterKeys, runs: Iterable[RunObjects]) -> dict[PartitionKeys, int]:
    """Return the lowest `log.start` before runs that hid records and deleted none of them, by partition.

    Of the runs that deleted something, the newest counts: its plan has what earlier ones left.

    Args:
        store: of the cluster.
        cluster: its keys.
        runs: all that are not pending, oldest first.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    found: dict[PartitionKeys, int] = {}
    for run in reversed(list(runs)):
        try:
            use = claim_of(store, cluster, run.run) if run.claimed else None
            if use is Use.UNDO:
                continue
            for move in _left(store, cluster, run) if use is Use.DELETE else read_moves(store, run):
                keys = move.keys(cluster)
                found[keys] = min(move.before, found.get(keys, move.before))
        except CorruptData:  # the records stay hidden until the policy deletes them
            continue
        if use is Use.DELETE:
            break
    return found


def _left(store: ObjectStore, cluster: ClusterKeys, run: RunObjects) -> Iterator[PlannedPartition]:
    """Yield the partitions of a plan that its deletion left out as a whole."""
    left: set[str] = set()
    deleted: set[str] = set()
    for line in read_log(store, run):
        if "reason" in line:
            left.add(line["partition"])
        elif line["outcome"] == Outcome.REMOVED:
            deleted.add(line["partition"])
    if left := left - deleted:
        yield from (move for move in read_moves(store, run) if move.keys(cluster).directory in left)
