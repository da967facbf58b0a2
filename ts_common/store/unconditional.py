"""For a store that knows no conditional writes: conditions are looked at before the write, not held by the store.

Between the look and the write another writer may come, and nobody notices. So two agents that believe to lead one
partition can overwrite each other's commits and segments, and a write that lands late is not refused. One agent alone
is as safe as ever. Configured with `storage.service.conditional.writes=false`; the agent says at its start what is
lost.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager

from ts_common.errors import ObjectNotFound, PreconditionFailed
from ts_common.store.contract import (
    NO_METADATA,
    Body,
    ByteRange,
    Condition,
    IfAbsent,
    IfMatch,
    ObjectInfo,
    ObjectStore,
    ObjectStream,
)

WHAT_IS_LOST = (
    "conditional writes are switched off: two agents that believe to lead one partition can overwrite each other's "
    "commits and segments, and nobody notices"
)


class UnconditionalStore(ObjectStore):
    """Another store, asked before each conditional put.

    Args:
        inner: the store; closed with this one.
        threads: how many asynchronous puts run at once.
    """

    def __init__(self, inner: ObjectStore, *, threads: int) -> None:
        super().__init__(inner.location, async_threads=threads)
        self._inner = inner

    def check(self) -> None:
        """As the inner store."""
        self._inner.check()

    def put(
        self,
        key: str,
        body: bytes | Body,
        *,
        size: int | None = None,
        metadata: Mapping[str, str] = NO_METADATA,
        condition: Condition = None,
        crc32c: int | None = None,
    ) -> ObjectInfo:
        """As the contract says, but for what the module's page says."""
        if condition is not None:
            self._look(key, condition)
        return self._inner.put(key, body, size=size, metadata=metadata, crc32c=crc32c)

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        """As the inner store."""
        return self._inner.open(key, byte_range)

    def head(self, key: str) -> ObjectInfo:
        """As the inner store."""
        return self._inner.head(key)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """As the inner store."""
        return self._inner.list(prefix, start_after=start_after)

    def list_directories(self, prefix: str = "") -> Iterator[str]:
        """As the inner store."""
        return self._inner.list_directories(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        """As the inner store."""
        self._inner.delete(keys)

    def close(self) -> None:
        """End asynchronous puts, then the inner store."""
        super().close()
        self._inner.close()

    def _look(self, key: str, condition: IfAbsent | IfMatch) -> None:
        try:
            etag = self._inner.head(key).etag
        except ObjectNotFound:
            etag = None
        if etag != (condition.etag if isinstance(condition, IfMatch) else None):
            raise PreconditionFailed(f"{key} in {self.location}: found {etag or 'nothing'}, {condition} asked")
