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
        for make, name, text, label, samples in () if found is None else _families(found):
            family = make(_PREFIX + name, text, labels=[*self._names, *label])
            for value, sample in samples.items():
                family.add_metric([*self._values, *([value] if label else [])], sample)
            yield family


def _families(found: TierStatistics) -> Iterator[tuple[Any, str, str, tuple[str, ...], Mapping[str, int]]]:
    """Yield the class, name, text and label of each metric, and its numbers by the value of the label."""
    counter, gauge = CounterMetricFamily, GaugeMetricFamily
    records = {"archive": found.archive_records, "kafka": found.kafka_records}
    passages = {"archive": found.to_history, "kafka": found.to_live, "back": found.back}
    skipped, dropped = {"": found.skipped_offsets}, {"": found.dropped_messages}
    yield counter, "records", "Records that the application got, by tier.", ("tier",), records
    yield gauge, "partitions", "Assigned partitions, by state.", ("state",), found.partitions
    text = "Passages of partitions to a tier; back: Kafka removed the next offset."
    yield counter, "passages", text, ("to",), passages
    yield gauge, "buffered_bytes", "Bytes of records that are read ahead.", (), {"": found.buffered_bytes}
    yield counter, "skipped_offsets", "Offsets that were passed over by option.", (), skipped
    yield counter, "dropped_messages", "Live messages that no partition wanted.", (), dropped
