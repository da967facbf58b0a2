"""Reading ahead: how often objects are fetched, and who waits for whom."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.made_archive import MadeArchive, batches, steps
from tests.made_indexes import index_of
from tests.made_views import only_copy, view_of
from ts_common.archive.copies import SegmentCopy
from ts_common.errors import StoreUnavailable
from ts_common.store.contract import ByteRange, ObjectStore, ObjectStream
from ts_common.store.wrappers.wrapped import WrappedStore
from ts_endpoint.data import chunks, feeds, positions
from ts_endpoint.data.chunks import Chunk
from ts_endpoint.data.feeds import ChunkCache, Feeds

END = 2000


class Opened(WrappedStore):
    """Counts the requests for each object, and can be away."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, threads=1)
        self.count = Counter[str]()
        self.is_away = False

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        if self.is_away:
            raise StoreUnavailable("the store is away")
        self.count[key] += 1
        return super().open(key, byte_range)


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeArchive:
    """A segment of 200 batches, with chunks of about ten."""
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 1600)
    monkeypatch.setattr(chunks, "FIRST_BYTES", 800)
    monkeypatch.setattr(feeds, "CHUNK_BYTES", 1600)
    monkeypatch.setattr(feeds, "_MOST_AHEAD", 8 * 1600)
    monkeypatch.setattr(feeds, "_LEAST_AHEAD", 1600)
    monkeypatch.setattr(positions, "_WORTH_BYTES", 0)
    made = MadeArchive(tmp_path / "archive")
    log = batches(*steps(0, END))
    made.put_segment("t", 0, log, index=index_of(log, every=5))
    made.commit("t", END)
    return made


Work = Callable[[Feeds, Opened, SegmentCopy], Awaitable[None]]


def run(archive: MadeArchive, work: Work, cache_bytes: int = 1 << 20) -> Opened:
    """Run work on feeds of the archive; return its store."""
    store = Opened(archive.store)
    copy = only_copy(archive)

    async def main() -> None:
        with ThreadPoolExecutor(4) as executor:
            made = Feeds(ChunkCache(cache_bytes), executor, 1 << 20)
            try:
                await work(made, store, copy)
            finally:
                made.close()

    asyncio.run(main())
    return store


async def chunk_at(made: Feeds, store: Opened, copy: SegmentCopy, offset: int) -> Chunk | None:
    """Return a chunk as a reader gets it: from memory, or loaded."""
    while (chunk := made.find(copy, offset)) is None:
        if await made.load(store, copy, offset) is None:
            return None
    return chunk


async def scan(made: Feeds, store: Opened, copy: SegmentCopy, start: int = 0) -> int:
    """Read from an offset to the end; return the number of offsets."""
    position = start
    while position < END:
        chunk = await chunk_at(made, store, copy, position)
        assert chunk is not None
        assert chunk.covers_from <= position < chunk.covers_to
        position = chunk.covers_to
    return position - start


def test_one_reader_needs_one_request_for_a_segment(archive: MadeArchive) -> None:
    """All its chunks are of one long GET."""

    async def work(made: Feeds, store: Opened, copy: SegmentCopy) -> None:
        assert await scan(made, store, copy) == END

    assert run(archive, work).count[only_copy(archive).key] == 1


def test_readers_that_start_together_share_one_request(archive: MadeArchive) -> None:
    """64 readers cost the store what one does."""

    async def work(made: Feeds, store: Opened, copy: SegmentCopy) -> None:
        assert await asyncio.gather(*(scan(made, store, copy) for _ in range(64))) == [END] * 64

    assert run(archive, work).count[only_copy(archive).key] <= 2


def test_a_reader_that_stops_holds_no_other_back(archive: MadeArchive) -> None:
    """The others continue to the end; the slow one then continues from where it was."""

    async def work(made: Feeds, store: Opened, copy: SegmentCopy) -> None:
        slow = await chunk_at(made, store, copy, 0)
        assert slow is not None
        assert await scan(made, store, copy) == END
        assert await scan(made, store, copy, slow.covers_to) == END - slow.covers_to

    store = run(archive, work, cache_bytes=16_000)  # less than the segment
    assert store.count[only_copy(archive).key] == 2


def test_a_read_of_one_offset_fetches_little(archive: MadeArchive) -> None:
    """It begins by the index, and does not read ahead before the reader continues."""

    async def work(made: Feeds, store: Opened, copy: SegmentCopy) -> None:
        chunk = await chunk_at(made, store, copy, 1234)
        assert chunk is not None
        assert 1150 <= chunk.covers_from <= 1234
        assert made.cache.nbytes <= 2 * 1600

    run(archive, work)


def test_reading_ahead_ends_at_its_budget(archive: MadeArchive) -> None:
    """A reader that stays at its place does not fill the cache."""

    async def work(made: Feeds, store: Opened, copy: SegmentCopy) -> None:
        for _ in range(3):
            assert await chunk_at(made, store, copy, 0) is not None
        loaded = -1
        while loaded != made.cache.nbytes:  # until nothing more is loaded
            loaded = made.cache.nbytes
            await asyncio.to_thread(archive.store.check)
            for _ in range(10):
                await asyncio.sleep(0)
        assert loaded <= 10 * 1600

    run(archive, work)


def test_a_small_cache_slows_readers_and_loses_nothing(archive: MadeArchive) -> None:
    """Chunks that are evicted before a reader has them are loaded again."""

    async def work(made: Feeds, store: Opened, copy: SegmentCopy) -> None:
        starts = range(0, END, 400)
        done = await asyncio.gather(*(scan(made, store, copy, start) for start in starts))
        assert done == [END - start for start in starts]

    run(archive, work, cache_bytes=3000)


def test_an_unreachable_store_is_retried_by_the_next_reader(
    archive: MadeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first reader gets the error, and a later one the chunk."""
    monkeypatch.setattr("ts_common.store.retry.OPERATION_POLICY.sleep", lambda _: None)

    async def work(made: Feeds, store: Opened, copy: SegmentCopy) -> None:
        store.is_away = True
        with pytest.raises(StoreUnavailable):
            await made.load(store, copy, 0)
        store.is_away = False
        assert await made.load(store, copy, 0) is not None

    run(archive, work)


def test_beyond_the_last_batch_there_is_no_chunk(archive: MadeArchive) -> None:
    """A compacted tail has no batch, so the reader continues with the next segment."""
    archive.put_segment("compacted", 0, batches((0, 10)) + bytes(100), end=50)
    archive.commit("compacted", 50)
    (copy,) = view_of(archive, "compacted").copies

    async def work(made: Feeds, store: Opened, _: SegmentCopy) -> None:
        assert await made.load(store, copy, 20) is None

    run(archive, work)
