"""Reading ahead: one long request for a segment, which all readers near its head share, and the chunks in memory.

A feed loads the chunks of one segment in order, into the cache, as far as its budget reaches beyond what a reader has
consumed. Its request stays open while readers continue. A reader that falls behind finds its chunks in the cache as
long as they are there, and then gets a feed of its own: it never holds the others back.

The budget of a feed grows with each chunk that is consumed, so that a read of one offset fetches little. With many
feeds, each gets less, so that they do not evict what others have loaded and not yet consumed.
"""

import asyncio
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor
from operator import attrgetter
from time import monotonic
from typing import Final

from ts_common.archive.copies import SegmentCopy
from ts_common.errors import StoreUnavailable
from ts_common.store.contract import ObjectStore
from ts_endpoint.data.chunks import CHUNK_BYTES, Chunk, ChunkReader
from ts_endpoint.data.positions import Positions
from ts_reader.decode.memory import Memory, RecycledMemory

_MOST_AHEAD: Final = 4 * CHUNK_BYTES
_LEAST_AHEAD: Final = CHUNK_BYTES
IDLE_SECONDS: Final = 10.0  # then the request of a feed ends; the next reader begins another one
_SWEEP_SECONDS: Final = 5.0
_BY_OFFSET: Final = attrgetter("covers_from")
_TRIES: Final = 4  # of a load, if the cache drops chunks before a reader has them


