"""A store whose client dies at a request."""

from typing import Any

from ts_common.errors import StoreUnavailable
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_common.store.wrappers.wrapped import WrappedStore


class Dying(WrappedStore):
    """A store whose put of one key, and every put after it, never happens: the agent is killed there."""

    def __init__(self, inner: ObjectStore, key: str) -> None:
        super().__init__(inner, threads=1)
        self._key = key
        self._dead = False

    def put(self, key: str, *arguments: Any, **named: Any) -> ObjectInfo:
        """As the inner store, up to the kill."""
        self._dead = self._dead or key == self._key
        if self._dead:
            raise StoreUnavailable("killed")
        return super().put(key, *arguments, **named)
