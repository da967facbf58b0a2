"""The consumer over both tiers: every method of the interface, one call at a time."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, without `as`
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)

from ts_common.errors import TieredStorageError
from ts_consumer.assigning import Assigning, key_of
from ts_consumer.configuration import Configuration
from ts_consumer.consumer_parts import ConsumerParts
from ts_consumer.delivery import Delivery
from ts_consumer.errors import NO_GROUP, TIMED_OUT, UNKNOWN_TOPIC, WRONG_ARGUMENT, kafka_error, refusal
from ts_consumer.gate import Gate
from ts_consumer.live import Callback, Key, LivePart
from ts_consumer.modes import TierMode
from ts_consumer.statistics import TierStatistics, statistics_of, with_tiers

_MOST_MESSAGES: Final = 1_000_000  # of one call, as in the binding
_ANSWER_SECONDS: Final = 30.0  # of a call without a timeout of its own


class Tiers:
    """What `TieredConsumer` does in the modes that read the archive.

    Attributes:
        delivery: what applications get.

    Args:
        owner: what callbacks get as their first argument.
        options: further arguments of `confluent_kafka.Consumer`.
    """

    def __init__(self, owner: Any, configuration: Configuration, options: Mapping[str, Any]) -> None:
        if callable(stats := configuration.live.get("stats_cb")):
            own = {**configuration.live, "stats_cb": with_tiers(stats, self.tier_statistics)}
            configuration = replace(configuration, live=own)
        self.parts = ConsumerParts(configuration, options)
        self.delivery = Delivery(self.parts)
        self._assigning = Assigning(owner, self.parts)
        self._gate = Gate()

    def poll(self, timeout: float | None = None) -> Message | None:
        """Return the next message or event; None if no one arrived in time."""
        with self._gate:
            return self.delivery.message(-1.0 if timeout is None else timeout + 0.0)  # a TypeError, as in the binding

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to `num_messages` messages and events that arrived in time."""
        if not 0 <= num_messages <= _MOST_MESSAGES:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        with self._gate:
            return self.delivery.messages(num_messages, timeout)

    def consume_arrow(self, num_rows: int, timeout: float) -> pa.Table:
        """Return up to `num_rows` rows, as soon as some arrived."""
        if num_rows < 1:
            raise ValueError("num_rows must be at least 1")
        with self._gate:
            return self.delivery.rows(num_rows, timeout)

    def subscribe(
        self,
        topics: list[str],
        on_assign: Callback | None = None,
        on_revoke: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Subscribe to topics."""
        with self._gate:
            self._assigning.subscribe(topics, on_assign, on_revoke, on_lost)

    def unsubscribe(self) -> None:
        """End the subscription."""
        with self._gate:
            self._assigning.unsubscribe()

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Replace the assignment."""
        with self._gate:
            self._assigning.assign(partitions)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Add partitions to the assignment."""
        with self._gate:
            self._assigning.incremental_assign(partitions)

    def unassign(self) -> None:
        """End the assignment."""
        with self._gate:
            self._assigning.unassign()

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Remove partitions from the assignment."""
        with self._gate:
            self._assigning.incremental_unassign(partitions)

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        with self._gate:
            return [TopicPartition(*key) for key in self.parts.assignment.keys]

    def seek(self, partition: TopicPartition) -> None:
        """Continue an assigned partition at another offset."""
        with self._gate:
            self._assigning.seek(partition)

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Hand out nothing of partitions until they are resumed."""
        with self._gate:
            self._assigning.set_paused(partitions, is_paused=True)

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Hand out paused partitions again."""
        with self._gate:
            self._assigning.set_paused(partitions, is_paused=False)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offset after the last record that the application got of each partition."""
        with self._gate:
            found = []
            for each in partitions:
                part = self.parts.assignment.find(key_of(each))
                offset = OFFSET_INVALID if part is None else part.position_or_invalid
                found.append(TopicPartition(each.topic, each.partition, offset))
            return found

    def of_group(self) -> Any:
        """Return librdkafka's consumer, for what belongs to the group.

        Raises:
            KafkaException: without a subscription, `TIERED_STORAGE_ONLY` has no group.
        """
        return self._live_of_group().consumer

    def _live_of_group(self) -> LivePart:
        self._gate.check()
        if self.parts.live is None:
            raise refusal(
                NO_GROUP, f"{TierMode.TIERED_STORAGE_ONLY} with assign() has no group; subscribe(), or use seek()"
            )
        return self.parts.live

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Replace the credentials for brokers."""
        self.of_group().set_sasl_credentials(username, password)
        if self.parts.brokers is not None:
            self.parts.brokers.set_sasl_credentials(username, password)

    def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """Store offsets for the next commit."""
        live = self._live_of_group()
        if self.parts.configuration.stores_offsets:
            raise refusal(WRONG_ARGUMENT, "store_offsets() needs enable.auto.offset.store=false")
        with self._gate:
            if offsets is None:
                live.store_after(message)
            else:
                live.store(offsets)

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float | None = None, cached: bool = False
    ) -> tuple[int, int] | None:
        """Return the first offset of both tiers, and the next one."""
        self._gate.check()
        live, key = self.parts.live, key_of(partition)
        if cached and live is not None and self.parts.configuration.mode.reads_kafka:
            found: tuple[int, int] | None = live.consumer.get_watermark_offsets(partition, cached=True)
            return found
        _, extent = self._answered(self.parts.resolver.both, key, timeout)
        return extent.start, extent.end

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float | None = None) -> list[TopicPartition]:
        """Return for each partition the offset of the first record at or after a timestamp.

        The archive has the lower offsets, so its answer counts. Without one, brokers answer.
        """
        self._gate.check()
        found = [self._answered(self._offset_for_time, each, timeout) for each in partitions]
        rest = [each for each, offset in zip(partitions, found, strict=True) if offset is None]
        by_kafka: dict[Key, int] = {}
        live = self.parts.live
        if rest and live is not None and self.parts.configuration.mode.reads_kafka:
            for answer in live.consumer.offsets_for_times(rest, timeout=_seconds(timeout)):
                by_kafka[key_of(answer)] = answer.offset
        return [
            TopicPartition(each.topic, each.partition, by_kafka.get(key_of(each), -1) if offset is None else offset)
            for each, offset in zip(partitions, found, strict=True)
        ]

    def list_topics(self, topic: str | None, timeout: float) -> Any:
        """Return the metadata of brokers; without a live part, the topics and partitions of the archive."""
        self._gate.check()
        if self.parts.live is not None:
            return self.parts.live.consumer.list_topics(topic, timeout)
        found = self._answered(self.parts.archive.topics, topic, timeout)
        return _metadata(self.parts.configuration.cluster, found, topic)

    def tier_statistics(self) -> TierStatistics:
        """Return what was done per tier."""
        return statistics_of(self.parts, self.delivery)

    def close(self) -> None:
        """Leave the group, and free everything; a second call does nothing."""
        self._gate.enter()
        try:
            if not self._gate.is_closed:
                self._close()
        finally:
            self._gate.leave()

    def _close(self) -> None:
        try:
            if self.parts.live is not None:
                self.parts.live.consumer.close()  # callbacks run, and stored offsets are committed
        finally:
            self._gate.is_closed = True
            self._assigning.drop_all()
            self.parts.close()
        if self.parts.live is not None:
            self.parts.live.callback_errors.raise_first()

    def _offset_for_time(self, wanted: TopicPartition) -> int | None:
        archived, extent = self.parts.resolver.both(key_of(wanted))
        if wanted.offset == OFFSET_END:
            return extent.end
        if wanted.offset == OFFSET_BEGINNING:
            return extent.start
        if wanted.offset < 0:
            raise refusal(WRONG_ARGUMENT, f"{wanted.offset} is no timestamp")
        return None if archived is None else self.parts.archive.offset_for_time(archived, wanted.offset)

    def _answered(self, work: Callable[[Any], Any], about: Any, timeout: float | None) -> Any:
        """Return the result of work on another thread, within a timeout."""
        running = self.parts.executor.submit(work, about)
        try:
            return running.result(_seconds(timeout))
        except TimeoutError:
            running.cancel()
            raise refusal(TIMED_OUT, f"no answer in {_seconds(timeout)} s") from None
        except TieredStorageError as error:
            raise KafkaException(kafka_error(error)) from error


def _metadata(cluster: str, topics: Mapping[str, Collection[int]], wanted: str | None) -> Any:
    """Return the topics of the archive in the form of the binding. No broker leads their partitions.

    Args:
        topics: numbers of partitions by topic.
        wanted: the topic that the application named; without it in the archive, the metadata has an error for it.
    """
    metadata: Any = ClusterMetadata()
    metadata.cluster_id = cluster
    for name in sorted({*topics, *([] if wanted is None else [wanted])}):
        topic = TopicMetadata()
        topic.topic = name
        if name not in topics:
            topic.error = KafkaError(UNKNOWN_TOPIC, f"the archive of cluster {cluster} has no topic {name}")
        for number in sorted(topics.get(name, ())):
            topic.partitions[number] = partition = PartitionMetadata()
            partition.id = number
        metadata.topics[name] = topic
    return metadata


def _seconds(timeout: float | None) -> float:
    return _ANSWER_SECONDS if timeout is None or timeout < 0 else timeout
