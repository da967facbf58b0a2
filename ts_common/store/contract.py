"""The contract that every object store driver keeps.

Keys are relative to the location that the driver was opened with (`s3://bucket/base/prefix` or `file:///dir`),
use ``/`` as separator and never begin with one. `tests/common/store/test_contract.py` holds every driver to this page.

What a caller may rely on:

- A put is atomic: readers see the whole object with its metadata, or the one before, never a part.
- A conditional put that is refused changed nothing (`PreconditionFailed`); one whose answer was lost, or that met
  a competing writer the store could not order (S3 answers 409), is `OutcomeUnknown`: look before repeating it.
- Reads and listings are strongly consistent: what a finished put wrote is found by whoever asks after it.
- Repeating any call is safe: put with the same bytes, delete of what is gone.
- A driver is safe to use from several threads; `close` waits for asynchronous puts that have begun.
- No part of a key is empty, ``.`` or ``..``; one may begin with a dot, as a topic's name may. Any method raises
  `ValueError` for a key or metadata that no driver could hold (for a key it is an `OperatorError` as well).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol, Self

from ts_common.store.lifecycle import LifecycleRule

NO_METADATA: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What the store says of one object.

    Attributes:
        key: relative to the location of the store.
        size: bytes.
        etag: opaque; two different contents under one key never share it while both could be met.
        modified: seconds since the epoch, the store's clock.
        metadata: names in lower case; empty when the call could not tell (a listing never can).
    """

    key: str
    size: int
    etag: str
    modified: float
    metadata: Mapping[str, str] = field(default_factory=lambda: NO_METADATA)


@dataclass(frozen=True, slots=True)
class IfAbsent:
    """Write only where no object stands under the key (`If-None-Match: *`)."""


@dataclass(frozen=True, slots=True)
class IfMatch:
    """Write only over the object that has this etag (`If-Match`)."""

    etag: str


Condition = IfAbsent | IfMatch | None


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes `[start, end)` of an object; `end` None means to its end. `start` below zero counts from the end.

    Raises:
        ValueError: where the range is empty or a suffix has an end.
    """

    start: int
    end: int | None = None

    def __post_init__(self) -> None:
        if self.start < 0 and self.end is not None:
            raise ValueError(f"a suffix range has no end: {self}")
        if self.end is not None and not 0 <= self.start < self.end:
            raise ValueError(f"an empty byte range: {self}")


class Body(Protocol):
    """A body that is too large for memory: a seekable reader over one open file.

    A driver may read it more than once (checksum, then send, then a retry), each time after a `seek(0)`.
    """

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes from the position; empty at the end."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move the position, as `io.IOBase.seek` does; returns it."""

    def tell(self) -> int:
        """The position in bytes."""


class ObjectStream(Protocol):
    """One open streaming get.

    Attributes:
        info: of the whole object, also where only a range of it is read.
    """

    info: ObjectInfo

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes; fewer only at the end of the range.

        Raises:
            StoreUnavailable: the transfer broke; open again with a range that begins where it broke.
        """

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill `buffer` as far as the range goes; returns how many bytes, fewer than asked only at the end.

        Raises:
            StoreUnavailable: as `read`.
        """


class ObjectStore(ABC):
    """Objects under one location. See the module's page for what a caller may rely on.

    Every method may raise `StoreUnavailable`, `AccessDenied` and `BucketMissing`.

    Args:
        location: the URL this store was opened with, for messages.
        async_threads: how many asynchronous puts run at once.
    """

    def __init__(self, location: str, *, async_threads: int = 4) -> None:
        self.location = location
        self._executor = ThreadPoolExecutor(max_workers=async_threads, thread_name_prefix="store-put")

    @abstractmethod
    def check(self) -> None:
        """Say whether the location can be used at all (HeadBucket; the directory is there). Creates nothing.

        Raises:
            BucketMissing: there is no such bucket or directory.
            AccessDenied: it is there, and not for this identity.
        """

    @abstractmethod
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
        """Write one object.

        Args:
            key: relative to the location.
            body: bytes, or a reader positioned anywhere; it is read from its start.
            size: of the body, in bytes; needed with a reader, and only so many bytes are sent.
            metadata: names and values in ASCII, names in lower case; 2 KB in all. An empty value may be lost.
            condition: what must stand under the key for the write to happen.
            crc32c: of the body, where the caller knows it: the store then refuses other bytes.
            archived: whether it is written once and read seldom, as a segment is. The storage class of the options is
                for these objects alone.

        Raises:
            PreconditionFailed: the condition does not hold; nothing was written.
            OutcomeUnknown: no answer, or a conflict the store did not order.
            CorruptData: the body is not the one that `crc32c` was taken of; nothing was written.
            SegmentChanged: the reader ended before `size` bytes, so the file is not what it was; nothing was written.
                What the reader itself raises comes through as it is.
        """

    @abstractmethod
    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        """A streaming get. A range ends at the object's end; one that lies beyond it reads as empty.

        Raises:
            ObjectNotFound: there is no such object.
        """

    @abstractmethod
    def head(self, key: str) -> ObjectInfo:
        """Size, etag and metadata of one object.

        Raises:
            ObjectNotFound: there is no such object.
        """

    @abstractmethod
    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """All objects whose keys begin with `prefix`, in the byte order of their keys, after `start_after`.

        A prefix is no directory: `topic-1` also finds `topic-10/...`, so end it in ``/``. At most the keys below one
        directory beneath the prefix are held in memory. What is written or removed meanwhile may or may not appear.
        """

    @abstractmethod
    def list_directories(self, prefix: str = "") -> Iterator[str]:
        """The distinct parts of keys between `prefix` and the next ``/``, each ending in it, in byte order.

        `prefix` is empty or ends in ``/``; what comes back is relative to it, and is held in memory as a whole. A
        directory whose objects were removed just now may still appear.
        """

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; what is not there already counts as removed.

        Raises:
            StoreUnavailable: some could not be removed; the message names how many and the first. The rest are gone.
        """

    def lifecycle_rules(self) -> tuple[LifecycleRule, ...] | None:
        """The rules by which the store takes objects of its own accord; None where it has no such, or tells none.

        Raises:
            AccessDenied: this identity may not see them.
        """
        return None

    def get(self, key: str, byte_range: ByteRange | None = None) -> tuple[bytes, ObjectInfo]:
        """The bytes of one (small) object or of a range of it, with its info.

        Raises:
            ObjectNotFound: there is no such object.
        """
        with self.open(key, byte_range) as stream:
            pieces = []
            while piece := stream.read(1 << 20):
                pieces.append(piece)
            return b"".join(pieces), stream.info

    def put_async(
        self,
        key: str,
        body: bytes | Body,
        *,
        size: int | None = None,
        metadata: Mapping[str, str] = NO_METADATA,
        condition: Condition = None,
        crc32c: int | None = None,
        archived: bool = False,
    ) -> Future[ObjectInfo]:
        """As `put`, on a thread of the store's own; the future carries what `put` returns or raises."""
        return self._executor.submit(
            self.put, key, body, size=size, metadata=metadata, condition=condition, crc32c=crc32c, archived=archived
        )

    def close(self) -> None:
        """Wait for asynchronous puts that have begun and give back connections. May be called twice."""
        self._executor.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
