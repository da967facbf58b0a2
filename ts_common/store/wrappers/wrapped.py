"""The base class of wrappers: each call is passed to the inner store."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

from ts_common.store.contract import (
    NO_METADATA,
    Body,
    ByteRange,
    Condition,
    DeleteOutcome,
    ObjectInfo,
    ObjectStore,
    ObjectStream,
    ObjectVersion,
)
from ts_common.store.lifecycle import LifecycleRule
from ts_common.store.protection import Lock, Protection
from ts_common.store.thaw_state import ThawState, ThawTier


class WrappedStore(ObjectStore):
    """A store that passes each call to an inner store; subclasses override some.

    Args:
        inner: the store; closed with this one.
        threads: the number of asynchronous puts that run at once.
    """

    def __init__(self, inner: ObjectStore, *, threads: int) -> None:
        super().__init__(inner.location, async_threads=threads)
        self._inner = inner

    def check(self) -> None:
        """Call the inner store."""
        self._inner.check()

    def current_time(self) -> float:
        """Call the inner store."""
        return self._inner.current_time()

    def identity(self) -> str | None:
        """Call the inner store."""
        return self._inner.identity()

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
        """Call the inner store."""
        return self._inner.put(
            key, body, size=size, metadata=metadata, condition=condition, crc32c=crc32c, archived=archived
        )

    def copy_if_absent(self, source: str, target: str) -> ObjectInfo:
        """Call the inner store."""
        return self._inner.copy_if_absent(source, target)

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        """Call the inner store."""
        return self._inner.open(key, byte_range)

    def head(self, key: str) -> ObjectInfo:
        """Call the inner store."""
        return self._inner.head(key)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Call the inner store."""
        return self._inner.list(prefix, start_after=start_after)

    def list_directories(self, prefix: str = "") -> Iterator[str]:
        """Call the inner store."""
        return self._inner.list_directories(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        """Call the inner store."""
        self._inner.delete(keys)

    def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
        """Call the inner store."""
        return self._inner.delete_matching(etags)

    def enforces_deletes(self) -> bool | None:
        """Call the inner store."""
        return self._inner.enforces_deletes()

    def lifecycle_rules(self) -> tuple[LifecycleRule, ...] | None:
        """Call the inner store."""
        return self._inner.lifecycle_rules()

    def protection(self) -> Protection:
        """Call the inner store."""
        return self._inner.protection()

    def locked_until(self, key: str) -> Lock | None:
        """Call the inner store."""
        return self._inner.locked_until(key)

    def has_legal_hold(self, key: str, version: str) -> bool:
        """Call the inner store."""
        return self._inner.has_legal_hold(key, version)

    def set_legal_hold(self, key: str, version: str, *, is_held: bool) -> None:
        """Call the inner store."""
        self._inner.set_legal_hold(key, version, is_held=is_held)

    def thaw_state(self, key: str) -> ThawState:
        """Call the inner store."""
        return self._inner.thaw_state(key)

    def thaw(self, key: str, days: int | None, tier: ThawTier) -> None:
        """Call the inner store."""
        self._inner.thaw(key, days, tier)

    def versions(self, prefix: str) -> Iterator[ObjectVersion] | None:
        """Call the inner store."""
        return self._inner.versions(prefix)

    def open_version(
        self, version: ObjectVersion, byte_range: ByteRange | None = None
    ) -> AbstractContextManager[ObjectStream]:
        """Call the inner store."""
        return self._inner.open_version(version, byte_range)

    def version_lock(self, version: ObjectVersion) -> Lock | None:
        """Call the inner store."""
        return self._inner.version_lock(version)

    def delete_version(self, version: ObjectVersion) -> None:
        """Call the inner store."""
        self._inner.delete_version(version)

    def unbound_metadata(self, prefix: str) -> Mapping[str, Sequence[Mapping[str, str]]]:
        """Call the inner store."""
        return self._inner.unbound_metadata(prefix)

    def bind_metadata(self, key: str, etag: str, metadata: Mapping[str, str]) -> None:
        """Call the inner store."""
        self._inner.bind_metadata(key, etag, metadata)

    def close(self) -> None:
        """Wait for asynchronous puts, then close the inner store."""
        super().close()
        self._inner.close()
