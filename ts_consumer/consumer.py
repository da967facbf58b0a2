"""The interfaces of `confluent_kafka.Consumer` and `confluent_kafka.aio.AIOConsumer`, over Kafka and the archive."""

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import structlog
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.aio import AIOConsumer, _common

from ts_common.logs import LogFormat, configure_structlog
from ts_consumer.configuration import parse_configuration
from ts_consumer.kafka_only import KafkaOnly
from ts_consumer.live import Callback
from ts_consumer.modes import TierMode
from ts_consumer.statistics import TierStatistics
from ts_consumer.tiers import Tiers


class TieredConsumer:
    """A consumer that reads a topic's history from the archive and its present from Kafka.

    All methods are those of `confluent_kafka.Consumer`, with the same arguments, results and errors. Their
    documentation there applies. docs/consumer.md describes what differs by mode.

    Args:
        config: librdkafka's keys, `tiered.storage.mode`, `kafka.cluster.id` and the location of the archive, as
            `ts_consumer.configuration` lists them.
        options: further arguments of `confluent_kafka.Consumer`, as `logger`; and keys without dots.

    Raises:
        ConfigurationError: with every problem of our keys.
        KafkaException: librdkafka refuses its configuration.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **options: Any) -> None:
        if not structlog.is_configured():  # its own default writes every event to standard output
            configure_structlog(LogFormat.TEXT, logging.INFO)
        given = dict(config or {})
        given.update({key: options.pop(key) for key in list(options) if key != "logger"})
        configuration = parse_configuration(given)
        self._part: Tiers | KafkaOnly
        if configuration.mode is TierMode.KAFKA_ONLY:
            self._part = KafkaOnly(self, configuration.live, options)
        else:
            self._part = Tiers(self, configuration, options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def subscribe(
        self,
        topics: list[str],
        on_assign: Callback | None = None,
        on_revoke: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Subscribe to topics. Callbacks get this consumer and the partitions."""
        self._part.subscribe(topics, on_assign, on_revoke, on_lost)

    def unsubscribe(self) -> None:
        """End the subscription."""
        self._part.unsubscribe()

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Replace the assignment."""
        self._part.assign(partitions)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Add partitions to the assignment."""
        self._part.incremental_assign(partitions)

    def unassign(self) -> None:
        """End the assignment."""
        self._part.unassign()

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Remove partitions from the assignment."""
        self._part.incremental_unassign(partitions)

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        return self._part.assignment()

    def poll(self, timeout: float | None = None) -> Message | None:
        """Return the next message or event; None if none arrived within `timeout` seconds. Callbacks run here."""
        return self._part.poll(timeout)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to `num_messages` messages and events that arrived within `timeout` seconds. Callbacks run here."""
        return self._part.consume(num_messages, timeout)

    def consume_arrow(self, num_rows: int = 100_000, timeout: float = -1) -> pa.Table:
        """Return up to `num_rows` rows as an Arrow table, as soon as some arrived; empty if none did in time.

        Its columns are those of this project's readers: key, value, topic, partition, offset, timestamp, timestampType,
        headers and timestampMs. Positions, stored offsets and seams are those of
        `consume`. An end of a partition is not reported.

        Args:
            num_rows: at most.
            timeout: seconds; below 0 without a limit.

        Raises:
            KafkaException: an error that `consume` returns as an event. The rows before it were returned.
            NotImplementedError: in `KAFKA_ONLY`.
        """
        return self._part.consume_arrow(num_rows, timeout)

    def seek(self, partition: TopicPartition) -> None:
        """Continue an assigned partition at another offset."""
        self._part.seek(partition)

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Hand out nothing of partitions until they are resumed."""
        self._part.pause(partitions)

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Hand out paused partitions again."""
        self._part.resume(partitions)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offset after the last record that the application got of each partition."""
        return self._part.position(partitions)

    def commit(
        self, message: Message | None = None, offsets: list[TopicPartition] | None = None, asynchronous: bool = True
    ) -> list[TopicPartition] | None:
        """Commit the offset after a message, offsets, or what is stored; return them if it is not asynchronous."""
        commit: Any = self._group.commit  # one signature of many
        named = {"message": message, "offsets": offsets}
        given = {name: value for name, value in named.items() if value is not None}
        found: list[TopicPartition] | None = commit(**given, asynchronous=asynchronous)
        return found

    def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """Store offsets for the next commit; `enable.auto.offset.store` must be false."""
        self._part.store_offsets(message, offsets)

    def committed(self, partitions: list[TopicPartition], timeout: float | None = None) -> list[TopicPartition]:
        """Return the committed offsets of partitions."""
        return self._group.committed(partitions, *([] if timeout is None else [timeout]))

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float | None = None, cached: bool = False
    ) -> tuple[int, int] | None:
        """Return the first offset of both tiers, and the next one."""
        return self._part.get_watermark_offsets(partition, timeout, cached)

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float | None = None) -> list[TopicPartition]:
        """Return for each partition the offset of the first record at or after a timestamp, in milliseconds."""
        return self._part.offsets_for_times(partitions, timeout)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Return the metadata of brokers. `TIERED_STORAGE_ONLY` without a subscription has that of the archive.

        There each partition has the leader -1, and a topic that the archive lacks has an error, as the plain client's.
        """
        return self._part.list_topics(topic, timeout)

    def cluster_id(self, timeout: float = -1) -> str | None:
        """Return the cluster id of brokers."""
        return self._group.cluster_id(timeout=timeout)

    def consumer_group_metadata(self) -> Any:
        """Return the group's metadata, for `Producer.send_offsets_to_transaction`."""
        return self._group.consumer_group_metadata()

    def memberid(self) -> str | None:
        """Return the id of this member of the group."""
        return self._group.memberid()

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Replace the credentials for brokers."""
        self._part.set_sasl_credentials(username, password)

    def tier_statistics(self) -> TierStatistics | None:
        """Return what was done per tier, from any thread; None in `KAFKA_ONLY`. `stats_cb` gets it as `tiers`."""
        return self._part.tier_statistics()

    def close(self) -> None:
        """Leave the group and free everything."""
        self._part.close()

    @property
    def _group(self) -> Consumer:
        found: Consumer = self._part.of_group()
        return found


class AIOTieredConsumer(AIOConsumer):
    """A `TieredConsumer` for asyncio. Each method returns an awaitable; callbacks are coroutine functions.

    It is the binding's class with another client inside: its constructor would make the plain one, so it is not called.
    A test compares the attributes that both constructors set, for each release.

    Args:
        consumer_conf: as of `TieredConsumer`.
        max_workers: threads that wait in calls; a callback that calls needs one more.

    Raises:
        ValueError: `max_workers` is below 1.
        ConfigurationError, KafkaException: as `TieredConsumer`.
    """

    def __init__(
        self, consumer_conf: Mapping[str, Any], max_workers: int = 100, executor: Executor | None = None
    ) -> None:
        if executor is None and max_workers < 1:
            raise ValueError("max_workers must be at least 1")
        loop = asyncio.get_running_loop()
        config = dict(consumer_conf)
        _common.wrap_common_callbacks(loop, config)
        _common.wrap_conf_callback(loop, config, "on_commit")
        self._closed = False
        self._owns_executor = executor is None
        self._consumer: Any = TieredConsumer(config)
        self.executor = ThreadPoolExecutor(max_workers) if executor is None else executor

    async def consume_arrow(self, num_rows: int = 100_000, timeout: float = -1) -> pa.Table:
        """Return rows, as `TieredConsumer.consume_arrow`."""
        return await self._call(self._consumer.consume_arrow, num_rows, timeout)
