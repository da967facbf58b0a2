"""A store that notes what is requested of it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager

from ts_common.store.contract import ByteRange, ObjectInfo, ObjectStore, ObjectStream
from ts_common.store.wrappers.wrapped import WrappedStore


class AskedStore(WrappedStore):
    """Passes each request on.

    Attributes:
        opened: the keys of reads, in order.
        headed: the keys of requests for metadata.
        listed: the prefixes of listings.
    """

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, threads=1)
        self.opened: list[str] = []
        self.headed: list[str] = []
        self.listed: list[str] = []

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        """Note the key."""
        self.opened.append(key)
        return super().open(key, byte_range)

    def head(self, key: str) -> ObjectInfo:
        """Note the key."""
        self.headed.append(key)
        return super().head(key)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Note the prefix."""
        self.listed.append(prefix)
        return super().list(prefix, start_after=start_after)
