"""What sends metrics somewhere, and the thread that has it do so.

A reporter of your own is named as `module:Class` in `metrics.reporter.class`. It is called with a `ReporterConfig`, and
finds further keys of the file that begin with `metrics.reporter.` in its `options`.
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
    """Where metrics go, and under which name.

    Attributes:
        host: of the server.
        port: of the server; None for the usual one.
        prefix: stands before each name; it tells this agent from others. "" for none.
        tags: whether labels are sent as tags, for servers that know them, and not as parts of the name.
        options: further keys of the file, without `metrics.reporter.`.
    """

    host: str
    port: int | None
    prefix: str
    tags: bool
    options: Mapping[str, str] = field(default_factory=dict)


class MetricsReporter(ABC):
    """Sends what the agent tells.

    Args:
        config: as the file says.

    Raises:
        ConfigurationError: something of it is wrong, with all problems at once; nothing was sent.
    """

    def __init__(self, config: ReporterConfig) -> None:
        self.config = config

    @abstractmethod
    def report(self, metrics: Collector) -> None:
        """Send all that `metrics.collect()` yields; every sample of it is a finite number.

        Called again and again, by one thread. It must end within seconds, and may raise anything: that is logged once,
        and the next call comes as if nothing had been. What was to be sent then need not be sent later.
        """

    @abstractmethod
    def close(self) -> None:
        """Give everything back; `report` is not called any more."""


class Reporting:
    """Has a reporter report in turns.

    Args:
        reporter: closed at the end.
        metrics: what the agent tells.
        interval_seconds: between two reports.
    """

    def __init__(self, reporter: MetricsReporter, metrics: Collector, interval_seconds: float) -> None:
        self._reporter = reporter
        self._metrics = _Finite(metrics)
        self._interval_seconds = interval_seconds
        self._stopping = threading.Event()
        self._trouble: str | None = None

    def run(self) -> None:
        """Report until `stop`; the caller gives it a thread. Whatever goes wrong is said once, and ends nothing."""
        while not self._stopping.wait(self._interval_seconds):
            try:
                self._reporter.report(self._metrics)
            except Exception as error:  # noqa: BLE001  (it may be anybody's class, and must not disturb the shipping)
                self._say(f"{type(error).__name__}: {error}")
            else:
                self._say(None)
        self._reporter.close()

    def stop(self) -> None:
        """End `run` soon."""
        self._stopping.set()

    def _say(self, trouble: str | None) -> None:
        config = self._reporter.config
        if trouble is not None and self._trouble is None:
            log.warning("metrics_report_failed", message="retried", host=config.host, port=config.port, error=trouble)
        elif trouble is None and self._trouble is not None:
            log.info("metrics_report_recovered", host=config.host, port=config.port)
        self._trouble = trouble


class _Finite(Collector):
    """Families without the samples that are infinite or no number: only Prometheus has words for them."""

    def __init__(self, metrics: Collector) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        for family in self._metrics.collect():
            family.samples = (  # type: ignore[assignment]  # told one after the other, as they come
                sample for sample in family.samples if math.isfinite(sample.value)
            )
            yield family
