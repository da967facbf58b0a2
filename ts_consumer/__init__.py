"""A consumer over Kafka and the archive, with the interface of `confluent_kafka.Consumer`."""

from ts_consumer.asyncio_consumer import AIOTieredConsumer
from ts_consumer.consumer import TieredConsumer
from ts_consumer.modes import Mode

__all__ = ["AIOTieredConsumer", "Mode", "TieredConsumer"]
