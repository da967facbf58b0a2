"""Phase 1 of a run: move `log.start` of each partition up, then write the plan of what is deleted later.

The order keeps each step repeatable. The moves are written first, so that `tsctl gc undo` finds them after a kill. Then
`log.start` is moved, then the partition is listed. `plan.json` is written last: a run without it deletes nothing, and
the next run's plan includes its objects.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ts_common.archive.gc_plans import Plan, PlannedObject, PlannedPartition
from ts_common.archive.gc_runs import (
    MOVES,
    PART,
    PLAN_NAME,
    RunObjects,
    Use,
    claim_of,
    list_runs,
    numbered_key,
    run_directory,
    run_name,
    write_once,
)
from ts_common.archive.object_keys import ClusterKeys
from ts_common.store.contract import ObjectStore
from tsctl.gc.examination import examine
from tsctl.gc.lines import NumberedLines
from tsctl.gc.moving import move_log_start
from tsctl.gc.over import hide, read_over
from tsctl.gc.retention import LeftOut, Retention, Skipped, Why
from tsctl.gc.still_hidden import still_hidden
from tsctl.gc.survey import Candidate
from tsctl.gc.undo import undo


@dataclass(slots=True)
class Planned:
    """What phase 1 did.

    Attributes:
        plan: the plan; None if nothing was moved or can be deleted, or if the run was undone meanwhile.
        moved: number of partitions whose `log.start` was moved.
        skipped: partitions that were left out.
    """

    plan: Plan | None = None
    moved: int = 0
    skipped: list[Skipped] = field(default_factory=list)


def new_run(now: int, runs: Iterable[RunObjects] = ()) -> str:
    """Return a name for a run that begins now; names sort in the order of the runs.

    Args:
        now: milliseconds since the epoch, by a clock that can be behind that of an earlier run.
        runs: the earlier runs.
    """
    return run_name(max(now, max((run.time for run in runs), default=0) + 1), secrets.token_hex(4))


def make_plan(
    store: ObjectStore,
    cluster: ClusterKeys,
    run: str,
    candidates: Iterable[Candidate],
    retention: Retention,
    now: int,
    *,
    grace: int,
    policy: Mapping[str, Any],
    advance: Callable[[], None] = lambda: None,
) -> Planned:
    """Move `log.start` of each candidate, and write the plan.

    Args:
        store: of the partitions.
        cluster: their keys.
        run: name of the run.
        candidates: of a survey.
        retention: what is due, and what stays.
        now: milliseconds since the epoch, by the clock of the store.
        grace: milliseconds until the objects can be deleted.
        policy: as the plan shows it.
        advance: is called after each partition.

    Raises:
        OutcomeUnknown, StoreUnavailable, AccessDenied, BucketMissing: the store failed; the next run continues.
    """
    found, chosen = Planned(), list(candidates)
    if not chosen:
        return found
    hidden = still_hidden(store, cluster, [each for each in list_runs(store, cluster) if not each.is_pending])
    chosen = [replace(each, former=min(each.start, hidden.get(each.keys, each.start))) for each in chosen]
    moves = NumberedLines(store, lambda number: numbered_key(cluster, run, MOVES, number))
    for candidate in chosen:
        moves.add(candidate.move(candidate.target, candidate.nonce, run).encode())
    moves.flush()
    parts = _Parts(store, cluster, run)
    for candidate in chosen:
        if claim_of(store, cluster, run) is Use.UNDO:
            break  # a run that is killed later would leave what it moves after the undo
        try:
            partition, objects, is_moved = _move(store, candidate, retention, now, run)
        except LeftOut as left:
            found.skipped.append(Skipped.of(candidate.keys.directory, left))
        else:
            found.moved += is_moved
            parts.add(partition, objects)
        advance()
    parts.flush()
    if claim_of(store, cluster, run) is Use.UNDO:  # this run can have moved a partition after the undo
        undone = undo(store, cluster, next(each for each in list_runs(store, cluster) if each.run == run), now)
        found.skipped += undone.skipped
    elif parts.partitions:
        plan = Plan(run, now, now + grace, parts.count, parts.partitions, parts.objects, parts.bytes, policy)
        write_once(store, run_directory(cluster, run) + PLAN_NAME, plan.encode())
        found.plan = plan
    return found


class _Parts:
    """The parts of a plan, and what they contain."""

    def __init__(self, store: ObjectStore, cluster: ClusterKeys, run: str) -> None:
        self._lines = NumberedLines(store, lambda number: numbered_key(cluster, run, PART, number))
        self.partitions = self.objects = self.bytes = 0

    @property
    def count(self) -> int:
        """Return the number of parts that were written."""
        return self._lines.count

    def add(self, partition: PlannedPartition, objects: Iterable[PlannedObject]) -> None:
        self.partitions += 1
        self._lines.add(partition.encode())
        for each in objects:
            if self._lines.is_empty:  # each part begins with a partition
                self._lines.add(partition.encode())
            self._lines.add(each.encode())
            self.objects += 1
            self.bytes += each.size

    def flush(self) -> None:
        self._lines.flush()


def _move(
    store: ObjectStore, candidate: Candidate, retention: Retention, now: int, run: str
) -> tuple[PlannedPartition, Sequence[PlannedObject], bool]:
    """Move `log.start` of a partition, then list it; what is due is worked out again by that listing."""
    keys = candidate.keys
    retention.check_holds(keys.partition.topic)
    if candidate.over:
        hide(store, keys, read_over(store, keys), run)
        found = read_over(store, keys)
        end = candidate.start if found.log_start is None else found.log_start.offset
        writer = None if found.log_start is None else found.log_start.written_by
        return candidate.move(end, candidate.nonce, writer), found.objects, end > candidate.start
    rule, needed = retention.rule(keys.partition.topic), retention.needed(keys)
    if rule is None or (needed is not None and needed.offset < candidate.target):
        raise LeftOut("a reader needs earlier offsets since the survey", Why.CHANGED)
    after = move_log_start(store, keys, candidate.start, candidate.target, run)
    examined = examine(store, keys, rule, now, needed)
    if examined is None or examined.log_start.content != after or after.lineage != candidate.lineage:
        raise LeftOut("log.start was written meanwhile, by an agent or another collector", Why.CHANGED)
    objects = examined.removable(after.offset, now)
    planned = candidate.move(after.offset, examined.commit.nonce, after.written_by)
    return planned, objects, after.offset > candidate.start
