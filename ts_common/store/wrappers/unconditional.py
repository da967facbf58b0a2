"""For a store that knows no conditional writes: conditions are looked at before the write, not held by the store.

Between the look and the write another writer may come, and nobody notices. So two agents that believe to lead one
partition can overwrite each other's commits and segments, and a write that lands late is not refused. One agent alone
is as safe as ever. Configured with `storage.service.conditional.writes=false`; the agent says at its start what is
lost.
"""

from collections.abc import Mapping

from ts_common.errors import ObjectNotFound, PreconditionFailed
from ts_common.store.contract import (
    NO_METADATA,
    Body,
    Condition,
    IfAbsent,
    IfMatch,
    ObjectInfo,
)
from ts_common.store.wrappers.wrapped import WrappedStore

WHAT_IS_LOST = (
    "conditional writes are switched off: two agents that believe to lead one partition can overwrite each other's "
    "commits and segments, and nobody notices"
)


class UnconditionalStore(WrappedStore):
    """Another store, asked before each conditional put."""

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
        """As the contract says, but for what the module's page says."""
        if condition is not None:
            self._look(key, condition)
        return super().put(key, body, size=size, metadata=metadata, crc32c=crc32c, archived=archived)

    def _look(self, key: str, condition: IfAbsent | IfMatch) -> None:
        try:
            etag = self._inner.head(key).etag
        except ObjectNotFound:
            etag = None
        if etag != (condition.etag if isinstance(condition, IfMatch) else None):
            raise PreconditionFailed(f"{key} in {self.location}: found {etag or 'nothing'}, {condition} asked")
