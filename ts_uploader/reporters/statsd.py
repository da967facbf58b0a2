"""Metrics for StatsD over UDP: gauges by their value, counters by their increase since the last report.

A line is `<prefix>.<name>.<label>.<value>:<number>|c` or `|g`; with tags `<prefix>.<name>:<number>|c|#<label>:<value>`,
as DogStatsD, Telegraf and statsd-exporter read it. The protocol is a line of text, and PyPI's library for it ignores
the kernel's errors about a missing server, so it is implemented here.

Bucket counts of histograms are not sent: a StatsD server would make a counter of each. Their sums and counts are.
"""

import socket
from collections.abc import Iterator

from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from ts_uploader.reporters.contract import MetricsReporter, ReporterConfig
from ts_uploader.reporters.names import path, safe_labels

PORT = 8125
# The payload of one Ethernet frame, so that no datagram is fragmented: 1,500 less the headers of IPv6 and UDP.
_DATAGRAM_BYTES = 1_432
_COUNTED = ("_total", "_sum", "_count")


class StatsdReporter(MetricsReporter):
    """One socket, opened at the first report and after each failure: the server's name may have another address."""

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
            self.config.host, self.config.port or PORT, type=socket.SOCK_DGRAM
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
        labels = safe_labels(sample)
        if not self.config.tags:
            return path(self.config.prefix, sample, labels), ""
        tags = ",".join(f"{label}:{value}" for label, value in labels)
        return path(self.config.prefix, sample), f"|#{tags}" if tags else ""
