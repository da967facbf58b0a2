"""The outcome of a delete of many objects, for drivers that delete them one by one."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import Final

from ts_common.errors import (
    BucketMissing,
    ObjectNotFound,
    OperatorError,
    PreconditionFailed,
    StoreUnavailable,
    TieredStorageError,
)
from ts_common.store.contract import DeleteOutcome, ObjectInfo
from ts_common.store.validation import check_etags

DELETED_AT_ONCE: Final = 8
DELETED_IN_A_ROW: Final = 1000  # keys that the threads get before their outcomes are read


class Deletions:
    """Counts deletions and failures, and keeps the first failure; not thread-safe."""

    def __init__(self) -> None:
        self._count = self._failed = 0
        self._first: tuple[str, TieredStorageError] | None = None

    def add(self, key: str, error: TieredStorageError | None) -> None:
        """Add the outcome of one object: its error, or None if it no longer exists."""
        self._count += 1
        if error is not None:
            self._failed += 1
            self._first = self._first or (key, error)

    @contextmanager
    def deleting(self, key: str) -> Iterator[None]:
        """Add the outcome of the block, and suppress its error, so that the remaining objects are deleted too."""
        try:
            yield
        except TieredStorageError as error:
            self.add(key, error)
        else:
            self.add(key, None)

    def check(self) -> None:
        """Report the failures.

        Raises:
            OperatorError: the first failure is one; it keeps its class.
            StoreUnavailable: any other first failure.
        """
        if self._first is None:
            return
        key, error = self._first
        kind = type(error) if isinstance(error, OperatorError) else StoreUnavailable
        raise kind(f"{self._failed} of {self._count} not deleted, the first is {key}: {error}") from error


def delete_each(etags: Mapping[str, str], delete: Callable[[str, str], bool], *, threads: int = 1) -> DeleteOutcome:
    """Return the outcome of a conditional delete, for drivers that send a request for each object.

    Args:
        etags: ETags by key.
        delete: removes the object of a key if it has this ETag; returns False if it has another one.
        threads: the number of objects that are removed at once.

    Raises:
        BucketMissing: as `delete`; its other errors are part of the outcome.
        ValueError: as `check_etags`.
    """
    remaining = iter(check_etags(etags).items())
    removed: list[str] = []
    kept: list[str] = []
    failed: dict[str, TieredStorageError] = {}

    def one(pair: tuple[str, str]) -> bool | TieredStorageError:
        try:
            return delete(*pair)
        except BucketMissing:
            raise
        except TieredStorageError as error:
            return error

    with ThreadPoolExecutor(max(1, min(threads, len(etags))), "store-delete") as pool:
        while chunk := list(islice(remaining, DELETED_IN_A_ROW)):
            for (key, _), result in zip(chunk, pool.map(one, chunk), strict=True):
                if isinstance(result, TieredStorageError):
                    failed[key] = result
                else:
                    (removed if result else kept).append(key)
    return DeleteOutcome(tuple(removed), tuple(kept), failed)


def is_removed(outcome: DeleteOutcome) -> bool:
    """Return whether the one object of an outcome no longer exists.

    Raises:
        TieredStorageError: its failure.
    """
    for error in outcome.failed.values():
        raise error
    return not outcome.kept


def is_missing_after(rejection: PreconditionFailed, head: Callable[[], ObjectInfo], etag: str) -> bool:
    """Return whether a key has no object, after the store rejected a delete with an ETag.

    A store can reject the condition of a missing object too, as SeaweedFS does.

    Args:
        etag: the condition of the delete.

    Raises:
        StoreUnavailable: the object has this ETag now.
    """
    try:
        found = head().etag
    except ObjectNotFound:
        return True
    if found == etag:
        raise StoreUnavailable(
            f"{rejection}; HEAD then returned the same ETag {etag}: the outcome is open"
        ) from rejection
    return False
