"""What one consumer consists of in the modes that read the archive, made once and shared by its rooms."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from ts_consumer.archive_tier import ArchiveTier
from ts_consumer.brokers import Brokers
from ts_consumer.configuration import Configuration
from ts_consumer.live import LivePart
from ts_consumer.partitions import Assignment
from ts_consumer.prefetch import Prefetch
from ts_consumer.resolution import Resolver
from ts_consumer.transitions import Transitions

_LOOK_UPS: Final = 8  # threads; each waits for a broker or the store


class ConsumerParts:
    """The parts of a consumer.

    Attributes:
        live: the live part; None without one.
        brokers: sends requests to brokers; None without a live part.
        transitions: between the states of partitions.

    Args:
        options: further arguments of `confluent_kafka.Consumer`.

    Raises:
        KafkaException: librdkafka refuses its configuration.
    """

    def __init__(self, configuration: Configuration, options: Mapping[str, Any]) -> None:
        self.configuration = configuration
        self._options = options
        self.live: LivePart | None = None
        self.brokers: Brokers | None = None
        if configuration.mode.reads_kafka:
            self.open_live()
        self.archive = ArchiveTier(configuration)
        self.prefetch = Prefetch(configuration.buffered_bytes)
        self.assignment = Assignment()
        self.executor = ThreadPoolExecutor(_LOOK_UPS, thread_name_prefix="look-ups")
        self.resolver = Resolver(configuration, self.archive, lambda: self.brokers)
        self.transitions = Transitions(
            configuration,
            self.assignment,
            self.prefetch,
            self.resolver,
            self.executor,
            lambda: self.live,
            self.archive.forget,
        )

    def open_live(self) -> LivePart:
        """Return the live part; make it if it is missing, as in `TIERED_STORAGE_ONLY` before a subscription."""
        if self.live is None:
            configuration = self.configuration
            self.live = LivePart(configuration.live_part, self._options)
            self.brokers = Brokers(configuration.live, read_committed=configuration.read_committed)
        return self.live

    def close(self) -> None:
        """End all threads of the parts; the live part is closed before."""
        self.prefetch.close()
        self.executor.shutdown(wait=False, cancel_futures=True)
        if self.brokers is not None:
            self.brokers.close()
