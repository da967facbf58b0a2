"""Metrics for Prometheus: `REGISTRY.register(ConsumerCollector(consumer))`. It needs prometheus-client."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from ts_consumer.consumer import TieredConsumer
from ts_consumer.statistics import TierStatistics

_PREFIX: Final = "ts_consumer_"


class ConsumerCollector(Collector):
    """The metrics of one consumer.

    Args:
        consumer: in a mode that reads the archive; in `KAFKA_ONLY` there are no metrics.
        labels: of every metric, for an application with several consumers.
    """

    def __init__(self, consumer: TieredConsumer, labels: Mapping[str, str] | None = None) -> None:
        self._consumer = consumer
        self._names, self._values = list(labels or {}), list((labels or {}).values())

    def collect(self) -> Iterator[Any]:
        """Yield the metrics."""
        found = self._consumer.tier_statistics()
        if found is None:
            return
        yield self._counter("records", "Records that the application got, by tier.", "tier", _records(found))
        yield self._gauge("partitions", "Assigned partitions, by state.", "state", found.partitions)
        passages = {"archive": found.to_history, "kafka": found.to_live, "back": found.back}
        yield self._counter(
            "passages", "Passages of partitions to a tier; back: Kafka removed the next offset.", "to", passages
        )
        yield self._gauge("buffered_bytes", "Bytes of records that are read ahead.", None, {"": found.buffered_bytes})
        skipped = {"": found.skipped_offsets}
        yield self._counter("skipped_offsets", "Offsets that were passed over by option.", None, skipped)
        dropped = {"": found.dropped_messages}
        yield self._counter("dropped_messages", "Live messages that no partition wanted.", None, dropped)

    def _counter(self, name: str, text: str, label: str | None, samples: Mapping[str, int]) -> Any:
        return self._filled(CounterMetricFamily(_PREFIX + name, text, labels=self._labels(label)), label, samples)

    def _gauge(self, name: str, text: str, label: str | None, samples: Mapping[str, int]) -> Any:
        return self._filled(GaugeMetricFamily(_PREFIX + name, text, labels=self._labels(label)), label, samples)

    def _labels(self, label: str | None) -> list[str]:
        return self._names if label is None else [*self._names, label]

    def _filled(self, family: Any, label: str | None, samples: Mapping[str, int]) -> Any:
        for value, sample in samples.items():
            family.add_metric(self._values if label is None else [*self._values, value], sample)
        return family


def _records(found: TierStatistics) -> dict[str, int]:
    return {"archive": found.archive_records, "kafka": found.kafka_records}
