"""A store that fails where a test wants it to."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager

from ts_common.errors import OutcomeUnknown, StoreUnavailable
from ts_common.store.contract import NO_METADATA, Body, ByteRange, Condition, ObjectInfo, ObjectStore, ObjectStream
from ts_common.store.wrappers.wrapped import WrappedStore


class UnsteadyStore(WrappedStore):
    """Passes each call to an inner store, unless it is away.

    Attributes:
        is_away: every call fails.
        is_read_only: puts and deletes fail.
        silent: so many puts succeed without a response.
        dropped: so many puts have no response and no effect.
        before_put: called before each put; another process may write there.
        before_delete: called before each delete.
        calls: names of the calls that were made.
    """

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, threads=1)
        self.is_away = False
        self.is_read_only = False
        self.silent = 0
        self.dropped = 0
        self.before_put: Callable[[], None] = lambda: None
        self.before_delete: Callable[[], None] = lambda: None
        self.calls: list[str] = []

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.is_away or (self.is_read_only and name in {"put", "delete"}):
            raise StoreUnavailable("the store is away")

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
        self._call("put")
        self.before_put()
        if self.dropped:
            self.dropped -= 1
            raise OutcomeUnknown(key)
        info = super().put(key, body, condition=condition)
        if self.silent:
            self.silent -= 1
            raise OutcomeUnknown(key)
        return info

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        self._call("open")
        return super().open(key, byte_range)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        self._call("list")
        return super().list(prefix, start_after=start_after)

    def delete(self, keys: Iterable[str]) -> None:
        self._call("delete")
        self.before_delete()
        super().delete(keys)
