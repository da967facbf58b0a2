"""Metrics for Graphite, in its plaintext protocol over TCP: `<prefix>.<name>.<label>.<value> <number> <seconds>`.

prometheus-client's own bridge writes the lines; with tags they are Graphite 1.1's, `<prefix>.<name>;<label>=<value>`.
"""

from prometheus_client.bridge.graphite import GraphiteBridge
from prometheus_client.registry import Collector

from ts_uploader.reporters.contract import MetricsReporter

PORT = 2003
_SECONDS = 5.0


class GraphiteReporter(MetricsReporter):
    """One connection for each report."""

    def report(self, metrics: Collector) -> None:
        """As the contract says; raises OSError where the server cannot be reached."""
        address = (self.config.host, self.config.port or PORT)
        bridge = GraphiteBridge(address, registry=metrics, timeout_seconds=_SECONDS, tags=self.config.tags)
        bridge.push(self.config.prefix)

    def close(self) -> None:
        """Nothing is held between two reports."""
