"""Metrics of a drill (`tsctl.run_metrics`)."""

import time
from typing import Final

from tsctl.drill.report import DrillReport
from tsctl.run_metrics import SUCCESS, RunGauges

GAUGES: Final = RunGauges(
    "ts_drill",
    "tsctl-drill",
    {
        "last_run_timestamp_seconds": "End of the last drill.",
        SUCCESS: "End of the last drill that restored its sample without a difference; 0 before the first.",
        "last_run_failed": "1 if the last drill failed or found a difference, else 0.",
        "last_run_duration_seconds": "Seconds of the last drill.",
        "findings": "Findings of the last drill: lost or different offsets.",
        "recovery_point_seconds": "Age of the newest restored record at the beginning of the last drill.",
        "recovery_seconds": "Seconds from the first object to the groups' offsets in the last drill.",
        "restored_bytes": "Bytes of the objects that the last drill restored.",
        "restored_records": "Records that the last drill restored and compared.",
    },
)


def values_of(report: DrillReport, *, failed: bool) -> dict[str, float]:
    """Return the values of a drill that ends now; without the last success if it failed."""
    ended = time.time()
    values: dict[str, float | None] = {
        "last_run_timestamp_seconds": ended,
        SUCCESS: None if failed else ended,
        "last_run_failed": failed,
        "last_run_duration_seconds": ended - report.began / 1000,
        "findings": len(report.findings),
        "recovery_point_seconds": report.recovery_point,
        "recovery_seconds": report.recovery_seconds,
        "restored_bytes": report.restored_bytes,
        "restored_records": report.records,
    }
    return {name: float(value) for name, value in values.items() if value is not None}
