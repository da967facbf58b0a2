"""An object store in memory that behaves as S3: conditional puts, ETags that are the MD5 of the content.

Two equal contents have one ETag, unlike with the other drivers of the tests. Conditional writes must bear that.
"""

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from ts_common.errors import ObjectNotFound, PreconditionFailed
from ts_common.store.contract import (
    NO_METADATA,
    Body,
    ByteRange,
    Condition,
    DeleteOutcome,
    IfAbsent,
    IfMatch,
    ObjectInfo,
    ObjectStore,
    ObjectStream,
)


class _Stream:
    def __init__(self, data: bytes, info: ObjectInfo) -> None:
        self.info = info
        self._data = data
        self._position = 0

    def read(self, size: int, /) -> bytes:
        data = self._data[self._position : self._position + size]
        self._position += len(data)
        return data

    def readinto(self, buffer: memoryview, /) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class MemoryStore(ObjectStore):
    """Objects in a dictionary. Used by one thread."""

    def __init__(self) -> None:
        super().__init__("memory://", async_threads=1)
        self.objects: dict[str, tuple[bytes, ObjectInfo]] = {}
        self._times = itertools.count(1)

    def check(self) -> None:
        """Succeed: there is nothing to check."""

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
        """Check the condition, then write."""
        del crc32c, archived
        data = read_body(body, size)
        there = self.objects.get(key)
        if isinstance(condition, IfAbsent) and there is not None:
            raise PreconditionFailed(f"{key} is there")
        if isinstance(condition, IfMatch) and (there is None or there[1].etag != condition.etag):
            raise PreconditionFailed(f"{key} is another object, or absent")
        etag = f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'
        info = ObjectInfo(key, len(data), etag, float(next(self._times)), dict(metadata))
        self.objects[key] = (data, info)
        return info

    def copy_if_absent(self, source: str, target: str) -> ObjectInfo:
        """Check that the source exists and the target does not, then write."""
        data, info = self.get(source)
        return self.put(target, data, metadata=info.metadata, condition=IfAbsent())

    @contextmanager
    def open(self, key: str, byte_range: ByteRange | None = None) -> Iterator[ObjectStream]:
        """Return a stream over a copy of the bytes."""
        if key not in self.objects:
            raise ObjectNotFound(key)
        data, info = self.objects[key]
        if byte_range is not None:
            data = data[byte_range.start : byte_range.end]
        yield _Stream(data, info)

    def head(self, key: str) -> ObjectInfo:
        """Return the metadata of the object."""
        if key not in self.objects:
            raise ObjectNotFound(key)
        return self.objects[key][1]

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """List in the order of keys, without metadata."""
        for key in sorted(self.objects):
            if key.startswith(prefix) and key > start_after:
                yield replace(self.objects[key][1], metadata=NO_METADATA)

    def list_directories(self, prefix: str = "") -> Iterator[str]:
        """Return the parts of keys up to the next slash."""
        rests = (key.removeprefix(prefix) for key in self.objects if key.startswith(prefix))
        yield from sorted({rest.partition("/")[0] + "/" for rest in rests if "/" in rest})

    def delete(self, keys: Iterable[str]) -> None:
        """Delete one by one."""
        for key in keys:
            self.objects.pop(key, None)

    def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
        """Delete one by one those with their ETags."""
        kept = tuple(key for key, etag in etags.items() if key in self.objects and self.objects[key][1].etag != etag)
        self.delete(etags.keys() - set(kept))
        return DeleteOutcome(tuple(key for key in etags if key not in kept), kept, {})


def read_body(body: bytes | Body, size: int | None) -> bytes:
    """Return all bytes of a body."""
    if isinstance(body, bytes):
        return body
    body.seek(0)
    data = b""
    while (size is None or len(data) < size) and (piece := body.read(1 << 20 if size is None else size - len(data))):
        data += piece
    return data
