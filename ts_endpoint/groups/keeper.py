"""Keeps committed offsets in memory, and reads and writes them in the store on threads.

A group is read when it is first used. Commits are accepted at once and written every 30 seconds, so a process that is
killed loses the commits since then, and its clients read some records again. A store that does not respond delays the
writes. Clients are not affected, but for a request that needs a group that was not read yet: it gets
COORDINATOR_LOAD_IN_PROGRESS, and the client repeats it. "No committed offset" would be a wrong answer.

A process may not notice that another one owned a group for a while, because only the other one found it down. So what
was read from the store is read again after half a minute, when a client fetches offsets.
"""

import asyncio
from asyncio import AbstractEventLoop, Task
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import structlog
from kio.schema.errors import ErrorCode

from ts_common.archive.group_offsets import Committed, StoredOffsets
from ts_common.errors import TieredStorageError, TransientError
from ts_common.model import TopicPartition
from ts_endpoint.groups.limits import GroupLimits
from ts_endpoint.groups.offsets import GroupOffsets, size_of
from ts_endpoint.groups.offsets_store import OffsetsStore

log = structlog.get_logger("ts_endpoint")
T = TypeVar("T")

_THREADS: Final = 4
_PAUSE: Final = 1.0  # seconds after a failed read, before the store is read again


class NotReadable(Exception):
    """The offsets of a group could not be read.

    Attributes:
        error: for the client: COORDINATOR_LOAD_IN_PROGRESS if it can repeat the request, NOT_COORDINATOR if another
            process became the owner, else UNKNOWN_SERVER_ERROR.
    """

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.error = error


