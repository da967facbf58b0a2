"""The outcome of a delete of many objects, for drivers that delete them one by one."""

from collections.abc import Iterator
from contextlib import contextmanager

from ts_common.errors import OperatorError, StoreUnavailable, TieredStorageError


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
