"""Metrics of a run of `tsctl gc` (`tsctl.run_metrics`)."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from tsctl.gc.archive_run import LocationResult
from tsctl.gc.objects import Outcome
from tsctl.gc.retention import Why
from tsctl.run_metrics import SUCCESS, RunGauges

_TEXTS: Final = {
    "last_run_timestamp_seconds": "End of the last run.",
    SUCCESS: "End of the last run without an error; 0 before the first.",
    "last_run_failed": "1 if the last run failed, else 0.",
    "last_run_duration_seconds": "Seconds of the last run.",
    "interval_seconds": "Seconds between two runs, by their schedule.",
    "hidden_objects": "Objects that the last run hid; a later run deletes them.",
    "hidden_bytes": "Bytes of these objects.",
    "deleted_objects": "Objects that the last run deleted.",
    "deleted_bytes": "Bytes of these objects.",
    "kept_objects": "Due objects that the last run kept, because they have another ETag than in its listing.",
    "locked_objects": "Due objects that the last run kept, because the store retains them (object lock).",
    "failed_objects": "Due objects whose delete failed in the last run.",
    "held_partitions": "Partitions that a hold keeps.",
    "waiting_partitions": "Partitions that wait for a reader.",
    "overdue_partitions": "Partitions whose reader is later than the longest wait.",
    "oldest_due_timestamp_seconds": "When the oldest object that is due and still stored was hidden; 0 without one.",
    "fuse_blown": "1 if more was due in the last run than a fuse allows, else 0.",
}
GAUGES: Final = RunGauges("ts_gc", "tsctl-gc", _TEXTS)


def values_of(results: Sequence[LocationResult]) -> dict[str, float]:
    """Return by name what a run did and found in all locations."""
    hidden = [each for result in results for each in result.found.hidden]
    outcomes = Counter(outcome for result in results for outcome in result.report.outcomes.elements())
    due = [result.found.oldest_due for result in results if result.found.oldest_due is not None]

    def count(why: Why) -> int:
        return sum(len({each.where for each in result.report.skipped if each.why is why}) for result in results)

    return {
        "hidden_objects": sum(each.objects for each in hidden),
        "hidden_bytes": sum(each.bytes for each in hidden),
        "deleted_objects": outcomes[Outcome.REMOVED],
        "deleted_bytes": sum(result.report.bytes for result in results),
        "kept_objects": outcomes[Outcome.KEPT],
        "locked_objects": outcomes[Outcome.LOCKED],
        "failed_objects": outcomes[Outcome.FAILED],
        "held_partitions": count(Why.HELD),
        "waiting_partitions": sum(result.found.waiting for result in results),
        "overdue_partitions": count(Why.OVERDUE),
        "oldest_due_timestamp_seconds": min(due, default=0.0),
        "fuse_blown": count(Why.FUSE) > 0 or any(result.found.fuse is not None for result in results),
    }
