"""The settings that topics have in the archived cluster, from its newest metadata snapshot.

The snapshot is read again after five minutes, at a client's request. If that fails, the former settings stay.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import structlog

from ts_common.archive.snapshots import ClusterSnapshot, Configs
from ts_common.errors import TieredStorageError
from ts_endpoint.topics.catalog import Location

log = structlog.get_logger()

NO_CONFIGS: Final[Configs] = MappingProxyType({})
_MILLISECONDS: Final = 1000


class ClusterConfigs:
    """The settings of topics.

    Args:
        locations: of the archive; each has all snapshots.
        seconds: between two readings.
        clock: monotonic seconds.
    """

    def __init__(
        self, locations: Sequence[Location], seconds: float = 300.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._locations = locations
        self._seconds = seconds
        self._clock = clock
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._configs: Mapping[str, Configs] = {}

    async def of(self, topic: str) -> Configs:
        """Return the settings of a topic without defaults; empty if the snapshot has none, or for `topic~id`."""
        if self._clock() >= self._read_at + self._seconds:
            if self._reading is None:
                self._reading = asyncio.ensure_future(self._read())
            await asyncio.shield(self._reading)
        return self._configs.get(topic, NO_CONFIGS)

    async def _read(self) -> None:
        try:
            self._configs = await asyncio.to_thread(self._newest)
        except TieredStorageError as error:
            log.warning("snapshot_unreadable", message="topics have the settings of an archive", error=str(error))
        finally:
            self._read_at, self._reading = self._clock(), None

    def _newest(self) -> dict[str, Configs]:
        now = int(time.time() * _MILLISECONDS)
        found = (ClusterSnapshot.newest(each.store, each.keys, now) for each in self._locations)
        newest = max((each for each in found if each is not None), key=lambda each: each.time, default=None)
        return {} if newest is None else {name: each.configs for name, each in newest.topics.items() if each.configs}
