"""JSON lines that are too many for one object: numbered objects of bounded size have them."""

from collections.abc import Callable

from ts_common.archive.gc_plans import PART_BYTES
from ts_common.archive.gc_runs import write_once
from ts_common.store.contract import ObjectStore


class NumberedLines:
    """Writes lines to objects with ascending numbers; not thread-safe.

    Args:
        store: for the objects.
        key: returns the key of a number.
    """

    def __init__(self, store: ObjectStore, key: Callable[[int], str]) -> None:
        self._store = store
        self._key = key
        self._lines: list[bytes] = []
        self._size = 0
        self.count = 0

    @property
    def is_empty(self) -> bool:
        """Whether the next line is the first of its object."""
        return not self._lines

    def add(self, line: str) -> None:
        """Add a line, and write an object if it is full.

        Raises:
            OutcomeUnknown, StoreUnavailable, AccessDenied, BucketMissing: the store failed.
        """
        encoded = line.encode() + b"\n"
        self._lines.append(encoded)
        self._size += len(encoded)
        if self._size >= PART_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the lines that are left; raise as `add`."""
        if not self._lines:
            return
        write_once(self._store, self._key(self.count), b"".join(self._lines))
        self.count += 1
        self._lines, self._size = [], 0
