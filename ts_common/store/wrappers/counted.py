"""A store that counts its requests, on all threads; the metrics read the numbers."""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from ts_common.errors import AccessDenied, StoreUnavailable
from ts_common.store.contract import (
    NO_METADATA,
    Body,
    ByteRange,
    Condition,
    DeleteOutcome,
    ObjectInfo,
    ObjectStore,
    ObjectStream,
)
from ts_common.store.wrappers.wrapped import WrappedStore

_PAGE = 1000  # objects in one answer of S3
OPERATIONS = {
    "get": "an object, or a range of one",
    "head": "size and metadata of an object",
    "list": "objects or directories; a list of objects counts once for each thousand, as S3 pages it",
    "put": "an object",
    "copy": "an object",
    "delete": "objects",
}


class StoreCounts:
    """Numbers of all stores of a process.

    Attributes:
        requests: by operation.
        failures: requests that the store did not answer, or rejected, by operation.
    """

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.bytes_received = 0
        self._lock = threading.Lock()

    def request(self, operation: str) -> None:
        """Count a request."""
        with self._lock:
            self.requests[operation] += 1

    @contextmanager
    def counted(self, operation: str, key: str = "") -> Iterator[None]:
        """Count a request, and its failure.

        Args:
            operation: one of `OPERATIONS`.
            key: of the object, or the prefix of a list; a subclass uses it.
        """
        del key
        self.request(operation)
        try:
            yield
        except (StoreUnavailable, AccessDenied):
            with self._lock:
                self.failures[operation] += 1
            raise

    def watched(self, operation: str) -> AbstractContextManager[None]:
        """Watch a request that is not counted; a subclass uses it."""
        del operation
        return nullcontext()

    def arrived(self) -> None:
        """Note that a request made progress; a subclass uses it."""

    def received(self, size: int) -> None:
        """Count bytes of an object."""
        with self._lock:
            self.bytes_received += size


class CountedStore(WrappedStore):
    """A store that counts.

    Args:
        inner: the store; closed with this one.
        threads: the number of asynchronous puts that run at once.
    """

    def __init__(self, inner: ObjectStore, counts: StoreCounts, *, threads: int = 1) -> None:
        super().__init__(inner, threads=threads)
        self._counts = counts

    def check(self) -> None:
        """Call the inner store: no metric counts it, because only starts check a store."""
        with self._counts.watched("check"):
            super().check()

    def put(
        self,
        key: str,
        body: bytes | Body,
        *,
        size: int | None = None,
        metadata: Mapping[str, str] = NO_METADATA,
        condition: Condition = None,
        crc32c: int | None = None,
        archived: bool = False,
    ) -> ObjectInfo:
        """Count, and call the inner store."""
        with self._counts.counted("put", key):
            return super().put(
                key, body, size=size, metadata=metadata, condition=condition, crc32c=crc32c, archived=archived
            )

    def copy_if_absent(self, source: str, target: str) -> ObjectInfo:
        """Count, and call the inner store."""
        with self._counts.counted("copy", target):
            return super().copy_if_absent(source, target)

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        """Count, and call the inner store."""
        return self._opened(key, byte_range)

    def head(self, key: str) -> ObjectInfo:
        """Count, and call the inner store."""
        with self._counts.counted("head", key):
            return super().head(key)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Count each page, and call the inner store."""
        with self._counts.counted("list", prefix):
            for number, info in enumerate(super().list(prefix, start_after=start_after)):
                if number and number % _PAGE == 0:
                    self._counts.request("list")
                self._counts.arrived()
                yield info

    def list_directories(self, prefix: str = "") -> Iterator[str]:
        """Count, and call the inner store."""
        with self._counts.counted("list", prefix):
            yield from super().list_directories(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        """Count, and call the inner store."""
        with self._counts.counted("delete"):
            super().delete(keys)

    def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
        """Count once, and call the inner store."""
        with self._counts.counted("delete"):
            return super().delete_matching(etags)

    @contextmanager
    def _opened(self, key: str, byte_range: ByteRange | None) -> Iterator[ObjectStream]:
        with self._counts.counted("get", key), super().open(key, byte_range) as stream:
            yield _CountedStream(stream, self._counts)


class _CountedStream:
    """A stream that counts its bytes."""

    def __init__(self, inner: ObjectStream, counts: StoreCounts) -> None:
        self.info = inner.info
        self._inner = inner
        self._counts = counts

    def read(self, size: int, /) -> bytes:
        piece = self._inner.read(size)
        self._counts.received(len(piece))
        return piece

    def readinto(self, buffer: memoryview, /) -> int:
        count = self._inner.readinto(buffer)
        self._counts.received(count)
        return count
