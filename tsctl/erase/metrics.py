"""Metrics of a run of `tsctl erase run` (`tsctl.run_metrics`)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ts_common.archive.erasures import ErasureState
from tsctl.erase.erased_copies import Did
from tsctl.run_metrics import SUCCESS, RunGauges

if TYPE_CHECKING:
    from tsctl.erase.run import Found

GAUGES: Final = RunGauges(
    "ts_erase",
    "tsctl-erase",
    {
        "last_run_timestamp_seconds": "End of the last run.",
        SUCCESS: "End of the last run without an error; 0 before the first.",
        "last_run_failed": "1 if the last run failed, or left something that needs a person; else 0.",
        "last_run_duration_seconds": "Seconds of the last run.",
        "interval_seconds": "Seconds between two runs, by their schedule.",
        "open_requests": "Requests to erase that must be searched again.",
        "hidden_requests": "Requests to erase whose records are hidden, and still stored.",
        "erased_requests": "Requests to erase with nothing stored.",
        "late_requests": "Requests to erase whose due date has passed, and that are not erased.",
        "next_due_timestamp_seconds": "The earliest due date of requests that are not erased; 0 without one.",
        "rewritten_objects": "Segments that the last run rewrote.",
        "rewritten_bytes": "Bytes of the new ones.",
        "removed_objects": "Replaced segments that the last run removed.",
        "waiting_objects": "Segments that a later run can rewrite or remove.",
        "hidden_only_objects": "Segments that no run can rewrite or remove before a person acts.",
        "failed_partitions": "Partitions that the last run left as they were.",
    },
)


def values_of(results: "Sequence[Found]") -> dict[str, float]:
    """Return by name what a run did and found in all stores."""
    partitions = [each for result in results for each in result.partitions]

    def of_state(state: ErasureState) -> int:
        return sum(each.of_state(state) for each in results)

    def count(did: Did) -> int:
        return sum(each.count(did) for each in partitions)

    return {
        "open_requests": of_state(ErasureState.OPEN),
        "hidden_requests": of_state(ErasureState.HIDDEN),
        "erased_requests": of_state(ErasureState.ERASED),
        "late_requests": sum(len(each.late) for each in results),
        "next_due_timestamp_seconds": min((due / 1000 for each in results for due in each.due), default=0.0),
        "rewritten_objects": count(Did.REWRITTEN),
        "rewritten_bytes": sum(copy.bytes for each in partitions for copy in each.rewritten),
        "removed_objects": count(Did.REMOVED),
        "waiting_objects": count(Did.WAITS),
        "hidden_only_objects": count(Did.HIDDEN),
        "failed_partitions": sum(each.problem is not None for each in partitions),
    }
