"""Notices requests to erase in one location, so that open partitions obey a new list of erased offsets within seconds.

A list changes no commit, so a partition sees it with its next listing only. `tsctl erase` puts a request after its
lists, and all requests of a cluster are below one prefix: one listing of it serves all partitions.
"""

import asyncio
from math import inf
from time import monotonic
from typing import Final

import structlog

from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import TieredStorageError
from ts_common.store.contract import ObjectStore

LOOK_SECONDS: Final = 5.0  # for each page of a listing, so that the number of requests is bounded
_PAGE: Final = 1000

log = structlog.get_logger()


class Erasures:
    """The requests to erase of one cluster in one store; on the event loop.

    Attributes:
        changed_at: monotonic time. A partition that was listed before it can lack a list.
    """

    def __init__(self, store: ObjectStore, keys: ClusterKeys) -> None:
        self.changed_at = -inf
        self._store = store
        self._keys = keys
        self._seen = hash(())
        self._due = 0.0
        self._failed = False
        self._looking: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Begin to list the requests, unless that was done a few seconds ago."""
        if monotonic() >= self._due and (self._looking is None or self._looking.done()):
            self._looking = asyncio.ensure_future(self._look())

    async def _look(self) -> None:
        try:
            names = await asyncio.to_thread(self._names)
        except TieredStorageError as error:
            if not self._failed:
                log.warning("erasures_not_listed", reason=str(error))
            self._failed, self._due = True, monotonic() + LOOK_SECONDS
            return
        ended = monotonic()
        self._failed, self._due = False, ended + LOOK_SECONDS * (1 + len(names) // _PAGE)
        if hash(names) != self._seen:
            self._seen, self.changed_at = hash(names), ended

    def _names(self) -> tuple[str, ...]:
        return tuple(info.key for info in self._store.list(self._keys.erasures))
