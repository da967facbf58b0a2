"""Reject deletes, except below one prefix, before a request is sent.

An agent deletes packs of the live tail, and nothing else. It reads the names of these objects in indexes, which others
can write. So the limit is not only in the policy of its identity: each store of an agent has this wrapper.
"""

from collections.abc import Iterable, Mapping

from ts_common.errors import AccessDenied
from ts_common.store.contract import DeleteOutcome, ObjectStore, ObjectVersion
from ts_common.store.validation import check_directory, check_key
from ts_common.store.wrappers.wrapped import WrappedStore


class DeletesBelow(WrappedStore):
    """A store where this process deletes only objects below a prefix.

    Args:
        prefix: a directory; it ends with `/`.

    Raises:
        ValueError: the prefix is empty or not a directory.
    """

    def __init__(self, inner: ObjectStore, prefix: str, *, threads: int) -> None:
        super().__init__(inner, threads=threads)
        if not check_directory(prefix):
            raise ValueError("no prefix; expected a directory, whose objects may be deleted")
        self._prefix = prefix

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects below the prefix.

        Raises:
            AccessDenied: one of the objects is elsewhere; nothing was deleted.
            KeyRefused, StoreUnavailable: as the contract.
        """
        self._inner.delete(self._checked(keys))

    def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
        """Delete objects below the prefix whose ETag is unchanged; raise as `delete`."""
        self._checked(etags)
        return self._inner.delete_matching(etags)

    def delete_version(self, version: ObjectVersion) -> None:
        """Delete no version: those of packs end by a rule of the bucket.

        Raises:
            AccessDenied: always.
        """
        raise AccessDenied(f"{self.location}/{version.info.key}: not deleted: this process deletes no version")

    def _checked(self, keys: Iterable[str]) -> list[str]:
        found = list(keys)
        for key in found:
            if not check_key(key).startswith(self._prefix):
                raise AccessDenied(
                    f"{self.location}/{key}: not deleted: this process deletes only objects below {self._prefix}"
                )
        return found
