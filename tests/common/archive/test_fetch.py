"""Reading an object in chunks, over broken connections and one chunk ahead of the caller."""

import threading
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from ts_common.archive.fetch import ResumableReader, fetch, one_ahead, translate_not_found
from ts_common.errors import CorruptData, ObjectNotFound, StoreUnavailable
from ts_common.store.contract import ByteRange, ObjectStream
from ts_common.store.directory.driver import FileStore
from ts_common.store.wrappers.wrapped import WrappedStore

SECONDS = 30.0
DATA = bytes(range(100))


class OneReadEach(WrappedStore):
    """A store whose transfers break after one successful read."""

    def __init__(self, inner: FileStore) -> None:
        super().__init__(inner, threads=1)
        self.ranges: list[ByteRange | None] = []

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        self.ranges.append(byte_range)
        return self._breaking(key, byte_range)

    @contextmanager
    def _breaking(self, key: str, byte_range: ByteRange | None) -> Iterator[ObjectStream]:
        with self._inner.open(key, byte_range) as stream:
            yield BreakingStream(stream)


class BreakingStream:
    """A stream that breaks at the second read."""

    def __init__(self, inner: ObjectStream) -> None:
        self._inner: ObjectStream | None = inner
        self.info = inner.info

    def read(self, size: int, /) -> bytes:
        inner, self._inner = self._inner, None
        if inner is None:
            raise StoreUnavailable("the connection broke")
        return inner.read(size)

    def readinto(self, buffer: memoryview, /) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FileStore]:
    with FileStore(tmp_path) as made:
        made.put("k", DATA)
        yield made


def test_r09_a_broken_transfer_is_resumed_after_the_last_byte(store: FileStore) -> None:
    """Each new request has a range from the first missing byte, and no byte is read twice."""
    broken, part = OneReadEach(store), bytearray(20)
    with ResumableReader(broken, "k", 10, 90) as reader:
        data = reader.read(20)
        assert reader.readinto(memoryview(part)) == 20
        data += part + b"".join(iter(lambda: reader.read(40), b""))
    assert data == DATA[10:90]
    assert broken.ranges == [ByteRange(10, 90), ByteRange(30, 90), ByteRange(50, 90)]


def test_r09_an_object_that_changes_between_two_requests_is_damage(store: FileStore) -> None:
    """Bytes of two objects are never joined: a `.log` does not change."""
    with ResumableReader(OneReadEach(store), "k") as reader:
        reader.read(40)
        store.put("k", DATA[::-1])
        with pytest.raises(CorruptData, match="k: replaced during the read"):
            reader.read(40)


def test_an_object_is_fetched_in_chunks_from_a_position_on(store: FileStore) -> None:
    """Each chunk but the last has the requested size."""
    assert [len(chunk) for chunk in fetch(store, "k", 10, chunk_bytes=40)] == [40, 40, 10]
    assert b"".join(fetch(store, "k", 10, chunk_bytes=40)) == DATA[10:]


def test_a_missing_object_is_explained_to_the_user_of_a_query(store: FileStore) -> None:
    """The message names the likely cause and the remedy."""
    with (
        pytest.raises(ObjectNotFound, match=r"gone\.log in .* removed after the query was planned .*plan it again"),
        translate_not_found(store, "gone.log"),
    ):
        next(fetch(store, "gone.log"))


def test_the_next_chunk_is_fetched_while_the_caller_is_at_work() -> None:
    """The second chunk is fetched before the caller requests it, and the third is not."""
    fetched = {number: threading.Event() for number in range(4)}

    def chunks() -> Generator[bytes, None, None]:
        for number, event in fetched.items():
            event.set()
            yield b"%d" % number

    reading = one_ahead(chunks())
    assert next(reading) == b"0"
    assert fetched[1].wait(SECONDS)
    assert not fetched[2].is_set()
    assert list(reading) == [b"1", b"2", b"3"]


def test_an_error_is_raised_after_the_chunks_before_it() -> None:
    """The thread meets the error early, and the caller gets it after the earlier chunks."""

    def chunks() -> Generator[bytes, None, None]:
        yield b"a"
        raise StoreUnavailable("nobody answers")

    reading = one_ahead(chunks())
    assert next(reading) == b"a"
    with pytest.raises(StoreUnavailable, match="nobody answers"):
        next(reading)


def test_a_reader_that_stops_early_leaves_nothing_open() -> None:
    """Closing waits for the chunk in transfer, and closes what the chunks have opened."""
    fetched, closed = [], []

    def chunks() -> Generator[bytes, None, None]:
        try:
            while True:
                fetched.append(threading.current_thread())
                yield b"x"
        finally:
            closed.append(True)

    reading = one_ahead(chunks())
    next(reading)
    reading.close()
    assert closed == [True]
    assert len(fetched) <= 2
    assert not any(thread.is_alive() for thread in fetched)
