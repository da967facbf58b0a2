"""A store whose ETags are the MD5 of the content, as most stores of S3's API have them; a directory has others."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import md5
from typing import Any

from ts_common.store.contract import ByteRange, ObjectInfo, ObjectStream
from ts_common.store.wrappers.wrapped import WrappedStore


class Md5Etags(WrappedStore):
    """Objects of an inner store under other ETags; puts and gets without a condition have them.

    Attributes:
        reads: the number of gets, by key.
        listings: the number of listings, by prefix.
        later: seconds that the store's clock is ahead.
    """

    later = 0.0

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.reads: Counter[str] = Counter()
        self.listings: Counter[str] = Counter()

    def current_time(self) -> float:
        return super().current_time() + self.later

    def put(self, key: str, *given: Any, **named: Any) -> ObjectInfo:
        return self._changed(super().put(key, *given, **named))

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        self.listings[prefix] += 1
        for info in self._inner.list(prefix, start_after=start_after):
            yield self._changed(info)

    @contextmanager
    def open(self, key: str, byte_range: ByteRange | None = None) -> Iterator[ObjectStream]:
        self.reads[key] += 1
        with self._inner.open(key, byte_range) as stream:
            stream.info = self._changed(stream.info)
            yield stream

    def _changed(self, info: ObjectInfo) -> ObjectInfo:
        data, _ = self._inner.get(info.key)
        return replace(info, etag=f'"{md5(data).hexdigest()}"')
