"""The live tail of an agent: a shipper for each log, which is one for each store and group of topics."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from ts_common.archive.object_keys import ClusterKeys
from ts_common.config.cluster_config import ClusterConfig
from ts_common.errors import ConfigurationError
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_uploader.health.tail_state import TailState
from ts_uploader.metrics.counters import Metrics
from ts_uploader.tail.pack_log import PackLog
from ts_uploader.tail.shipper import Requests, Sources, TailShipper
from ts_uploader.tail.upkeep import Upkeep
from ts_uploader.tracking.backlog import Backlog

_MILLISECONDS: Final = 1000


def log_of(config: ClusterConfig, broker: int, topic: str) -> str | None:
    """Return the name of the log that has a topic's live tail; None if the topic has none."""
    if not config.tails(topic):
        return None
    group = config.tail_group(topic)
    return str(broker) if group is None else f"{broker}.{group}"


class Tail:
    """All logs of an agent.

    Args:
        stores: one for each location.
        store_of: returns the store of a topic.
        config: returns the configuration that is in effect.
        requests: makes what requests high watermarks of the broker.
        backlog: as of `Sources`.
        offer: puts a message into the inbox of the main loop.
    """

    def __init__(
        self,
        keys: ClusterKeys,
        broker: int,
        stores: Sequence[ObjectStore],
        store_of: Callable[[str], ObjectStore],
        config: Callable[[], ClusterConfig],
        requests: Callable[[], Requests],
        backlog: Callable[[], Mapping[TopicPartition, Backlog]],
        offer: Callable[[object], None],
        metrics: Metrics,
    ) -> None:
        begun = config()
        logs = [str(broker), *(f"{broker}.{group}" for group in begun.tail_groups)]

        def selects(topic: str, *, log: str, location: str) -> bool:
            if log_of(config(), broker, topic) != log:
                return False
            try:
                return store_of(topic).location == location
            except ConfigurationError:
                return False  # a topic without a location ships nothing; that is reported elsewhere

        def shipper(store: ObjectStore, log: str) -> TailShipper:
            packs = PackLog(store, keys, log)
            sources = Sources(
                backlog,
                partial(selects, log=log, location=store.location),
                offer,
                lambda: config().tail_max_bytes_per_second,
                begun.tail_interval_ms / _MILLISECONDS,
            )
            upkeep = Upkeep(packs, store, keys, metrics)
            return TailShipper(packs, store, keys, requests(), sources, metrics, upkeep)

        self.shippers = [shipper(store, log) for store in stores for log in logs]

    @property
    def states(self) -> list[TailState]:
        """How each log is doing."""
        return [shipper.state for shipper in self.shippers]

    def close(self) -> None:
        """Make each shipper's `run` return soon."""
        for shipper in self.shippers:
            shipper.close()
