"""The contract of every object store driver.

Keys are relative to the location that the driver was opened with (`s3://bucket/base/prefix` or `file:///dir`). Their
separator is ``/``, and they never begin with one. `tests/common/store/test_contract_*.py` checks every driver.

Guarantees to a caller:

- A put is atomic: readers see the whole object with its metadata, or the one before, never a part.
- If a condition does not hold, the put changes nothing (`PreconditionFailed`). If its response is lost, or if the store
  could not order it against another writer (S3 answers 409), it raises `OutcomeUnknown`: read before you retry.
- Reads and listings are strongly consistent: after a put returns, every reader finds the object.
- Every call may be repeated: a put with the same bytes, a delete of a missing object.
- A conditional delete removes no object with another ETag, if the store enforces conditions of deletes.
- Several threads may use a driver; `close` waits for asynchronous puts that have begun.
- No part of a key is empty, ``.`` or ``..``; a part may begin with a dot, as a topic's name may. Every method raises
  `ValueError` for a key or metadata that some driver cannot store (for a key it is an `OperatorError` as well).
"""

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import chain, islice, takewhile
from types import MappingProxyType
from typing import Protocol, Self

from ts_common.errors import ObjectNotFound, OperatorError, TieredStorageError
from ts_common.store.bucket_contract import BucketContract
from ts_common.store.protection import HiddenBytes, Lock
from ts_common.store.thaw_state import ThawState, ThawTier

NO_METADATA: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """Properties of one object.

    Attributes:
        key: relative to the location of the store.
        size: bytes.
        etag: opaque; two different contents of one key have different ETags while a reader could see both.
        modified: seconds since the epoch, by the store's clock.
        metadata: names in lower case; empty in a listing, which contains no metadata.
        storage_class: the store's own word for it, such as `GLACIER`, `Cool` or `NEARLINE`, from a listing or a HEAD.
            None means S3's and Google's `STANDARD`, or a store without classes; the infos of puts, copies and gets
            have None too.
        is_frozen: whether the class needs a thaw before a get, and the response shows no readable copy. Some stores
            have such a class and return its objects all the same. Archive tiers of S3's INTELLIGENT_TIERING are in
            no listing.
    """

    key: str
    size: int
    etag: str
    modified: float
    metadata: Mapping[str, str] = field(default_factory=lambda: NO_METADATA)
    storage_class: str | None = None
    is_frozen: bool = False


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """One version of an object in a bucket with versions.

    Attributes:
        info: key, size, ETag and time of the version, without metadata. A delete marker has neither size nor ETag.
        id: names the version of this key.
        is_latest: whether readers find it; of a delete marker, whether the object is deleted.
        is_delete_marker: whether it has no bytes: a delete put it on top of the others.
    """

    info: ObjectInfo
    id: str
    is_latest: bool
    is_delete_marker: bool


@dataclass(frozen=True, slots=True)
class IfAbsent:
    """Write only if the key has no object (`If-None-Match: *`)."""


@dataclass(frozen=True, slots=True)
class IfMatch:
    """Overwrite only the object with this ETag (`If-Match`)."""

    etag: str


Condition = IfAbsent | IfMatch | None
KeyRange = tuple[str, str]  # the keys from the first one to the second one, both included


@dataclass(frozen=True, slots=True)
class DeleteOutcome:
    """The outcome of a conditional delete; each of its keys is in one of the three.

    Attributes:
        removed: keys whose object was removed, or that had none before.
        kept: keys whose object has another ETag; it was not removed.
        failed: by key, why the outcome is unknown or the object was not removed.
    """

    removed: tuple[str, ...]
    kept: tuple[str, ...]
    failed: Mapping[str, TieredStorageError]

    def joined(self, other: "DeleteOutcome") -> "DeleteOutcome":
        """Return the outcome of both deletes."""
        return DeleteOutcome(
            (*self.removed, *other.removed), (*self.kept, *other.kept), {**self.failed, **other.failed}
        )


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes `[start, end)` of an object; without `end` up to its end. `start` below zero counts from the end.

    Raises:
        ValueError: the range is empty, or a suffix has an end.
    """

    start: int
    end: int | None = None

    def __post_init__(self) -> None:
        if self.start < 0 and self.end is not None:
            raise ValueError(f"a suffix range has no end: {self}")
        if self.end is not None and not 0 <= self.start < self.end:
            raise ValueError(f"an empty byte range: {self}")


class Body(Protocol):
    """A body that is too large for memory: a seekable reader of one open file.

    A driver may read it more than once (checksum, send, retry), each time after a `seek(0)`.
    """

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes from the position; none at the end."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move the position as `io.IOBase.seek` does, and return it."""

    def tell(self) -> int:
        """Return the position in bytes."""


class ObjectStream(Protocol):
    """One open streaming get.

    Attributes:
        info: of the whole object, also if the stream is a range of it.
    """

    info: ObjectInfo

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; fewer only at the end of the range.

        Raises:
            StoreUnavailable: the transfer broke; open again with a range that begins at that byte.
        """

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill `buffer` and return the number of bytes, fewer than its size only at the end of the range.

        Raises:
            StoreUnavailable: as `read`.
        """


