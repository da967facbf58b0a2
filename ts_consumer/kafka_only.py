"""`KAFKA_ONLY`: the plain client, whose callbacks get the wrapper."""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

from ts_consumer.live import Callback


class KafkaOnly:
    """Passes every call to `confluent_kafka.Consumer`.

    Args:
        owner: what callbacks get as their first argument.
        settings: librdkafka's configuration.
        options: further arguments of `confluent_kafka.Consumer`.
    """

    def __init__(self, owner: Any, settings: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        self._owner = owner
        self._consumer = Consumer(dict(settings), **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def subscribe(
        self, topics: list[str], on_assign: Callback | None, on_revoke: Callback | None, on_lost: Callback | None
    ) -> None:
        """Subscribe to topics."""
        given = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}
        self._consumer.subscribe(
            topics, **{name: self._owned(callback) for name, callback in given.items() if callback is not None}
        )

    def poll(self, timeout: float | None) -> Message | None:
        """Return the next message or event."""
        return self._consumer.poll() if timeout is None else self._consumer.poll(timeout)

    def consume_arrow(self, num_rows: int, timeout: float) -> Any:
        """Refuse: the plain client has no such call."""
        raise NotImplementedError("consume_arrow() needs a mode that reads the archive; KAFKA_ONLY is the plain client")

    def store_offsets(self, message: Message | None, offsets: list[TopicPartition] | None) -> None:
        """Store offsets for the next commit."""
        given: dict[str, Any] = {"message": message, "offsets": offsets}
        self._consumer.store_offsets(**{name: value for name, value in given.items() if value is not None})

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float | None, cached: bool
    ) -> tuple[int, int] | None:
        """Return the first and the next offset of brokers."""
        given = {} if timeout is None else {"timeout": timeout}
        found: tuple[int, int] | None = self._consumer.get_watermark_offsets(partition, cached=cached, **given)
        return found

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float | None) -> list[TopicPartition]:
        """Return the offsets of timestamps."""
        found: list[TopicPartition] = self._consumer.offsets_for_times(
            partitions, *([] if timeout is None else [timeout])
        )
        return found

    def tier_statistics(self) -> None:
        """Return nothing: there is one tier."""

    def of_group(self) -> Consumer:
        """Return the plain client."""
        return self._consumer

    def _owned(self, callback: Callback) -> Callback:
        given: Any = callback
        if not callable(given):
            return callback  # the client refuses it
        return lambda _, partitions: callback(self._owner, partitions)
