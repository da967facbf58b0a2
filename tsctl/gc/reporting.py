"""What `tsctl gc run` prints, and the metrics of a run."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from ts_common.wording import counted
from tsctl.gc.archive_run import LocationResult
from tsctl.gc.deletion import Deleted
from tsctl.gc.deletion_log import Outcome
from tsctl.gc.metrics import DAY_SECONDS, GcMetrics, check_path, push_metrics, write_metrics
from tsctl.gc.retention import Skipped, Why
from tsctl.output import Output, iso, size


@dataclass(slots=True)
class Summary:
    """The results of a run so far.

    Attributes:
        results: of each location that a run began with.
    """

    results: list[LocationResult] = field(default_factory=list)

    @property
    def is_finding(self) -> bool:
        """Whether the operator must act."""
        return any(_is_finding(each) for each in self.results)


def _is_finding(found: LocationResult) -> bool:
    result = found.result
    failed = any(deleted.errors for deleted in result.finished)
    doubts = any(skipped.why.is_finding for skipped in result.left_out)
    return failed or doubts or result.fuse is not None or bool(result.damaged or found.old_failed)


class Recording:
    """Writes the metrics of runs.

    Args:
        cluster: id of the cluster.
        path: of a file; None for none.
        gateway: URL of a Pushgateway; None for none.
        interval: seconds between two runs of a loop; None for a schedule of another program, a day.
        output: for warnings.

    Raises:
        OperatorError: the file cannot be written.
    """

    def __init__(
        self, cluster: str, path: Path | None, gateway: str | None, interval: int | None, output: Output
    ) -> None:
        self._cluster, self._path, self._gateway = cluster, path, gateway
        self._interval = DAY_SECONDS if interval is None else float(interval)
        self._warn = output.warn
        if path is not None:
            check_path(path)

    @contextmanager
    def run(self) -> Iterator[Summary]:
        """Yield an empty summary, and write the metrics of the run at the end, whatever ends it."""
        summary, began, failed = Summary(), time.time(), True
        try:
            yield summary
            failed = summary.is_finding
        finally:
            metrics = self._metrics(summary, began, failed=failed)
            if self._path is not None:
                write_metrics(self._path, metrics, self._warn)
            if self._gateway is not None:
                push_metrics(self._gateway, metrics, self._warn)

    def _metrics(self, summary: Summary, began: float, *, failed: bool) -> GcMetrics:
        metrics = GcMetrics(
            cluster=self._cluster, began=began, ended=time.time(), failed=failed, interval=self._interval
        )
        for found in summary.results:
            metrics = _added(metrics, found)
        return metrics


def _added(metrics: GcMetrics, found: LocationResult) -> GcMetrics:
    result, left_out = found.result, found.result.left_out
    outcomes = sum((deleted.objects for deleted in result.finished), Counter[Outcome]())
    plan = None if result.planned is None else result.planned.plan
    due = [time for time in (metrics.oldest_due, result.planned_at) if time is not None]
    return replace(
        metrics,
        planned_objects=metrics.planned_objects + (0 if plan is None else plan.objects),
        planned_bytes=metrics.planned_bytes + (0 if plan is None else plan.size),
        deleted_objects=metrics.deleted_objects + outcomes[Outcome.REMOVED],
        deleted_bytes=metrics.deleted_bytes + sum(deleted.bytes for deleted in result.finished),
        kept_objects=metrics.kept_objects + outcomes[Outcome.KEPT],
        locked_objects=metrics.locked_objects + outcomes[Outcome.LOCKED],
        failed_objects=metrics.failed_objects + outcomes[Outcome.FAILED],
        held_partitions=metrics.held_partitions + _count(left_out, Why.HELD),
        waiting_partitions=metrics.waiting_partitions + (0 if result.survey is None else result.survey.waiting),
        overdue_partitions=metrics.overdue_partitions + _count(left_out, Why.OVERDUE),
        oldest_due=min(due, default=None),
        fuse_blown=metrics.fuse_blown or result.fuse is not None,
    )


def _count(left_out: Sequence[Skipped], why: Why) -> int:
    return len({skipped.where for skipped in left_out if skipped.why is why})


def show(found: LocationResult, output: Output) -> None:
    """Print what a run did in one location: lines of text, or one JSON line."""
    result = found.result
    for line in dict.fromkeys(f"{skipped.where}: left out: {skipped.reason}" for skipped in result.left_out):
        output.warn(line)  # both phases can leave a partition out
    for key, error in found.old_failed.items():
        output.warn(f"{key}: not deleted: {error}")
    for error_line in (error for deleted in result.finished for error in deleted.errors):
        output.warn(f"not deleted: {error_line}")
    for damage in result.damaged:
        output.warn(damage)
    if result.fuse is not None:
        output.warn(
            f"the fuse has blown, so nothing was planned and no log.start was moved: {result.fuse}; compare a dry run "
            "with the policy, then correct the policy, or give --ignore-fuse once"
        )
    for line in _lines(found):
        output.text(f"{found.location}: {line}")
    if output.as_json:
        output.line({"location": found.location, **_fields(found)})


def _lines(found: LocationResult) -> Iterator[str]:
    result = found.result
    for deleted in result.finished:
        others = ", ".join(
            f"{count:,} {outcome}" for outcome, count in sorted(deleted.objects.items()) if outcome != Outcome.REMOVED
        )
        state = f"{size(deleted.bytes)} deleted"
        if deleted.undone:
            state = "was undone, so nothing was deleted"
            state += "" if deleted.is_done else "; the undo is not complete, and nothing is planned until it is"
        removed = counted(deleted.objects[Outcome.REMOVED], "object")
        yield f"plan {deleted.run}: {removed}, {state}{f'; {others}' if others else ''}"
    if result.waits_until is not None:
        yield f"a plan waits until {iso(result.waits_until)}; nothing else is done until then; tsctl gc ls lists it"
    if (planned := result.planned) is not None and planned.plan is not None:
        plan = planned.plan
        yield (
            f"plan {plan.run}: {counted(planned.moved, 'partition')} moved, {counted(plan.objects, 'object')} of "
            f"{size(plan.size)} are deleted by the first run after {iso(plan.due)}; until then: tsctl gc undo"
        )
    elif planned is not None:
        checked = 0 if result.survey is None else result.survey.partitions
        yield f"nothing is due; partitions checked, of topics with a rule: {checked}"
    if found.old:
        yield f"{counted(found.old, 'old object')} of plans, logs, repairs and checks deleted"


def _fields(found: LocationResult) -> dict[str, object]:
    result = found.result
    planned, finished = result.planned, [_deleted_fields(deleted) for deleted in result.finished]
    plan = None if planned is None else planned.plan
    return {
        "deleted": finished[-1] if finished else None,
        "deleted_earlier": finished[:-1],
        "waits_until": iso(result.waits_until),
        "planned": None
        if plan is None
        else {"run": plan.run, "due": iso(plan.due), "objects": plan.objects, "bytes": plan.size},
        "moved_partitions": 0 if planned is None else planned.moved,
        "partitions": 0 if result.survey is None else result.survey.partitions,
        "waiting_partitions": 0 if result.survey is None else result.survey.waiting,
        "left_out": [
            {"where": skipped.where, "why": str(skipped.why), "reason": skipped.reason} for skipped in result.left_out
        ],
        "fuse": result.fuse,
        "damaged_plans": result.damaged,
        "old_objects": found.old,
    }


def _deleted_fields(deleted: Deleted) -> dict[str, object]:
    return {
        "run": deleted.run,
        "undone": deleted.undone,
        "objects": {str(outcome): count for outcome, count in sorted(deleted.objects.items())},
        "bytes": deleted.bytes,
    }
