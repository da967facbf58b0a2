"""Metrics of a run of `tsctl gc`: in a file for node_exporter's textfile collector, or to a Pushgateway.

All are gauges of the last run. Only the time of the last success outlives a run that fails: the file has the former
value, and a Pushgateway keeps what is not pushed. The label `cluster` distinguishes archives, so that several runs can
write one file.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, pushadd_to_gateway
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from ts_common.errors import OperatorError
from ts_common.metrics_file import MetricsTextFile
from ts_common.redaction import redacted
from tsctl.gc.archive_run import LocationResult
from tsctl.gc.objects import Outcome
from tsctl.gc.retention import Why

PREFIX: Final = "ts_gc"
JOB: Final = "tsctl-gc"
DAY_SECONDS: Final = 86_400.0
_CLUSTER: Final = "cluster"
_SUCCESS: Final = "last_success_timestamp_seconds"
_PUSH_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GcMetrics:
    """What one run did and found.

    Attributes:
        cluster: id of the cluster.
        began: seconds since the epoch.
        ended: seconds since the epoch.
        failed: whether the run ended with an error, or could not delete or hide all that it should.
        interval: seconds between two runs, by their schedule.
        hidden_objects: objects that the run hid.
        hidden_bytes: of these objects.
        deleted_objects: objects that the run deleted.
        deleted_bytes: of these objects.
        kept_objects: due objects that stay, because they have another ETag now.
        locked_objects: due objects that stay, because the store retains them.
        failed_objects: due objects whose delete failed.
        held_partitions: partitions that a hold keeps.
        waiting_partitions: partitions that wait for a reader of `until_read_by`.
        overdue_partitions: partitions of these whose reader is later than the longest wait.
        oldest_due: when the oldest object that is due and still stored was hidden, in seconds since the epoch; None
            if no object is due.
        fuse_blown: whether more was due than a fuse allows.
    """

    cluster: str
    began: float
    ended: float
    failed: bool
    interval: float = DAY_SECONDS
    hidden_objects: int = 0
    hidden_bytes: int = 0
    deleted_objects: int = 0
    deleted_bytes: int = 0
    kept_objects: int = 0
    locked_objects: int = 0
    failed_objects: int = 0
    held_partitions: int = 0
    waiting_partitions: int = 0
    overdue_partitions: int = 0
    oldest_due: float | None = None
    fuse_blown: bool = False


_TEXTS: Final = {
    "last_run_timestamp_seconds": "End of the last run.",
    _SUCCESS: "End of the last run without an error; 0 before the first.",
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


class Recording:
    """Writes the metrics of runs.

    Args:
        cluster: id of the cluster.
        path: of a file; None for none.
        gateway: URL of a Pushgateway; None for none.
        interval: seconds between two runs of a loop; None for a schedule of another program, a day.
        warn: is called with a sentence if they cannot be written.

    Raises:
        OperatorError: the file cannot be written.
    """

    def __init__(
        self, cluster: str, path: Path | None, gateway: str | None, interval: int | None, warn: Callable[[str], None]
    ) -> None:
        self._cluster, self._path, self._gateway, self._warn = cluster, path, gateway, warn
        self._interval = DAY_SECONDS if interval is None else float(interval)
        if path is not None:
            check_path(path)

    @contextmanager
    def run(self) -> Iterator[list[LocationResult]]:
        """Yield an empty list for results, and write the metrics of the run at the end, whatever ends it."""
        results: list[LocationResult] = []
        began, failed = time.time(), True
        try:
            yield results
            failed = any(each.is_finding for each in results)
        finally:
            metrics = GcMetrics(
                cluster=self._cluster, began=began, ended=time.time(), failed=failed, interval=self._interval
            )
            for each in results:
                metrics = added(metrics, each)
            if self._path is not None:
                write_metrics(self._path, metrics, self._warn)
            if self._gateway is not None:
                push_metrics(self._gateway, metrics, self._warn)


def added(metrics: GcMetrics, result: LocationResult) -> GcMetrics:
    """Return metrics with those of one more location."""
    report, found = result.report, result.found
    due = [time for time in (metrics.oldest_due, found.oldest_due) if time is not None]

    def count(why: Why) -> int:
        return len({skipped.where for skipped in report.skipped if skipped.why is why})

    return replace(
        metrics,
        hidden_objects=metrics.hidden_objects + sum(each.objects for each in found.hidden),
        hidden_bytes=metrics.hidden_bytes + sum(each.bytes for each in found.hidden),
        deleted_objects=metrics.deleted_objects + report.outcomes[Outcome.REMOVED],
        deleted_bytes=metrics.deleted_bytes + report.bytes,
        kept_objects=metrics.kept_objects + report.outcomes[Outcome.KEPT],
        locked_objects=metrics.locked_objects + report.outcomes[Outcome.LOCKED],
        failed_objects=metrics.failed_objects + report.outcomes[Outcome.FAILED],
        held_partitions=metrics.held_partitions + count(Why.HELD),
        waiting_partitions=metrics.waiting_partitions + found.waiting,
        overdue_partitions=metrics.overdue_partitions + count(Why.OVERDUE),
        oldest_due=min(due, default=None),
        fuse_blown=metrics.fuse_blown or found.fuse is not None or count(Why.FUSE) > 0,
    )


def families() -> Iterator[GaugeMetricFamily]:
    """Yield each family, without samples."""
    for name, text in _TEXTS.items():
        yield GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=[_CLUSTER])


def check_path(path: Path) -> None:
    """Check before a run that its metrics can be written.

    Raises:
        OperatorError: as `MetricsTextFile`.
    """
    MetricsTextFile(path, PREFIX)


def write_metrics(path: Path, metrics: GcMetrics, warn: Callable[[str], None]) -> None:
    """Replace the series of a cluster in a file; those of other clusters stay.

    Args:
        path: of the file; its name ends in `.prom`.
        metrics: of the run.
        warn: called with a sentence if the former file is malformed, or the file cannot be written.
    """
    series: dict[tuple[str, str], float] = {}

    def former(samples: Sequence[Sample]) -> None:
        series.update({(each.name.removeprefix(f"{PREFIX}_"), each.labels[_CLUSTER]): each.value for each in samples})

    def changed() -> Iterator[Metric]:
        success = series.get((_SUCCESS, metrics.cluster), 0.0)
        series.update({(name, metrics.cluster): value for name, value in _values(metrics, success).items()})
        return _collected(series)

    try:
        MetricsTextFile(path, PREFIX).update(former, changed, warn)
    except (OSError, OperatorError) as error:
        warn(f"{path}: the metrics of the run were not written: {error}")


def push_metrics(url: str, metrics: GcMetrics, warn: Callable[[str], None]) -> None:
    """Add the metrics of a run to a Pushgateway, in the group of job `tsctl-gc` and the cluster.

    Args:
        url: of the gateway, such as `http://pushgateway:9091`.
        metrics: of the run.
        warn: called with a sentence if the gateway does not accept them.
    """
    values = {(name, metrics.cluster): value for name, value in _values(metrics, None).items()}
    registry = CollectorRegistry()
    registry.register(_Collected(list(_collected(values))))
    try:
        pushadd_to_gateway(url, JOB, registry, {_CLUSTER: metrics.cluster}, timeout=_PUSH_SECONDS)
    except (OSError, ValueError, HTTPException) as error:  # of the socket, the URL and the answer
        warn(f"{redacted(url)}: the metrics of the run were not pushed: {redacted(str(error))}")


def _values(metrics: GcMetrics, former_success: float | None) -> dict[str, float]:
    """Return the values by name; without the last success if the run failed and there is no former one."""
    success = former_success if metrics.failed else metrics.ended
    special: Mapping[str, float | None] = {
        "last_run_timestamp_seconds": metrics.ended,
        _SUCCESS: success,
        "last_run_failed": metrics.failed,
        "last_run_duration_seconds": metrics.ended - metrics.began,
        "interval_seconds": metrics.interval,
        "oldest_due_timestamp_seconds": metrics.oldest_due or 0.0,
    }
    values = {name: special[name] if name in special else getattr(metrics, name) for name in _TEXTS}
    return {name: float(value) for name, value in values.items() if value is not None}


def _collected(series: Mapping[tuple[str, str], float]) -> Iterator[Metric]:
    """Yield the families that have samples.

    Args:
        series: values by name and cluster.
    """
    by_name = {family.name.removeprefix(f"{PREFIX}_"): family for family in families()}
    for (name, cluster), value in sorted(series.items()):
        if name in by_name:  # a later release can have others
            by_name[name].add_metric([cluster], value)
    yield from (family for family in by_name.values() if family.samples)


class _Collected(Collector):
    def __init__(self, found: Iterable[Metric]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        return self._found
