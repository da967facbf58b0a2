"""A consumer over Kafka and the archive, with the interface of `confluent_kafka.Consumer`."""

from ts_consumer.consumer import AIOTieredConsumer, TieredConsumer
from ts_consumer.modes import TierMode

__all__ = ["AIOTieredConsumer", "TierMode", "TieredConsumer"]