class ChunkCache:
    """Keeps chunks; used on the event loop only.

    Attributes:
        hits: offsets that were found.
        misses: offsets that were not.
        nbytes: of all chunks. Replies that are not sent yet may keep the memory of evicted chunks.

    Args:
        most_bytes: of all chunks; one chunk may be larger.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.nbytes = 0
        self.hits = 0
        self.misses = 0
        self._by_key: dict[str, list[Chunk]] = {}  # ascending by `covers_from`
        self._recent: OrderedDict[Chunk, str] = OrderedDict()

    def find(self, key: str, offset: int) -> Chunk | None:
        """Return the chunk of an object that covers an offset; None without one."""
        chunks = self._by_key.get(key)
        if chunks is not None:
            # Reads that began at different positions overlap, so the last chunk that begins below may end below too.
            at = bisect_right(chunks, offset, key=_BY_OFFSET)
            for chunk in reversed(chunks[max(0, at - 3) : at]):
                if offset < chunk.covers_to:
                    self._recent.move_to_end(chunk)
                    self.hits += 1
                    return chunk
        self.misses += 1
        return None

    def add(self, key: str, chunk: Chunk) -> None:
        """Keep a chunk; evict others if there is no room."""
        chunks = self._by_key.setdefault(key, [])
        chunks.insert(bisect_right(chunks, chunk.covers_from, key=_BY_OFFSET), chunk)
        self._recent[chunk] = key
        self.nbytes += chunk.held
        while self.nbytes > self.most_bytes and len(self._recent) > 1:
            former, its_key = self._recent.popitem(last=False)
            self.nbytes -= former.held
            others = self._by_key[its_key]
            others.remove(former)
            if not others:
                del self._by_key[its_key]


class Feed:
    """Loads the chunks of one segment in order; on the event loop, with requests on threads.

    Attributes:
        head: the offset after what is loaded; at first, the offset that it was begun for.
        has_ended: whether the segment's end is loaded.

    Args:
        offset: that a reader wants.
        positions: finds where to begin.
        keep: receives each chunk.
        most_batch_bytes: of one batch.
    """

    def __init__(
        self,
        executor: Executor,
        store: ObjectStore,
        copy: SegmentCopy,
        offset: int,
        positions: Positions,
        keep: Callable[[Chunk], None],
        most_batch_bytes: int,
        memory: Memory,
    ) -> None:
        self.copy = copy
        self.head = offset
        self.has_ended = False
        self.error: BaseException | None = None
        self.used_at = monotonic()
        self._executor = executor
        self._store = store
        self._positions = positions
        self._keep = keep
        self._most_batch_bytes = most_batch_bytes
        self._memory = memory
        self._lock = threading.Lock()  # guards the next one
        self._reader: ChunkReader | None = None
        self._wanted = offset  # an offset that a reader waits for
        self._position = 0  # in the object, after the last chunk
        self._target = 0  # the segment is loaded up to this position
        self._consumed = 0  # the furthest position that a reader has consumed
        self._ahead = 0 if offset > copy.base else 2 * CHUNK_BYTES
        self._most_ahead = _MOST_AHEAD
        self._loading: asyncio.Future[Chunk | None] | None = None
        self._waiting: list[tuple[int, asyncio.Future[Chunk | None]]] = []  # for the chunk with an offset

    @property
    def is_over(self) -> bool:
        """Whether it loads nothing more."""
        return self.has_ended or self.error is not None

    def is_near(self, offset: int) -> bool:
        """Return whether an offset is one of the next that it loads."""
        segment = self.copy.segment
        bytes_an_offset = segment.size / max(1, self.copy.end - self.copy.base)
        return self.head <= offset and (offset - self.head) * bytes_an_offset <= self._most_ahead

    async def load(self, offset: int) -> Chunk | None:
        """Return the chunk with an offset at or after the head; None if it was loaded before, or `is_beyond`.

        Raises:
            CorruptData, BatchTooLarge, ObjectNotFound, StoreUnavailable, AccessDenied: from the segment.
        """
        self.used_at = monotonic()
        self._wanted = max(self._wanted, offset)
        if not self.is_over and self.head <= offset:
            arrival: asyncio.Future[Chunk | None] = asyncio.get_running_loop().create_future()
            self._waiting.append((offset, arrival))
            self._go_on()
            chunk = await arrival
            if chunk is not None:
                return chunk
        if self.error is not None and self.head <= offset:
            raise self.error
        return None

    def is_beyond(self, offset: int) -> bool:
        """Return whether the segment has ended before an offset."""
        return self.has_ended and offset >= self.head

    def consume(self, chunk: Chunk, most_ahead: int) -> None:
        """Note that a reader has consumed a chunk, and read further ahead.

        Args:
            most_ahead: bytes, for each feed.
        """
        self.used_at = monotonic()
        if chunk.position > self._consumed:
            self._consumed = chunk.position
            self._ahead = max(CHUNK_BYTES, self._ahead * 2)
        self._most_ahead = most_ahead
        self._go_on()

    def start(self, most_ahead: int) -> None:
        """Begin to read ahead before a reader arrives."""
        self._ahead, self._most_ahead = 2 * CHUNK_BYTES, most_ahead
        self._go_on()

    def close(self) -> None:
        """End the request; what is being loaded still arrives."""
        if self.error is None:
            self.error = StoreUnavailable(f"{self.copy.key}: the request was ended, because no reader used it")
        self._executor.submit(self._close_reader)

    def _go_on(self) -> None:
        """Load the next chunks, if they are wanted and no thread does."""
        self._target = self._consumed + min(self._ahead, self._most_ahead)
        if self.is_over or self._loading is not None:
            return
        if self.head > self._wanted and self._position >= self._target:
            return
        loop = asyncio.get_running_loop()
        self._loading = loop.run_in_executor(self._executor, self._next, loop)
        self._loading.add_done_callback(self._loaded)

    def _next(self, loop: asyncio.AbstractEventLoop) -> Chunk | None:
        """Load chunks up to the target, which the event loop moves meanwhile; return the last one."""
        with self._lock:
            if self._reader is None:
                position = self._positions.find(self._store, self.copy, self.head)
                self._reader = ChunkReader(
                    self._store, self.copy, position, self.head, self._most_batch_bytes, self._memory
                )
            while True:
                chunk = self._reader.read()
                if chunk is None or self.error is not None or chunk.position >= self._target:
                    return chunk
                loop.call_soon_threadsafe(self._arrived, chunk)

    def _close_reader(self) -> None:
        with self._lock:  # until a read that is under way has ended
            if self._reader is not None:
                self._reader.close()

    def _arrived(self, chunk: Chunk) -> None:
        self.head = chunk.covers_to
        self._position = chunk.position
        self._keep(chunk)
        self._wake(chunk)

    def _wake(self, chunk: Chunk | None) -> None:
        """Give a chunk to the readers that wait for it; without one, wake all."""
        still_waiting = []
        for offset, arrival in self._waiting:
            if chunk is not None and offset >= chunk.covers_to:
                still_waiting.append((offset, arrival))
            elif not arrival.done():  # a reader can have been cancelled
                arrival.set_result(chunk if chunk is not None and chunk.covers_from <= offset else None)
        self._waiting = still_waiting

    def _loaded(self, loading: "asyncio.Future[Chunk | None]") -> None:
        self._loading = None
        error = loading.exception()
        if error is not None:
            self.error = self.error or error
        elif (chunk := loading.result()) is None:
            self.has_ended = True
        else:
            self._arrived(chunk)
        if self.is_over:
            self._wake(None)
            self._executor.submit(self._close_reader)
            return
        self._go_on()


class Feeds:
    """The chunks of all segments: in the cache, or loaded by a feed; used on the event loop only.

    Attributes:
        begun: feeds that were begun.
        shared: loads that found a feed of another reader.

    Args:
        most_batch_bytes: of one batch.
    """

    def __init__(self, cache: ChunkCache, executor: Executor, most_batch_bytes: int) -> None:
        self.cache = cache
        self.begun = 0
        self.shared = 0
        self._executor = executor
        self._most_batch_bytes = most_batch_bytes
        self._positions = Positions()
        self._memory = RecycledMemory()
        self._feeds: dict[str, list[Feed]] = {}
        self._count = 0
        self._swept_at = monotonic()

    def find(self, copy: SegmentCopy, offset: int) -> Chunk | None:
        """Return the chunk with an offset if it is in memory, and read further ahead; else None."""
        chunk = self.cache.find(copy.key, offset)
        if chunk is not None:
            self._consume(copy, chunk)
        self._sweep()
        return chunk

    async def load(self, store: ObjectStore, copy: SegmentCopy, offset: int) -> Chunk | None:
        """Return the chunk with an offset; None if no batch of the segment has it or a later one.

        Raises:
            CorruptData, BatchTooLarge, ObjectNotFound, AccessDenied: from the segment.
            StoreUnavailable: from the segment, or other readers need all memory.
        """
        for _ in range(_TRIES):
            chunk = self.cache.find(copy.key, offset)  # it can have arrived since the caller looked
            if chunk is not None:
                return chunk
            feed = self._near(copy, offset) or self._begin(store, copy, offset)
            chunk = await feed.load(offset) or self.cache.find(copy.key, offset)
            if chunk is not None:
                return chunk
            if feed.is_beyond(offset):
                return None
        raise StoreUnavailable(
            f"{copy.key}: the chunk with offset {offset} was evicted {_TRIES} times; use more memory"
        )

    def prepare(self, store: ObjectStore, copy: SegmentCopy, offset: int) -> None:
        """Begin to load a segment that a reader will reach soon."""
        if self.cache.find(copy.key, offset) is None and self._near(copy, offset) is None:
            self._begin(store, copy, offset).start(self._most_ahead())

    def close(self) -> None:
        """End all requests."""
        for feeds in self._feeds.values():
            for feed in feeds:
                feed.close()
        self._feeds.clear()

    def ends_at(self, copy: SegmentCopy, chunk: Chunk) -> bool:
        """Return whether a reader that has this chunk will need the next segment soon."""
        return copy.segment.size - chunk.position < self._most_ahead()

    def _near(self, copy: SegmentCopy, offset: int) -> Feed | None:
        feeds = [each for each in self._feeds.get(copy.key, ()) if not each.is_over and each.is_near(offset)]
        if not feeds:
            return None
        self.shared += 1
        return max(feeds, key=lambda each: each.head)

    def _begin(self, store: ObjectStore, copy: SegmentCopy, offset: int) -> Feed:
        self._sweep()
        key, cache = copy.key, self.cache

        def keep(chunk: Chunk) -> None:
            cache.add(key, chunk)

        feed = Feed(self._executor, store, copy, offset, self._positions, keep, self._most_batch_bytes, self._memory)
        self._feeds.setdefault(key, []).append(feed)
        self._count += 1
        self.begun += 1
        return feed

    def _consume(self, copy: SegmentCopy, chunk: Chunk) -> None:
        for feed in self._feeds.get(copy.key, ()):
            if not feed.is_over and feed.head >= chunk.covers_to:
                feed.consume(chunk, self._most_ahead())

    def _most_ahead(self) -> int:
        """Return the bytes that each feed may be ahead: half of the cache for all."""
        share = self.cache.most_bytes // 2 // max(1, self._count)
        return min(max(share, _LEAST_AHEAD), _MOST_AHEAD)

    def _sweep(self) -> None:
        """Forget feeds that are over or idle."""
        now = monotonic()
        if now - self._swept_at < _SWEEP_SECONDS and self._count < self.cache.most_bytes // CHUNK_BYTES:
            return
        self._swept_at = now
        for key, feeds in list(self._feeds.items()):
            kept = []
            for feed in feeds:
                if not feed.is_over and now - feed.used_at > IDLE_SECONDS:
                    feed.close()
                if not feed.is_over:
                    kept.append(feed)
            if kept:
                self._feeds[key] = kept
            else:
                del self._feeds[key]
        self._count = sum(map(len, self._feeds.values()))
