"""The reporters for Graphite and StatsD, and the one that the configuration names.

Both protocols are a line of text. PyPI's library for StatsD ignores the kernel's errors about a missing server, and
prometheus-client's bridge to Graphite leaves its socket open if the server closes the connection. So both are
implemented here.
"""

import re
import socket
import time
from collections.abc import Iterator, Sequence

from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from ts_common.config.cluster_config import ClusterConfig
from ts_common.config.plugins import load_class
from ts_uploader.environment import Environment
from ts_uploader.reporters.contract import MetricsReporter, ReporterConfig

KEY = "metrics.reporter.class"
GRAPHITE_PORT = 2003
STATSD_PORT = 8125
_GRAPHITE_SECONDS = 5.0
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
# The payload of one Ethernet frame, so that no datagram is fragmented: 1,500 less the headers of IPv6 and UDP.
_DATAGRAM_BYTES = 1_432
_COUNTED = ("_total", "_sum", "_count")


class GraphiteReporter(MetricsReporter):
    """Sends `<prefix>.<name>.<label>.<value> <number> <seconds>` over TCP, one connection for each report.

    With tags the name is Graphite 1.1's, `<prefix>.<name>;<label>=<value>`.
    """

    def report(self, metrics: Collector) -> None:
        """Send all metrics; raises OSError if the server cannot be reached, or does not read all of them."""
        lines = "".join(self._lines(metrics, int(time.time()))).encode()
        with socket.create_connection(
            (self.config.host, self.config.port or GRAPHITE_PORT), _GRAPHITE_SECONDS
        ) as connection:
            connection.sendall(lines)

    def close(self) -> None:
        """Do nothing: no resource is kept between two reports."""

    def _lines(self, metrics: Collector, seconds: int) -> Iterator[str]:
        for family in metrics.collect():
            for sample in family.samples:
                labels = _safe_labels(sample)
                if self.config.tags:
                    tags = "".join(f";{label}={value}" for label, value in labels)
                    yield f"{_path(self.config.prefix, sample)}{tags} {float(sample.value)} {seconds}\n"
                else:
                    yield f"{_path(self.config.prefix, sample, labels)} {float(sample.value)} {seconds}\n"


class StatsdReporter(MetricsReporter):
    """Sends gauges by their value, and counters by their increase since the last report, over UDP.

    A line is `<prefix>.<name>.<label>.<value>:<number>|c` or `|g`; with tags
    `<prefix>.<name>:<number>|c|#<label>:<value>`, as DogStatsD, Telegraf and statsd-exporter read it. Bucket counts of
    histograms are not sent: a StatsD server would make a counter of each. Their sums and counts are.
    The socket is opened at the first report and after each failure: the server's name may have another address.
    """

    def __init__(self, config: ReporterConfig) -> None:
        super().__init__(config)
        self._socket: socket.socket | None = None
        self._sent: dict[str, float] = {}  # counters by name and labels, at the last report

    def report(self, metrics: Collector) -> None:
        """Send all metrics; raises OSError if nothing listens on that port and the kernel reports it."""
        try:
            if self._socket is None:
                self._socket = self._connected()
            datagram = b""
            for line in self._lines(metrics):
                if datagram and len(datagram) + 1 + len(line) > _DATAGRAM_BYTES:
                    self._socket.send(datagram)
                    datagram = b""
                datagram = datagram + b"\n" + line if datagram else line
            if datagram:
                self._socket.send(datagram)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connected(self) -> socket.socket:
        family, kind, protocol, _, address = socket.getaddrinfo(
            self.config.host, self.config.port or STATSD_PORT, type=socket.SOCK_DGRAM
        )[0]
        made = socket.socket(family, kind, protocol)
        try:
            made.connect(address)  # so that the next datagram reports a refused connection
        except OSError:
            made.close()
            raise
        return made

    def _lines(self, metrics: Collector) -> Iterator[bytes]:
        for family in metrics.collect():
            counter = family.type in {"counter", "histogram"}
            for sample in family.samples:
                name, tags = self._name(sample)
                if not counter:
                    yield f"{name}:{sample.value:.15g}|g{tags}".encode()
                elif sample.name.endswith(_COUNTED):
                    more = sample.value - self._sent.get(name + tags, 0.0)
                    self._sent[name + tags] = sample.value
                    yield f"{name}:{more:.15g}|c{tags}".encode()

    def _name(self, sample: Sample) -> tuple[str, str]:
        labels = _safe_labels(sample)
        if not self.config.tags:
            return _path(self.config.prefix, sample, labels), ""
        tags = ",".join(f"{label}:{value}" for label, value in labels)
        return _path(self.config.prefix, sample), f"|#{tags}" if tags else ""


_BUILT_IN: dict[str, type[MetricsReporter]] = {"graphite": GraphiteReporter, "statsd": StatsdReporter}


def open_reporter(config: ClusterConfig, environment: Environment) -> MetricsReporter | None:
    """Return the configured reporter; None without one.

    Raises:
        ConfigurationError: the class does not exist, or it rejects its options.
    """
    name = config.reporter
    if name is None:
        return None
    kind = _BUILT_IN.get(name)
    if kind is None:
        kind = load_class(name, MetricsReporter, KEY)  # type: ignore[type-abstract]
    prefix = config.reporter_prefix
    if prefix is None:  # dots separate the levels of a name
        prefix = f"{re.sub(r'[^A-Za-z0-9_-]', '_', environment.cluster_id)}.{environment.broker_id}"
    return kind(
        ReporterConfig(
            config.reporter_host, config.reporter_port, prefix, config.reporter_tags, config.reporter_options
        )
    )


def _path(prefix: str, sample: Sample, labels: Sequence[tuple[str, str]] = ()) -> str:
    """`<prefix>.<name>.<label>.<value>`; without a prefix it begins with the name."""
    return ".".join([*([prefix] if prefix else []), sample.name, *(part for pair in labels for part in pair)])


def _safe_labels(sample: Sample) -> list[tuple[str, str]]:
    """(label, value) by label; what is no letter, digit, `_` or `-` in a value, as a dot, becomes `_`."""
    return sorted((label, _NOT_IN_NAMES.sub("_", value)) for label, value in sample.labels.items())
