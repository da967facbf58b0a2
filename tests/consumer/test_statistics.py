"""Statistics and metrics per tier."""

import json
from typing import Any

from confluent_kafka import TopicPartition
from prometheus_client import CollectorRegistry, generate_latest

from dev.local.waiting import wait_for
from tests.consumer.archives import Both, fill, read_until, ship
from ts_consumer import TieredConsumer, TierMode
from ts_consumer.metrics import ConsumerCollector

TOPIC = "statistics"


def test_records_and_passages_are_counted_by_tier(both: Both) -> None:
    """By the consumer, by librdkafka's statistics, and for Prometheus."""
    fill(both.cluster, TOPIC, partitions=1)
    end = both.cluster.latest(TOPIC, 0)
    (shipped,) = ship(both.archive, both.cluster, TOPIC, 1)
    both.cluster.delete_records(TOPIC, {0: shipped})
    seen: list[dict[str, Any]] = []
    config = both.config(TierMode.KAFKA_PREFERRED, "statistics", statistics_interval_ms=200)
    config["stats_cb"] = lambda text: seen.append(json.loads(text))
    with TieredConsumer(config) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        read_until(consumer, {0: end})
        found = consumer.tier_statistics()
        assert found is not None
        assert (found.archive_records, found.kafka_records) == (shipped, end - shipped)
        assert (found.to_history, found.to_live, found.back, found.skipped_offsets) == (1, 1, 0, 0)
        assert found.partitions == {"resolve": 0, "history": 0, "join": 0, "live": 1, "wait": 0, "failed": 0}
        registry = CollectorRegistry()
        registry.register(ConsumerCollector(consumer, {"client": "a"}))
        page = generate_latest(registry).decode()
        assert f'ts_consumer_records_total{{client="a",tier="archive"}} {float(shipped)}' in page
        assert 'ts_consumer_partitions{client="a",state="live"} 1.0' in page

        def counted() -> bool:
            consumer.poll(0.1)
            return bool(seen) and seen[-1]["tiers"]["kafka_records"] == end - shipped

        wait_for(counted, "librdkafka's statistics")
        assert "brokers" in seen[-1]


def test_the_plain_mode_has_no_tiers(both: Both) -> None:
    """Its statistics are the plain client's."""
    with both.consumer(TierMode.KAFKA_ONLY, "statistics-plain") as consumer:
        assert consumer.tier_statistics() is None
        registry = CollectorRegistry()
        registry.register(ConsumerCollector(consumer))
        assert generate_latest(registry) == b""
