"""Metrics of runs of a command: in a file for node_exporter's textfile collector, or to a Pushgateway.

All are gauges of the last run. Only the time of the last success outlives a run that fails: the file has the former
value, and a Pushgateway keeps what is not pushed. The label `cluster` distinguishes archives, so that several runs can
write one file.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Annotated, Final, Generic, Protocol, TypeVar

import typer
from prometheus_client import CollectorRegistry, pushadd_to_gateway
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.samples import Sample

from ts_common.errors import OperatorError
from ts_common.metrics_file import Collected, MetricsTextFile
from ts_common.redaction import redacted

SUCCESS: Final = "last_success_timestamp_seconds"
_CLUSTER: Final = "cluster"
_PUSH_SECONDS: Final = 20.0
DAY_SECONDS: Final = 86_400.0

MetricsFileOption = Annotated[
    Path | None,
    typer.Option(
        "--metrics-file",
        help="Write metrics for the textfile collector of Prometheus' node_exporter; the name ends in .prom.",
        metavar="FILE",
    ),
]
PushGatewayOption = Annotated[
    str | None, typer.Option("--push-gateway", help="Push metrics to this Pushgateway.", metavar="URL")
]


@dataclass(frozen=True, slots=True)
class RunGauges:
    """The gauges of one command.

    Attributes:
        job: of the group in a Pushgateway.
        texts: description by name, without the prefix; `SUCCESS` is one of them.
    """

    prefix: str
    job: str
    texts: Mapping[str, str]

    def families(self) -> Iterator[GaugeMetricFamily]:
        """Yield each family, without samples."""
        for name, text in self.texts.items():
            yield GaugeMetricFamily(f"{self.prefix}_{name}", text, labels=[_CLUSTER])

    def check_path(self, path: Path) -> None:
        """Check before a run that its metrics can be written.

        Raises:
            OperatorError: as `MetricsTextFile`.
        """
        MetricsTextFile(path, self.prefix)

    def write(self, path: Path, cluster: str, values: Mapping[str, float], warn: Callable[[str], None]) -> None:
        """Replace the series of a cluster in a file; those of other clusters stay.

        Args:
            path: of the file; its name ends in `.prom`.
            values: of the run, by name; without the last success the former one stays, which is 0 before the first.
            warn: called with a sentence if the former file is malformed, or the file cannot be written.
        """
        series: dict[tuple[str, str], float] = {}

        def former(samples: Sequence[Sample]) -> None:
            found = {(each.name.removeprefix(f"{self.prefix}_"), each.labels[_CLUSTER]): each.value for each in samples}
            series.update(found)

        def changed() -> Iterator[Metric]:
            series.setdefault((SUCCESS, cluster), 0.0)
            series.update({(name, cluster): value for name, value in values.items()})
            return self._collected(series)

        try:
            MetricsTextFile(path, self.prefix).update(former, changed, warn)
        except (OSError, OperatorError) as error:
            warn(f"{path}: the metrics of the run were not written: {error}")

    def push(self, url: str, cluster: str, values: Mapping[str, float], warn: Callable[[str], None]) -> None:
        """Add the metrics of a run to a Pushgateway, in the group of the job and the cluster.

        Args:
            url: of the gateway, such as `http://pushgateway:9091`.
            values: as of `write`; what it lacks stays there.
            warn: called with a sentence if the gateway does not accept them.
        """
        registry = CollectorRegistry()
        registry.register(Collected(list(self._collected({(name, cluster): value for name, value in values.items()}))))
        try:
            pushadd_to_gateway(url, self.job, registry, {_CLUSTER: cluster}, timeout=_PUSH_SECONDS)
        except (OSError, ValueError, HTTPException) as error:  # of the socket, the URL and the answer
            warn(f"{redacted(url)}: the metrics of the run were not pushed: {redacted(str(error))}")

    def _collected(self, series: Mapping[tuple[str, str], float]) -> Iterator[Metric]:
        """Yield the families that have samples.

        Args:
            series: values by name and cluster.
        """
        by_name = {family.name.removeprefix(f"{self.prefix}_"): family for family in self.families()}
        for (name, cluster), value in sorted(series.items()):
            if name in by_name:  # a later release can have others
                by_name[name].add_metric([cluster], value)
        yield from (family for family in by_name.values() if family.samples)


class Finding(Protocol):
    """What a run did in one store."""

    @property
    def is_finding(self) -> bool:
        """Whether the operator must act."""


_T = TypeVar("_T", bound=Finding)


class Recording(Generic[_T]):
    """Writes the metrics of runs of one command.

    Args:
        values_of: returns by name what a run did and found in all stores.
        path: of a file; None for none.
        gateway: URL of a Pushgateway; None for none.
        interval: seconds between two runs of a loop; None for a schedule of another program, a day.
        warn: is called with a sentence if they cannot be written.

    Raises:
        OperatorError: the file cannot be written.
    """

    def __init__(
        self,
        gauges: RunGauges,
        values_of: Callable[[Sequence[_T]], Mapping[str, float]],
        cluster: str,
        path: Path | None,
        gateway: str | None,
        interval: int | None,
        warn: Callable[[str], None],
    ) -> None:
        self._gauges, self._values_of = gauges, values_of
        self._cluster, self._path, self._gateway, self._warn = cluster, path, gateway, warn
        self._interval = DAY_SECONDS if interval is None else float(interval)
        if path is not None:
            gauges.check_path(path)

    @contextmanager
    def run(self) -> Iterator[list[_T]]:
        """Yield an empty list for results, and write the metrics of the run at the end, whatever ends it."""
        results: list[_T] = []
        began, failed = time.time(), True
        try:
            yield results
            failed = any(each.is_finding for each in results)
        finally:
            ended = time.time()
            values = {
                **self._values_of(results),
                "last_run_timestamp_seconds": ended,
                "last_run_failed": failed,
                "last_run_duration_seconds": ended - began,
                "interval_seconds": self._interval,
            }
            if not failed:
                values[SUCCESS] = ended
            if self._path is not None:
                self._gauges.write(self._path, self._cluster, values, self._warn)
            if self._gateway is not None:
                self._gauges.push(self._gateway, self._cluster, values, self._warn)
