"""Read an object to its end over broken connections.

A broken transfer is resumed with a range request. Each chunk has its own attempts, so a long object is read as long as
there is progress; the caller gets `StoreUnavailable` only if all attempts for one chunk fail. A missing object is
`ObjectNotFound` at once, because retention removed it. An object that changes during the read is `CorruptData`: a
`.log` never changes.
"""

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from types import TracebackType
from typing import Self

from ts_common.errors import CorruptData, ObjectNotFound, StoreUnavailable
from ts_common.store.contract import ByteRange, ObjectStore, ObjectStream
from ts_common.store.retry import OPERATION_POLICY

# The heap uses the memory of such chunks again. Chunks of 4 MiB often had new memory, whose first write costs more than
# decoding. With shorter ones, more is spent on passing them between threads.
CHUNK_BYTES = 2 << 20


@contextmanager
def translate_not_found(store: ObjectStore, key: str) -> Iterator[None]:
    """Explain a missing object to the user of a query.

    Raises:
        ObjectNotFound: retention removed the object after the query was planned.
    """
    try:
        yield
    except ObjectNotFound as error:
        raise ObjectNotFound(
            f"{key} in {store.location}: removed after the query was planned (retention, or a merge of a live tail?); "
            "plan it again. Spark plans a DataFrame or a view once: load it again"
        ) from error


class ResumableReader:
    """A reader of one object from a position on; a context manager.

    Args:
        start: first byte to read.
        end: the byte after the last; None for the object's end.
    """

    def __init__(self, store: ObjectStore, key: str, start: int = 0, end: int | None = None) -> None:
        self._store = store
        self._key = key
        self._position = start
        self._end = end
        self._etag: str | None = None
        self._open = ExitStack()
        self._stream: ObjectStream | None = None

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes; empty only at the end.

        Raises:
            ObjectNotFound: the object does not exist.
            CorruptData: it was replaced during the read.
            StoreUnavailable: all attempts failed.
        """
        return OPERATION_POLICY(self._read_once, size)

    def readinto(self, buffer: memoryview) -> int:
        """Fill `buffer` and return the number of bytes, fewer than its size only at the end; raise as `read`."""
        filled = 0

        def fill() -> None:
            nonlocal filled
            if (stream := self._opened()) is None:
                return
            try:
                count = stream.readinto(buffer[filled:])
            except StoreUnavailable:
                self.close()
                raise
            self._position += count
            filled += count

        OPERATION_POLICY(fill)
        return filled

    def _read_once(self, size: int) -> bytes:
        if (stream := self._opened()) is None:
            return b""
        try:
            data = stream.read(size)
        except StoreUnavailable:
            self.close()
            raise
        self._position += len(data)
        return data

    def _opened(self) -> ObjectStream | None:
        """Return the stream at the position; None at the end of the range."""
        if self._end is not None and self._position >= self._end:
            return None
        if self._stream is None:
            try:
                wanted = ByteRange(self._position, self._end)
                self._stream = self._open.enter_context(self._store.open(self._key, wanted))
            except StoreUnavailable:
                self.close()
                raise
            etag = self._stream.info.etag
            if self._etag not in {None, etag}:
                raise CorruptData(f"{self._key}: replaced during the read ({self._etag} became {etag})")
            self._etag = etag
        return self._stream

    def close(self) -> None:
        """Release the connection."""
        self._stream = None
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def fetch(store: ObjectStore, key: str, start: int = 0, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """Yield the bytes of an object from `start` on, in chunks of at most `chunk_bytes`; raise as `ResumableReader`."""
    with ResumableReader(store, key, start) as reader:
        while chunk := reader.read(chunk_bytes):
            yield chunk


def one_ahead(chunks: Generator[bytes, None, None]) -> Generator[bytes, None, None]:
    """Yield the same chunks, and fetch each on a thread while the caller works on the previous one.

    Closing the generator waits for the chunk in transfer. Errors are raised in the order of the chunks.
    """
    with closing(chunks), ThreadPoolExecutor(1, "fetch") as pool:
        following = pool.submit(next, chunks, b"")
        while chunk := following.result():
            following = pool.submit(next, chunks, b"")
            yield chunk
