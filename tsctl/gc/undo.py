"""Undo phase 1 of a run: `log.start` goes back to where it was, before the grace is over.

The claim of the run is written first. From then on no deletion of this plan begins.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ts_common.archive.commit import LogStart
from ts_common.archive.gc_plans import DONE_NAME, RunObjects, Use, claim, read_claim, read_moves
from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import QueryError
from ts_common.format_version import VERSION
from ts_common.store.contract import ObjectStore
from tsctl.gc.lines import write_once
from tsctl.gc.moving import lower_log_start
from tsctl.gc.retention import LeftOut, Skipped


@dataclass(slots=True)
class Undone:
    """What an undo did.

    Attributes:
        lowered: number of partitions whose `log.start` went back.
        unchanged: number of partitions that the run had not moved, or whose `log.start` moved since.
        skipped: partitions that could not be undone.
    """

    lowered: int = 0
    unchanged: int = 0
    skipped: list[Skipped] = field(default_factory=list)


def choose_undone(store: ObjectStore, runs: Sequence[RunObjects], name: str | None) -> RunObjects:
    """Return the run to undo: the newest that was not undone, if no object of a plan was deleted since.

    Args:
        store: of the runs.
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
        use = read_claim(store, run) if run.claimed else None
        if use is Use.UNDO and run.done:
            continue
        if use is Use.DELETE or run.done:
            raise QueryError(
                f"{run.run}: its deletion has begun or is over, so neither it nor an earlier run can be undone"
            )
        if name not in {None, run.run}:
            raise QueryError(f"{name}: undo {run.run} first; it is newer")
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
        CorruptData: the moves of the run are damaged.
        OutcomeUnknown, StoreUnavailable, AccessDenied, BucketMissing: the store failed; repeat the command.
    """
    if claim(store, run, Use.UNDO) is Use.DELETE:
        raise QueryError(f"{run.run}: the deletion of its objects has begun, so it cannot be undone")
    found = Undone()
    for move in read_moves(store, run):
        keys = move.keys(cluster)
        try:
            is_lowered = lower_log_start(store, keys, LogStart(move.after, move.lineage), move.before)
        except LeftOut as left:
            found.skipped.append(Skipped.of(keys.directory, left))
        else:
            has_moved = is_lowered and move.before < move.after
            found.lowered += has_moved
            found.unchanged += not has_moved
        advance()
    if not found.skipped:
        fields = {"version": VERSION, "time": now, "undone": True, "objects": {}, "bytes": 0}
        write_once(store, run.directory + DONE_NAME, (json.dumps(fields, separators=(",", ":")) + "\n").encode())
    return found
