"""`AIOTieredConsumer`: the interface of `confluent_kafka.aio.AIOConsumer`, over Kafka and the archive.

It is that class with another client inside: its constructor would make the plain one, so it is not called. A test
compares the attributes that both constructors set, for each release.
"""

import asyncio
from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from confluent_kafka.aio import AIOConsumer, _common

from ts_consumer.consumer import TieredConsumer

_WRAPPED = "on_commit"


class AIOTieredConsumer(AIOConsumer):
    """A `TieredConsumer` for asyncio. Each method returns an awaitable; callbacks are coroutine functions.

    Args:
        consumer_conf: as of `TieredConsumer`.
        max_workers: threads that wait in calls; a callback that calls needs one more.
        executor: instead of threads of its own.

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
        _common.wrap_conf_callback(loop, config, _WRAPPED)
        self._closed = False
        self._owns_executor = executor is None
        self._consumer: Any = TieredConsumer(config)
        self.executor = ThreadPoolExecutor(max_workers) if executor is None else executor

    async def consume_arrow(self, num_rows: int = 100_000, timeout: float = -1) -> pa.Table:
        """Return rows, as `TieredConsumer.consume_arrow`."""
        return await self._call(self._consumer.consume_arrow, num_rows, timeout)