class Keeper:
    """The committed offsets of all groups of this process.

    Args:
        store: None keeps offsets in memory only.
        clock: returns milliseconds since the epoch.

    Attributes:
        bytes: about how many bytes of memory the offsets need.
        commits: offsets that were committed, since the start.
        flush_failures: writes of a group that failed, since the start.
        read_failures: reads of a group, or lists of groups, that failed.
    """

    def __init__(
        self, loop: AbstractEventLoop, store: OffsetsStore | None, limits: GroupLimits, clock: Callable[[], int]
    ) -> None:
        self._loop = loop
        self._store = store
        self._limits = limits
        self._clock = clock
        self._groups: dict[str, GroupOffsets] = {}
        self._reads: dict[str, Task[ErrorCode | None]] = {}
        self._flushing: Task[None] | None = None
        self.bytes = 0
        self._paused_until = 0.0
        self._flushed = loop.time()
        self._threads = ThreadPoolExecutor(_THREADS, "groups") if store is not None else None
        self.commits = 0
        self.flush_failures = 0
        self.read_failures = 0

    @property
    def seconds_since_flush(self) -> float:
        """Seconds since the store had everything that was committed before."""
        return self._loop.time() - self._flushed

    @property
    def unwritten(self) -> int:
        """Number of groups that the store does not have as they are here."""
        return sum(not each.is_written for each in self._groups.values()) if self._store is not None else 0

    def get(self, group: str) -> GroupOffsets | None:
        """Return the offsets of a group, if it is in memory; it may not be read yet."""
        return self._groups.get(group)

    def names(self) -> list[str]:
        """Return the groups in memory, and those that are being read."""
        return list(self._groups | self._reads)

    async def read(self, group: str, deadline: float) -> GroupOffsets:
        """Return the offsets of a group, from the store if they were not read yet.

        Args:
            deadline: time of the event loop: wait at most until then.

        Raises:
            NotReadable: the store failed, or did not respond in time, or another process became the owner.
        """
        store = self._store
        if store is None:
            return self._groups.get(group) or GroupOffsets(group, is_loaded=True)
        while True:
            found = self._groups.get(group)
            loaded = found if found is not None and found.is_loaded else None
            must_answer = self._must_answer(group, deadline)
            if loaded is not None and (must_answer or not self._is_old(loaded)):
                loaded.used = self._loop.time()
                return loaded
            if found is not None:
                found.is_released = False
            if must_answer:
                raise NotReadable(ErrorCode.coordinator_load_in_progress)
            error = await self._wait_for_read(group, store, deadline)
            if error is not None and (loaded is None or error is not ErrorCode.coordinator_load_in_progress):
                raise NotReadable(error)

    async def _wait_for_read(self, group: str, store: OffsetsStore, deadline: float) -> ErrorCode | None:
        """Read a group, or wait for the read in progress; return its error if it ended and failed."""
        reading = self._reads.get(group)
        if reading is None:
            reading = self._reads[group] = self._loop.create_task(self._read(group, store))
        await asyncio.wait({reading}, timeout=deadline - self._loop.time())
        return reading.result() if reading.done() else None

    def _must_answer(self, group: str, deadline: float) -> bool:
        """Return whether a request waits for the store no longer."""
        now = self._loop.time()
        return now >= deadline or (group not in self._reads and now < self._paused_until)

    def commit(self, group: str, commits: Sequence[tuple[TopicPartition, int, int, str]]) -> list[ErrorCode]:
        """Commit offsets: partition, offset, leader epoch and metadata; return the error code of each."""
        found = self._groups.get(group)
        if found is None:
            if not self._make_room():
                return [ErrorCode.invalid_commit_offset_size] * len(commits)
            found = self._groups[group] = GroupOffsets(group, is_loaded=self._store is None)
        found.is_released = False
        now = self._clock()
        errors = []
        for partition, offset, epoch, metadata in commits:
            if len(metadata) > self._limits.offset_metadata:
                errors.append(ErrorCode.offset_metadata_too_large)
            elif not self._fits(found, partition, metadata):
                errors.append(ErrorCode.invalid_commit_offset_size)
            else:
                self.bytes += found.commit(partition, offset, epoch, metadata, now)
                self.commits += 1
                errors.append(ErrorCode.none)
        found.used = self._loop.time()
        if not found.offsets:
            self._drop(found)
        return errors

    def delete(self, group: str) -> None:
        """Delete all offsets of a group, and its object with the next flush."""
        found = self._groups.get(group)
        if found is None:
            found = self._groups[group] = GroupOffsets(group)
        self.bytes -= found.bytes
        found.delete(self._clock())
        if self._store is None:
            self._drop(found)

    def remove(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete the offsets of partitions of a group that was read; the store deletes them with the next flush."""
        found = self._groups.get(group)
        if found is None:
            return
        self.bytes -= found.remove(partitions, self._clock())
        if self._store is None:
            found.removed.clear()
            if not found.offsets:
                self._drop(found)

    def release(self, group: str) -> bool:
        """Stop using what is in memory: another process owns the group. Return whether it must be flushed first."""
        self._reads.pop(group, None)  # its result is ignored
        found = self._groups.get(group)
        if found is None or found.is_released:
            return False
        found.release()
        if found.is_written:
            self._drop(found)
        return not found.is_written

    async def list_stored(self) -> list[tuple[str, float]]:
        """Return the groups in the store, with the seconds since the epoch of their last write.

        Raises:
            NotReadable: the store failed.
        """
        if self._store is None:
            return []
        store = self._store
        try:
            return await self._run(lambda: list(store.groups()))
        except TieredStorageError as error:
            raise NotReadable(self._unreadable("all", error)) from error

    async def flush(self) -> None:
        """Write the groups that changed; a failure is logged and counted, and the next flush tries again."""
        while self._flushing is not None:
            await asyncio.wait({self._flushing})
        if self._store is None:
            self._flushed = self._loop.time()
            return
        self._flushing = self._loop.create_task(self._flush(self._store))
        self._flushing.add_done_callback(self._flush_ended)
        await asyncio.shield(self._flushing)

    def forget(self, idle: float, is_used: Callable[[str], bool]) -> None:
        """Remove groups from memory that the store has, if they were not used for some seconds."""
        now = self._loop.time()
        for each in list(self._groups.values()):
            is_idle = self._store is not None and now - each.used >= idle
            if each.is_written and (is_idle or not each.offsets) and not is_used(each.group):
                self._drop(each)

    async def close(self) -> None:
        """End reads and threads."""
        reads = list(self._reads.values())
        for reading in reads:
            reading.cancel()
        await asyncio.gather(*reads, return_exceptions=True)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _read(self, group: str, store: OffsetsStore) -> ErrorCode | None:
        """Read a group; return the error for the client if this failed."""
        own = asyncio.current_task()
        error, stored = None, StoredOffsets({}, None)
        try:
            stored = await self._run(lambda: store.read(group))
        except TieredStorageError as failure:
            error = self._unreadable(group, failure)
        finally:
            is_current = self._reads.get(group) is own
            if is_current:
                del self._reads[group]
        if not is_current:
            return ErrorCode.not_coordinator  # another process became the owner meanwhile
        if error is not None:
            return error
        found = self._groups.get(group)
        if found is None:
            found = self._groups[group] = GroupOffsets(group)
        self._adopt(found, lambda: found.read(stored.offsets, stored.etag))
        found.used = found.seen = self._loop.time()
        self._make_room(kept=found)
        return None

    def _unreadable(self, group: str, error: TieredStorageError) -> ErrorCode:
        self.read_failures += 1
        if isinstance(error, TransientError):
            self._paused_until = self._loop.time() + _PAUSE
            log.warning("group_offsets_not_read", group=group, error=str(error))
            return ErrorCode.coordinator_load_in_progress
        log.error("group_offsets_not_read", group=group, error=str(error))
        return ErrorCode.unknown_server_error

    def _flush_ended(self, _: Task[None]) -> None:
        self._flushing = None

    async def _flush(self, store: OffsetsStore) -> None:
        began = self._loop.time()
        waiting = [each for each in self._groups.values() if not each.is_written]
        failures: list[TieredStorageError] = []

        async def work() -> None:
            while waiting:
                each = waiting.pop()
                if each.is_written:
                    continue
                if any(isinstance(error, TransientError) for error in failures):
                    return  # while the store does not respond, each write fails slowly
                try:
                    await self._write(each, store)
                except TieredStorageError as error:
                    failures.append(error)
                    self.flush_failures += 1

        await asyncio.gather(*(work() for _ in range(_THREADS)))
        if failures:
            log.warning("group_offsets_not_flushed", groups=self.unwritten, error=str(failures[0]))
        else:
            self._flushed = began

    async def _write(self, each: GroupOffsets, store: OffsetsStore) -> None:
        reading = self._reads.get(each.group)
        if reading is not None:
            await asyncio.wait({reading})
        what = each.unwritten()
        stored = await self._run(lambda: store.write(what))
        self._adopt(each, lambda: each.written(what, stored.offsets, stored.etag))
        each.seen = self._loop.time()
        if each.is_written and (each.is_released or not each.offsets):
            self._drop(each)

    def _is_old(self, each: GroupOffsets) -> bool:
        """Return whether another process can have written what this one does not have."""
        return self._store is not None and each.is_written and self._loop.time() - each.seen >= self._limits.flush

    def _adopt(self, each: GroupOffsets, change: Callable[[], None]) -> None:
        before = each.bytes
        change()
        if self._groups.get(each.group) is each:
            self.bytes += each.bytes - before

    def _drop(self, each: GroupOffsets) -> None:
        if self._groups.pop(each.group, None) is not None:
            self.bytes -= each.bytes

    def _can_be_dropped(self, each: GroupOffsets) -> bool:
        return self._store is not None and each.is_written and each.group not in self._reads

    def _make_room(self, size: int = 0, kept: GroupOffsets | None = None) -> bool:
        """Return whether memory has room for a group, or for some bytes of one.

        Groups that the store has leave the memory first, those that were not used for longest.

        Args:
            size: bytes.
            kept: the group of these bytes; None for a new group.
        """
        if not self._has_room(size, kept):
            droppable = sorted(
                (each for each in self._groups.values() if self._can_be_dropped(each)), key=lambda each: each.used
            )
            for number, each in enumerate(droppable):
                if number >= len(droppable) // 4 and self._has_room(size, kept):
                    break  # a quarter at least, because the next request would sort all of them again
                if each is not kept:
                    self._drop(each)
        return self._has_room(size, kept)

    def _has_room(self, size: int, kept: GroupOffsets | None) -> bool:
        number = len(self._groups) + (kept is None)
        return number <= self._limits.groups and self.bytes + size <= self._limits.offset_bytes

    def _fits(self, each: GroupOffsets, partition: TopicPartition, metadata: str) -> bool:
        if partition in each.offsets and len(metadata) <= len(each.offsets[partition].metadata):
            return True
        size = size_of(partition, Committed(0, -1, 0, metadata))
        return each.bytes + size <= self._limits.group_offset_bytes and self._make_room(size, each)

    async def _run(self, call: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(self._threads, call)
