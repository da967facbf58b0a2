"""One run of `tsctl gc` on one store: delete what an earlier plan names, then survey, move and plan.

At most one plan waits. While its grace is not over, a run does nothing else, so that `tsctl gc undo` has one plan.
"""

import json
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ts_common.archive.gc_plans import read_plan
from ts_common.archive.gc_runs import RunObjects, Use, claim_of, list_runs
from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import CorruptData, PermanentError, QueryError
from ts_common.format_version import VERSION
from ts_common.store.contract import ObjectStore
from tsctl.gc.deletion import DamagedPlan, Deleted, Locked, delete_planned, void_plan
from tsctl.gc.planning import Planned, make_plan, new_run
from tsctl.gc.policy import Fuse
from tsctl.gc.retention import Retention, Skipped
from tsctl.gc.showing import show_half_shown
from tsctl.gc.survey import Survey, survey
from tsctl.gc.topic_incarnations import read_topic_incarnations

_SKEW_MS: Final = 15 * 60_000  # S3 rejects requests of a clock that is further off


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run follows, together with the retention of each topic.

    Attributes:
        grace: milliseconds between the move of `log.start` and the deletion.
        fuse: what one run plans at most. A plan that exists is deleted whatever the fuse is.
        policy: as plans show it.
    """

    grace: int
    fuse: Fuse
    policy: Mapping[str, Any]


@dataclass(slots=True)
class RunResult:
    """What one run did in one store.

    Attributes:
        finished: of each plan whose grace was over; two collectors at once can have left several.
        waits_until: when the grace of the plan ends, ms since the epoch; None if no plan waits.
        planned_at: seconds since the epoch: the time of the plan that waits or was made; None without one.
        survey: what is due; None while a plan waits.
        planned: what phase 1 did; None while a plan waits, or if the fuse has blown.
        fuse: why the fuse has blown; None if it has not.
        damaged: which earlier plans were discarded, why, and what became of them.
        skipped: topics that were left out.
    """

    finished: list[Deleted] = field(default_factory=list)
    waits_until: int | None = None
    planned_at: float | None = None
    survey: Survey | None = None
    planned: Planned | None = None
    fuse: str | None = None
    damaged: list[str] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def deleted(self) -> Deleted | None:
        """What became of the last of these plans; None without one."""
        return self.finished[-1] if self.finished else None

    @property
    def left_out(self) -> tuple[Skipped, ...]:
        """Everything that was left out."""
        found = list(self.skipped)
        for phase in (*self.finished, self.survey, self.planned):
            found += [] if phase is None else phase.skipped
        return tuple(found)


def run_once(
    store: ObjectStore,
    cluster: ClusterKeys,
    wants: Callable[[str], bool],
    retention: Retention,
    settings: Settings,
    now: int,
    *,
    locked: Locked = lambda _: {},
    advance: Callable[[], None] = lambda: None,
    result: RunResult | None = None,
) -> RunResult:
    """Run both phases on one store.

    Args:
        store: of the cluster.
        cluster: its keys.
        wants: chooses the topics of this store.
        retention: what is due, and what stays.
        settings: of the policy.
        now: milliseconds since the epoch, as `store_time`.
        locked: as in `delete_planned`.
        advance: is called after each partition of each phase.
        result: an empty one, which has what was done also if an error ends the run; None for a new one.

    Raises:
        NewerFormat: a later release wrote a plan.
        CorruptData: what a reader of the policy wrote is damaged.
        OutcomeUnknown, StoreUnavailable, AccessDenied, BucketMissing: the store failed; the next run continues.
    """
    result = RunResult() if result is None else result
    runs = list_runs(store, cluster)
    result.skipped += show_half_shown(store, cluster, runs, retention)
    pending = [run for run in runs if run.is_pending]
    # Undos first, as `tsctl gc undo` orders them: an undo claims the other plans too.
    undone = [run for run in reversed(pending) if _is_undone(store, cluster, run)]
    for run in (*undone, *(run for run in pending if run not in undone)):
        if not _finish_plan(store, cluster, run, retention, now, locked, advance, result):
            return result
    incarnations = read_topic_incarnations(store, cluster, wants, result.skipped.append)
    found = result.survey = survey(store, incarnations, retention, now, advance=advance)
    result.fuse = settings.fuse.blown(found.objects, found.bytes, found.whole)
    if result.fuse is None:
        grace, policy = settings.grace, settings.policy
        result.planned = make_plan(
            store,
            cluster,
            new_run(now, runs),
            found.candidates,
            retention,
            now,
            grace=grace,
            policy=policy,
            advance=advance,
        )
        if result.planned.plan is not None:
            result.planned_at = now / 1000
    return result


def _finish_plan(
    store: ObjectStore,
    cluster: ClusterKeys,
    run: RunObjects,
    retention: Retention,
    now: int,
    locked: Locked,
    advance: Callable[[], None],
    result: RunResult,
) -> bool:
    """Delete what a plan names, if its grace is over, or complete its undo; return whether the run can plan again."""
    try:
        use = claim_of(store, cluster, run.run)
        if run.planned is None and use is not Use.UNDO:  # what is left of a plan that was deleted by its age
            return True
        if use is not Use.UNDO:  # an undo has no grace
            plan = read_plan(store, cluster, run.run)
            if now < plan.due:
                result.waits_until, result.planned_at = plan.due, plan.time / 1000
                return False
    except CorruptData as error:
        return _void(store, cluster, run, now, error, result)
    found = Deleted(run.run)
    try:
        delete_planned(store, cluster, run, retention, now, locked=locked, advance=advance, found=found)
    except DamagedPlan as error:
        return _void(store, cluster, run, now, error, result)
    finally:
        if found.is_done or found.undone or found.objects:  # an error can end it after some were deleted
            result.finished.append(found)
    return found.is_done


def _is_undone(store: ObjectStore, cluster: ClusterKeys, run: RunObjects) -> bool:
    try:
        return claim_of(store, cluster, run.run) is Use.UNDO
    except CorruptData:  # the plan is void
        return False


def _void(
    store: ObjectStore, cluster: ClusterKeys, run: RunObjects, now: int, error: PermanentError, result: RunResult
) -> bool:
    reason = str(error)
    result.damaged.append(f"plan {run.run} was discarded: {reason}; {void_plan(store, cluster, run, now, reason)}")
    return True


def store_time(store: ObjectStore, cluster: ClusterKeys, clock: Callable[[], float] = time.time) -> int:
    """Return the lesser of two times, this host's and the store's, in milliseconds since the epoch.

    Raises:
        QueryError: they differ by more than a quarter of an hour.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    key = f"{cluster.gc_runs}last-run.json"
    own = int(clock() * 1000)
    fields = {"version": VERSION, "time": own, "host": socket.gethostname()}
    store.put(key, (json.dumps(fields, separators=(",", ":")) + "\n").encode())
    stored = int(store.head(key).modified * 1000)
    if abs(own - stored) > _SKEW_MS:
        raise QueryError(
            f"the clock of this host differs by {abs(own - stored) // 1000} s from the clock of {store.location}; "
            "set it before anything is deleted by age"
        )
    return min(own, stored)
