"""The live tails that clients read: each log of packs is followed once, for all partitions whose commits name it.

A log is followed while a client uses one of these partitions: the endpoint requests the pack after the newest one, by
its computed name, a few times a second. A new pack reaches the partitions at once, so a waiting Fetch is answered.
Partitions without a live tail cause no request. All methods run on the event loop, and requests on threads.
"""

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from math import inf
from time import monotonic
from typing import Any, Final, Protocol
from weakref import WeakSet

import structlog

from ts_common.archive.commit import Live
from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.tail_logs import TailLogs
from ts_common.errors import CorruptData, ObjectNotFound, TieredStorageError
from ts_common.store.contract import ObjectStore
from ts_endpoint.contract import in_lots

IDLE_SECONDS: Final = 10.0  # since a client last used a partition; then its logs are not followed any more
FOLLOW_SECONDS: Final = 0.2  # between two requests for the next pack
_AGAIN_SECONDS: Final = 1.0  # after an error
_LISTING_SECONDS: Final = 60.0  # between two listings: a log can begin again, or lack the next pack
_MOST_BY_NAME: Final = 2  # packs one after the other; a listing then leads to the newest at once
_THREADS: Final = 8

log = structlog.get_logger()


class Watcher(Protocol):
    """A partition whose commit names a log."""

    @property
    def is_used(self) -> bool:
        """Whether a client used it lately."""
        ...

    def extended(self) -> Any:
        """Return what it shows with the packs that were read; on a thread."""
        ...

    def extend(self, found: Any) -> None:
        """Show what `extended` returned."""
        ...


class FollowedLog:
    """One log of packs.

    Attributes:
        changes: the number of packs that were read.
        watchers: the partitions that get new packs.
    """

    def __init__(self, logs: TailLogs, name: str, threads: ThreadPoolExecutor) -> None:
        self.changes = 0
        self.watchers: WeakSet[Watcher] = WeakSet()
        self._logs = logs
        self._name = name
        self._threads = threads
        self._task: asyncio.Task[None] | None = None
        self._used_at = 0.0
        self._listed_at = -inf
        self._looks: list[asyncio.Future[None]] = []  # that wait for the next request
        self._hurry = asyncio.Event()
        self._damage: str | None = None

    @property
    def is_followed(self) -> bool:
        """Whether new packs are read as they arrive."""
        return self._task is not None and not self._task.done()

    def use(self) -> None:
        """Follow the log for some more seconds."""
        self._used_at = monotonic()
        if not self.is_followed:
            self._task = asyncio.ensure_future(self._follow())

    async def look(self) -> None:
        """Wait until the newest pack was read, by a request that begins after the call (reading rule 11).

        After a pause the log can have many more packs than were read. A client that has read one of them elsewhere has
        a position above the end of the others.

        Raises:
            NewerFormat: a later release wrote the newest pack.
            StoreUnavailable, AccessDenied, BucketMissing: the store failed.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._looks.append(done)
        self._hurry.set()
        self.use()
        await done

    def close(self) -> None:
        """Follow the log no more."""
        if self._task is not None:
            self._task.cancel()

    async def _follow(self) -> None:
        by_name = 0  # packs that were found one after the other: others can follow
        while self._looks or monotonic() - self._used_at < IDLE_SECONDS:
            looks, self._looks = self._looks, []
            self._hurry.clear()
            pause = FOLLOW_SECONDS
            error: Exception | None = None
            found: bool | None = False
            try:
                lists = by_name >= _MOST_BY_NAME or monotonic() - self._listed_at >= _LISTING_SECONDS
                found = await self._advance(lists=lists)
                by_name = by_name + 1 if found and not lists else 0
                if found:
                    self.changes += 1
                    pause = 0.0
                elif found is None and lists:
                    pause = _AGAIN_SECONDS
                elif found is None:
                    by_name, pause = _MOST_BY_NAME, 0.0
            except Exception as failed:
                error, pause, by_name = failed, _AGAIN_SECONDS, 0
                if not isinstance(failed, TieredStorageError):
                    log.exception("internal_error", log=self._name)
            if by_name:
                self._looks = [*looks, *self._looks]
            for look in () if by_name else looks:
                if look.done():  # cancelled
                    continue
                if error is None:
                    look.set_result(None)
                else:
                    look.set_exception(error)
            if found:
                await self._tell()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), pause)

    async def _advance(self, *, lists: bool) -> bool | None:
        """Read the next pack, or the newest by a listing; return whether there is one, None if it is damaged."""
        now = monotonic()
        read = partial(self._logs.advance, self._name, lists=lists)
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._threads, read)
        except (CorruptData, ObjectNotFound) as error:
            # What was read before counts; without that, the chain of a partition reports it.
            if str(error) != self._damage:
                log.warning("tail_damaged", log=self._name, reason=str(error))
            self._damage = str(error)
            return None
        if lists:
            self._listed_at = now
        return found

    async def _tell(self) -> None:
        """Give the packs that were read to the partitions that clients use."""
        run = asyncio.get_running_loop().run_in_executor
        for some in in_lots([each for each in self.watchers if each.is_used]):
            found = await run(self._threads, partial(_extended, some))
            for watcher, extended in zip(some, found, strict=True):
                watcher.extend(extended)


class Tails:
    """The logs of packs of one cluster in one store.

    Attributes:
        logs: what was read of them.
    """

    def __init__(self, store: ObjectStore, keys: ClusterKeys) -> None:
        self.logs = TailLogs(store, keys)
        self._threads = ThreadPoolExecutor(_THREADS, "tails")
        self._followed: dict[str, FollowedLog] = {}

    def of(self, live: Live) -> Sequence[FollowedLog]:
        """Return the logs that a commit names."""
        return [self._log(name) for name in dict.fromkeys((live.log, *(log for log, _ in live.former)))]

    def close(self) -> None:
        """Follow no log any more."""
        for each in self._followed.values():
            each.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _log(self, name: str) -> FollowedLog:
        if name not in self._followed:
            self._followed[name] = FollowedLog(self.logs, name, self._threads)
        return self._followed[name]


def _extended(watchers: Iterable[Watcher]) -> list[Any]:
    return [each.extended() for each in watchers]
