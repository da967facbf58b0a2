"""Metrics for Graphite, in its plaintext protocol over TCP: `<prefix>.<name>.<label>.<value> <number> <seconds>`.

With tags the name is Graphite 1.1's, `<prefix>.<name>;<label>=<value>`. The protocol is a line of text, and
prometheus-client's bridge leaves its socket open if the server closes the connection, so it is implemented here.
"""

import socket
import time
from collections.abc import Iterator

from prometheus_client.registry import Collector

from ts_uploader.reporters.contract import MetricsReporter
from ts_uploader.reporters.names import path, safe_labels

PORT = 2003
_SECONDS = 5.0


class GraphiteReporter(MetricsReporter):
    """One connection for each report."""

    def report(self, metrics: Collector) -> None:
        """Send all metrics; raises OSError if the server cannot be reached, or does not read all of them."""
        lines = "".join(self._lines(metrics, int(time.time()))).encode()
        with socket.create_connection((self.config.host, self.config.port or PORT), _SECONDS) as connection:
            connection.sendall(lines)

    def close(self) -> None:
        """Do nothing: no resource is kept between two reports."""

    def _lines(self, metrics: Collector, seconds: int) -> Iterator[str]:
        for family in metrics.collect():
            for sample in family.samples:
                labels = safe_labels(sample)
                if self.config.tags:
                    tags = "".join(f";{label}={value}" for label, value in labels)
                    yield f"{path(self.config.prefix, sample)}{tags} {float(sample.value)} {seconds}\n"
                else:
                    yield f"{path(self.config.prefix, sample, labels)} {float(sample.value)} {seconds}\n"