class ObjectStore(BucketContract):
    """Objects under one location; the module's docstring lists the guarantees.

    Every method may raise `StoreUnavailable`, `AccessDenied` and `BucketMissing`.

    Args:
        location: the URL that this store was opened with, for messages.
        async_threads: the number of asynchronous puts that run at once.
    """

    def __init__(self, location: str, *, async_threads: int = 4) -> None:
        self.location = location
        self._executor = ThreadPoolExecutor(max_workers=async_threads, thread_name_prefix="store-put")

    @abstractmethod
    def check(self) -> None:
        """Check that the bucket or directory exists and can be used; creates nothing.

        Raises:
            BucketMissing: the bucket or directory does not exist.
            AccessDenied: it exists, and denies access to this identity.
        """

    def current_time(self) -> float:
        """Return the time by the store's clock, in seconds since the epoch, without a request.

        The time of a response sets it. Before the first response, and for a directory, it is this host's.
        """
        return time.time()

    def identity(self) -> str | None:
        """Return whose requests the store receives: words with a space between them; each names them alone.

        Two identities with a common word count as the same person or program. None: the credentials name their owner
        for a session only, or the driver cannot read a name.

        Raises:
            AccessDenied: there are no credentials, or a role cannot be assumed.
        """
        return None

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
            body: bytes, or a reader at any position; it is read from its start.
            size: of the body, in bytes; required with a reader, of whose bytes only so many are sent.
            metadata: names and values in ASCII, names in lower case; 2 KB in all. An empty value may be lost.
            condition: on the object that the key has now.
            crc32c: of the body, if the caller has it: other bytes are then rejected.
            archived: whether the object is written once and read seldom, like a segment. The storage class and the
                object lock of the options apply only to such objects.

        Raises:
            PreconditionFailed: the condition does not hold; nothing was written.
            OutcomeUnknown: no response, or a conflict that the store did not order.
            CorruptData: the body's CRC-32C is not `crc32c`; nothing was written.
            SegmentChanged: the reader ended before `size` bytes, so the file has changed; nothing was written. Errors
                of the reader itself are raised unchanged.
        """

    @abstractmethod
    def copy_if_absent(self, source: str, target: str) -> ObjectInfo:
        """Give an object a second name, if that name has none. The store copies; no byte passes through this process.

        The source stays, except on HDFS, which renames it. Metadata is not part of the promise, and neither is the
        time of modification: a directory keeps that of the source.

        Args:
            target: another key, of the copy.

        Returns:
            Size, ETag and time of the target.

        Raises:
            PreconditionFailed: the target exists; nothing was written.
            ObjectNotFound: the source does not exist; nothing was written.
            OutcomeUnknown: no response, or a conflict that the store did not order.
            OperatorError: the store cannot copy the object: it is above S3's 5 GiB, for example.
            ValueError: source and target are the same key.
        """

    @abstractmethod
    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        """Open a streaming get. A range ends at the object's end; beyond it the stream is empty.

        Raises:
            ObjectNotFound: the object does not exist.
            ObjectFrozen: it is in an archive class, and must be thawed first.
        """

    @abstractmethod
    def head(self, key: str) -> ObjectInfo:
        """Return size, ETag and metadata of one object.

        Raises:
            ObjectNotFound: the object does not exist.
        """

    @abstractmethod
    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Yield all objects whose keys begin with `prefix`, in the byte order of their keys, after `start_after`.

        A prefix is not a directory: `topic-1` also finds `topic-10/...`, so end it with ``/``. The listing keeps at
        most the keys of one directory below the prefix in memory. Objects that are written or removed during the
        listing may or may not appear.
        """

    def list_skipping(
        self, prefix: str, after: int, skipped: Callable[[Sequence[ObjectInfo]], Sequence[KeyRange]]
    ) -> Iterator[ObjectInfo]:
        """Yield what `list` yields, without the ranges of keys that the caller does not need.

        A driver that reads a directory as a whole does so once. The others list what is left with a request each.

        Args:
            after: number of objects; a listing of fewer is not shortened.
            skipped: called once, with the objects of the first page, or with none if the driver has no pages; returns
                ranges in their order, disjoint. These objects can be in one.
        """
        listing = self.list(prefix)
        begun = list(islice(listing, after))
        ranges = skipped(begun) if len(begun) == after else ()
        listing = chain(begun, listing)
        for first, last in ranges:
            yield from takewhile(lambda info, first=first: info.key < first, listing)  # type: ignore[misc]
            listing = self.list(prefix, start_after=last)
        yield from listing

    @abstractmethod
    def list_directories(self, prefix: str = "") -> Iterator[str]:
        """Yield the distinct parts of keys between `prefix` and the next ``/``, which they include, in byte order.

        `prefix` is empty or ends with ``/``; the parts are relative to it, and all are in memory. A directory may
        still appear after its last object was removed.
        """

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; a missing one counts as removed.

        Raises:
            StoreUnavailable: some could not be removed; the message has their number and the first one. The others
                were removed.
        """

    @abstractmethod
    def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
        """Remove objects that still have the given ETags; keep each object with another one.

        A failure of one object does not end the call, and is not raised: read `DeleteOutcome.failed`. The call may be
        repeated with the same ETags. Objects are removed in no defined order.

        The ETag can be a hash of the content, as on S3. So an object that was written again with the same bytes has
        the same ETag, and is removed. In a bucket with versions the object is hidden by a delete marker; its bytes
        stay until the version expires.

        Args:
            etags: ETags by key, as `head` or a listing returned them.

        Raises:
            BucketMissing: the bucket or directory does not exist.
            ValueError: an ETag is empty, `*` or not printable ASCII, or a key is invalid; nothing was removed.
        """

    def hidden_bytes(self, prefix: str = "") -> HiddenBytes | None:
        """Count the noncurrent versions and delete markers of keys with a prefix, with a request for each thousand.

        Returns:
            The counts; None if the store does not list versions.

        Raises:
            AccessDenied: this identity may not list versions; the message names the permission.
        """
        versions = self.versions(prefix)
        if versions is None:
            return None
        objects = size = markers = 0
        for each in versions:
            markers += each.is_delete_marker
            if not each.is_latest and not each.is_delete_marker:
                objects, size = objects + 1, size + each.info.size
        return HiddenBytes(objects, size, markers)

    def versions(self, prefix: str) -> Iterator[ObjectVersion] | None:
        """Return all versions of the objects whose keys begin with `prefix`; None if the store does not list them.

        The versions of one key are consecutive. Without versions in the bucket, each object has one.

        Raises:
            AccessDenied: this identity may not list versions.
        """
        del prefix
        return None

    def thaw_state(self, key: str) -> ThawState:
        """Return whether an object can be read, by one request.

        Raises:
            ObjectNotFound: the object does not exist.
        """
        return ThawState(self.head(key).storage_class)

    def thaw(self, key: str, days: int | None, tier: ThawTier) -> None:
        """Begin to thaw an object; a thaw in progress counts as begun. It costs money.

        Args:
            days: how long the object can be read, from the end of the thaw; of a thawed object from now. None where
                it stays readable permanently: in S3's INTELLIGENT_TIERING and on Azure, which ignores a number.
            tier: how fast.

        Raises:
            ObjectNotFound: the object does not exist.
            OperatorError: the store or the class has no such thaw, or the object needs none.
            StoreUnavailable: the store has no capacity for it at this moment, too.
        """
        del days, tier
        raise OperatorError(f"{self.location}/{key}: this store has no frozen objects that can be thawed")

    def open_version(
        self, version: ObjectVersion, byte_range: ByteRange | None = None
    ) -> AbstractContextManager[ObjectStream]:
        """Open a streaming get of one version, as `open`; its info has the metadata, unless the range is beyond it.

        Raises:
            ObjectNotFound: the version does not exist any more.
        """
        del byte_range
        raise ObjectNotFound(f"{version.info.key}: the store has no versions")

    def version_lock(self, version: ObjectVersion) -> Lock | None:
        """Return the lock of one version, also one that has ended; None without a lock.

        Raises:
            AccessDenied: this identity may not read the lock; the message names the permission.
            ObjectNotFound: the version does not exist any more.
        """
        raise ObjectNotFound(f"{version.info.key}: the store has no versions")

    def delete_version(self, version: ObjectVersion) -> None:
        """Remove the bytes of one earlier version; a missing one counts as removed. No request brings them back.

        Raises:
            AccessDenied: this identity may not delete versions, or a lock keeps the version: read that first.
            ValueError: it is the newest version, or a delete marker; nothing was removed.
        """
        raise OperatorError(f"{version.info.key}: the store has no versions that can be deleted")

    def unbound_metadata(self, prefix: str) -> Mapping[str, Sequence[Mapping[str, str]]]:
        """Return the metadata that a copy of a directory separated from its objects, by key; none in other stores.

        Args:
            prefix: a directory of the store, which ends with ``/``.
        """
        del prefix
        return {}

    def bind_metadata(self, key: str, etag: str, metadata: Mapping[str, str]) -> None:
        """Give an object without metadata that of `unbound_metadata`; its ETag stays.

        Raises:
            PreconditionFailed: the object has another ETag; nothing was written.
            ObjectNotFound: the object does not exist, or the store needs no such call.
        """
        del etag, metadata
        raise ObjectNotFound(f"{key}: the store has no metadata apart from objects")

    def get(self, key: str, byte_range: ByteRange | None = None) -> tuple[bytes, ObjectInfo]:
        """Return the bytes of one (small) object or of a range of it, and its info.

        Raises:
            ObjectNotFound: the object does not exist.
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
        """Run `put` on a thread of the store; the future has its result or its exception."""
        return self._executor.submit(
            self.put, key, body, size=size, metadata=metadata, condition=condition, crc32c=crc32c, archived=archived
        )

    def close(self) -> None:
        """Wait for asynchronous puts that have begun, and close connections; repeated calls have no effect."""
        self._executor.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
