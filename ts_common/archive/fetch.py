"""Reading an object to its end, whatever the connection does.

A transfer that breaks is opened again with a range that begins where it broke. Each chunk has its own attempts, so
a long object over a bad line is read as long as it makes progress; only a chunk that fails every time is
`StoreUnavailable` to the caller. An object that is gone is `ObjectNotFound` at once: retention took it, and no
repetition brings it back. One that changes while it is read is `CorruptData`: a `.log` never does.
"""

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from types import TracebackType
from typing import Self

from ts_common.errors import CorruptData, ObjectNotFound, StoreUnavailable
from ts_common.store.contract import ByteRange, ObjectStore, ObjectStream
from ts_common.store.retry import OPERATION_POLICY

CHUNK_BYTES = 4 << 20


@contextmanager
def explained_where_gone(store: ObjectStore, key: str) -> Iterator[None]:
    """Say of an object that is not there what that means to a query.

    Raises:
        ObjectNotFound: retention took it since it was listed.
    """
    try:
        yield
    except ObjectNotFound as error:
        raise ObjectNotFound(
            f"{key} in {store.location}: gone since the query was planned (retention?); plan it again. "
            "Spark plans a DataFrame or a view once: load it again"
        ) from error


class ResumableReader:
    """The bytes of one object from a position on; a context manager.

    Args:
        store: where it lies.
        key: of the object.
        start: first byte to read.
        end: the byte after the last; None means to the object's end.
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
        """Up to `size` bytes; empty at the end only.

        Raises:
            ObjectNotFound: the object is gone.
            CorruptData: it was replaced while it was read.
            StoreUnavailable: the store did not serve, however often it was asked.
        """
        return OPERATION_POLICY(self._read_once, size)

    def _read_once(self, size: int) -> bytes:
        if self._end is not None and self._position >= self._end:
            return b""
        try:
            if self._stream is None:
                wanted = ByteRange(self._position, self._end)
                self._stream = self._open.enter_context(self._store.open(self._key, wanted))
                etag = self._stream.info.etag
                if self._etag not in {None, etag}:
                    raise CorruptData(f"{self._key}: replaced while it was read ({self._etag} became {etag})")
                self._etag = etag
            data = self._stream.read(size)
        except StoreUnavailable:
            self.close()
            raise
        self._position += len(data)
        return data

    def close(self) -> None:
        """Give the connection back."""
        self._stream = None
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def fetch(store: ObjectStore, key: str, start: int = 0, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """The bytes of an object from `start` on, in chunks of at most `chunk_bytes`; as `ResumableReader`."""
    with ResumableReader(store, key, start) as reader:
        while chunk := reader.read(chunk_bytes):
            yield chunk


def one_ahead(chunks: Generator[bytes, None, None]) -> Generator[bytes, None, None]:
    """The same chunks; each is fetched, on a thread, while the caller is at work on the one before it.

    Closing it waits for the chunk that is on its way. Whatever the chunks raise is raised in their order.
    """
    with closing(chunks), ThreadPoolExecutor(1, "fetch") as pool:
        following = pool.submit(next, chunks, b"")
        while chunk := following.result():
            following = pool.submit(next, chunks, b"")
            yield chunk
