"""Check conditions before a write or a delete, for a store without conditional writes.

Between the check and the write another writer may write, unnoticed. So two agents that both act as leader of a
partition can overwrite each other's commits and segments, and a late write is not rejected. With one agent nothing is
lost.
`storage.service.conditional.writes=false` selects this wrapper, and the agent logs at its start what is lost.
"""

from collections.abc import Mapping

from ts_common.errors import ObjectNotFound, PreconditionFailed
from ts_common.store.contract import (
    NO_METADATA,
    Body,
    Condition,
    DeleteOutcome,
    IfAbsent,
    IfMatch,
    ObjectInfo,
)
from ts_common.store.deletions import DELETED_AT_ONCE, delete_each, is_removed
from ts_common.store.validation import check_copy
from ts_common.store.wrappers.wrapped import WrappedStore

WHAT_IS_LOST = (
    "conditional writes are switched off: two agents that both act as leader of a partition can overwrite each other's "
    "commits and segments, unnoticed"
)


class UnconditionalStore(WrappedStore):
    """A store whose objects are read before each conditional put and delete."""

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
        """Put as the contract describes, but check the condition first, not atomically."""
        if condition is not None:
            self._check(key, condition)
        return super().put(key, body, size=size, metadata=metadata, crc32c=crc32c, archived=archived)

    def copy_if_absent(self, source: str, target: str) -> ObjectInfo:
        """Check first that the target does not exist: the store may ignore the condition of the copy."""
        check_copy(source, target)
        self._check(target, IfAbsent())
        return super().copy_if_absent(source, target)

    def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
        """Send HEAD first for each object: the store may ignore the condition of the delete.

        An object that is overwritten between the two requests is removed by a store that ignores it.
        """
        return delete_each(etags, self._delete_matching, threads=DELETED_AT_ONCE)

    def enforces_deletes(self) -> bool | None:
        """Return False: a HEAD precedes each delete."""
        return False

    def _delete_matching(self, key: str, etag: str) -> bool:
        try:
            if self._inner.head(key).etag != etag:
                return False
        except ObjectNotFound:
            return True
        return is_removed(self._inner.delete_matching({key: etag}))

    def _check(self, key: str, condition: IfAbsent | IfMatch) -> None:
        try:
            etag = self._inner.head(key).etag
        except ObjectNotFound:
            etag = None
        if etag != (condition.etag if isinstance(condition, IfMatch) else None):
            raise PreconditionFailed(f"{key} in {self.location}: found {etag or 'no object'}; expected {condition}")
