"""Prometheus' text format in pieces."""

import tracemalloc
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from ts_common.http_server.metrics_text import metrics_page

_FAMILIES, _SAMPLES = 20, 1000


class Many(Collector):
    """Families with many samples."""

    def describe(self) -> list[GaugeMetricFamily]:
        """Return nothing: to register reads nothing."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield each family when it is wanted."""
        for number in range(_FAMILIES):
            family = GaugeMetricFamily(f"family_{number}", "A family.", labels=["partition"])
            for sample in range(_SAMPLES):
                family.add_metric([f"a-long-name-of-a-topic-{sample}"], sample)
            yield family


def test_the_pieces_are_prometheus_own_text() -> None:
    """One piece for each family."""
    registry = CollectorRegistry()
    registry.register(Many())
    pieces = [*metrics_page(registry)]
    assert len(pieces) == _FAMILIES
    assert b"".join(pieces) == generate_latest(registry)


def test_a_page_needs_less_memory_than_it_is_long() -> None:
    """Neither all of its samples nor all of its text are in memory at once."""
    registry = CollectorRegistry()
    registry.register(Many())
    size = sum(map(len, metrics_page(registry)))
    tracemalloc.start()
    try:
        for _ in metrics_page(registry):
            pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < size
