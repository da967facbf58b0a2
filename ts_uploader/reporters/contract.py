"""The contract of a metrics reporter, and the thread that calls it.

A custom reporter is named as `module:Class` in `metrics.reporter.class`. It is called with a `ReporterConfig`; the
further keys of the file that begin with `metrics.reporter.` are in its `options`.
"""

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import structlog
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ReporterConfig:
    """The target of metrics, and their names.

    Attributes:
        port: of the server; None for the default one.
        prefix: of each name; it distinguishes this agent from others. "" for no prefix.
        tags: whether labels are sent as tags, for servers that support them, and not as parts of the name.
        options: further keys of the file, without `metrics.reporter.`.
    """

    host: str
    port: int | None
    prefix: str
    tags: bool
    options: Mapping[str, str] = field(default_factory=dict)


class MetricsReporter(ABC):
    """Sends the agent's metrics.

    Raises:
        ConfigurationError: the options are wrong; names all problems at once. Nothing was sent.
    """

    def __init__(self, config: ReporterConfig) -> None:
        self.config = config

    @abstractmethod
    def report(self, metrics: Collector) -> None:
        """Send all that `metrics.collect()` yields; every sample of it is a finite number.

        Called repeatedly, by one thread. It must end within seconds, and may raise anything: an error is logged once,
        and the next call follows as usual. Samples that could not be sent need not be sent later.
        """

    @abstractmethod
    def close(self) -> None:
        """Close all resources; `report` is not called any more."""


class Reporting:
    """Calls a reporter at an interval.

    Args:
        reporter: closed at the end.
        interval_seconds: between two reports.
    """

    def __init__(self, reporter: MetricsReporter, metrics: Collector, interval_seconds: float) -> None:
        self._reporter = reporter
        self._metrics = _Finite(metrics)
        self._interval_seconds = interval_seconds
        self._stopping = threading.Event()
        self._trouble: str | None = None

    def run(self) -> None:
        """Report until `stop`; the caller provides the thread. An error is logged once, and ends nothing."""
        while not self._stopping.wait(self._interval_seconds):
            try:
                self._reporter.report(self._metrics)
            except Exception as error:  # noqa: BLE001  (a custom class may raise anything, and must not stop shipping)
                self._note(f"{type(error).__name__}: {error}")
            else:
                self._note(None)
        self._reporter.close()

    def stop(self) -> None:
        """End `run` soon."""
        self._stopping.set()

    def _note(self, trouble: str | None) -> None:
        config = self._reporter.config
        if trouble is not None and self._trouble is None:
            log.warning("metrics_report_failed", message="retried", host=config.host, port=config.port, error=trouble)
        elif trouble is None and self._trouble is not None:
            log.info("metrics_report_recovered", host=config.host, port=config.port)
        self._trouble = trouble


class _Finite(Collector):
    """Families without the samples that are infinite or not a number: only Prometheus can express them."""

    def __init__(self, metrics: Collector) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        for family in self._metrics.collect():
            family.samples = (  # type: ignore[assignment]  # an iterator is enough: it is read once
                sample for sample in family.samples if math.isfinite(sample.value)
            )
            yield family
