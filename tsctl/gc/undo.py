"""Undo phase 1 of a run: `log.start` goes back to where it was, before the grace is over.

The claim of the run is written first, then that of every other plan that is pending. From then on no deletion begins.

Two collectors at once can both have a plan. If the other one's deletion has begun, `log.start` stays above what it has:
readers would find a hole below.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ts_common.archive.gc_plans import PlannedPartition, read_moves, read_parts, read_plan
from ts_common.archive.gc_runs import CLAIM_NAME, RunObjects, Use, claim, list_runs, mark_done, read_claim
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.errors import CorruptData, ObjectNotFound, QueryError
from ts_common.store.contract import ObjectStore
from tsctl.gc.moving import lower_log_start
from tsctl.gc.retention import LeftOut, Skipped


@dataclass(slots=True)
class Undone:
    """What an undo did.

    Attributes:
        lowered: number of partitions whose `log.start` went back.
        unchanged: number of partitions where it is there already, or where readers would find a hole below it.
        skipped: partitions that could not be undone.
    """

    lowered: int = 0
    unchanged: int = 0
    skipped: list[Skipped] = field(default_factory=list)


def choose_undone(store: ObjectStore, cluster: ClusterKeys, runs: Sequence[RunObjects], name: str | None) -> RunObjects:
    """Return the run to undo: the newest that was not undone, if no object of a plan was deleted since.

    A run that was undone can be named: it can have moved a partition after its undo, and then have been killed.

    Args:
        store: of the runs.
        cluster: their keys.
        runs: all, oldest first.
        name: of the expected run; None for any.

    Raises:
        QueryError: there is no such run, or it cannot be undone.
        CorruptData: a claim is damaged.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    if name is not None and name not in {run.run for run in runs}:
        raise QueryError(f"{name}: there is no such run; `tsctl gc ls` lists them")
    for run in reversed(runs):
        use = read_claim(store, cluster, run.run) if run.claimed else None
        if use is Use.UNDO and run.done:
            if name == run.run:
                return run
            continue
        if use is Use.DELETE or run.done:
            raise QueryError(
                f"{run.run}: its deletion has begun or is over, so neither it nor an earlier run can be undone"
            )
        if name not in {None, run.run} and run.has_moves:
            raise QueryError(f"{name}: undo {run.run} first; it is newer")
        if name == run.run or run.has_moves:
            return run
    raise QueryError("there is no run to undo")


def undo(
    store: ObjectStore, cluster: ClusterKeys, run: RunObjects, now: int, *, advance: Callable[[], None] = lambda: None
) -> Undone:
    """Move `log.start` of each partition of a run back to where it was; a repetition completes it.

    Args:
        store: of the partitions.
        cluster: their keys.
        run: the run; none that is newer has moved these partitions.
        now: milliseconds since the epoch.
        advance: is called after each partition.

    Raises:
        QueryError: the deletion of its objects has begun.
        CorruptData: what the run moved is damaged; nothing was decided now.
        OutcomeUnknown, StoreUnavailable, AccessDenied, BucketMissing: the store failed; repeat the command.
    """
    moves = _moves(store, cluster, run)
    if claim(store, cluster, run.run, Use.UNDO) is Use.DELETE:
        raise QueryError(f"{run.run}: the deletion of its objects has begun, so it cannot be undone")
    found, deleted = Undone(), _deleted_below(store, cluster, run)
    for move in moves:
        keys = move.keys(cluster)
        try:
            is_lowered = lower_log_start(store, cluster, move, run.run, "undone", least=deleted.get(keys, 0))
        except LeftOut as left:
            found.skipped.append(Skipped.of(keys.directory, left))
        else:
            found.lowered += is_lowered
            found.unchanged += not is_lowered
        advance()
    if not found.skipped:
        mark_done(store, run, now, undone=True, objects={}, size=0)
    return found


def _moves(store: ObjectStore, cluster: ClusterKeys, run: RunObjects) -> list[PlannedPartition]:
    """Return what a run moved; a plan has it too, should the moves be lost or damaged.

    Raises:
        CorruptData: both are.
    """
    try:
        moves = list(read_moves(store, run))
        if moves or run.planned is None:
            return moves
    except CorruptData:
        if run.planned is None:
            raise
    return [planned for planned, _ in read_parts(store, cluster, read_plan(store, cluster, run.run))]


def _deleted_below(store: ObjectStore, cluster: ClusterKeys, run: RunObjects) -> dict[PartitionKeys, int]:
    """Return where plans moved `log.start` whose deletion began after a run did; no other deletion begins from now on.

    Only two collectors at once leave such plans: one collector deletes what a plan has before it plans again.
    """
    began = min(info.modified for info in run.objects)
    found: dict[PartitionKeys, int] = {}
    for other in list_runs(store, cluster):
        if other.run == run.run or not (other.claimed or other.is_pending):
            continue
        if other.claimed and _claimed_at(other) < began:
            continue
        try:
            if claim(store, cluster, other.run, Use.UNDO) is Use.UNDO:
                continue
            parts = read_parts(store, cluster, read_plan(store, cluster, other.run))
            planned = [each for each, _ in parts]
        except (
            CorruptData,
            ObjectNotFound,
        ):  # nothing more is deleted by a damaged plan, and a hole that it left is seen
            continue
        for each in planned:
            keys = each.keys(cluster)
            found[keys] = max(found.get(keys, 0), each.after)
    return found


def _claimed_at(run: RunObjects) -> float:
    return max(info.modified for info in run.objects if info.key == run.directory + CLAIM_NAME)
