"""Limit the bytes per second of the whole process to the operator's setting.

The bodies of all puts share the rate by turns. A sender requests a piece, receives at most the bytes of a tenth of a
second, and waits for its turn. So every upload makes progress at any rate, and waits no longer than the pieces of the
others last. The wait is between two sends, where no timeout runs.

Unused bandwidth (while a segment is scanned, or the store is slow) may be used later, up to that of half a second. So
in any span of time the process sends at most the bytes of that span and of six tenths of a second.
"""

import io
import threading
import time
from typing import Final

from ts_common.store.contract import Body

PIECE_SECONDS: Final = 0.1
CREDIT_SECONDS: Final = 0.5


class ByteRate:
    """The computation of turns, without a clock of its own; times are seconds of any one clock.

    Attributes:
        limit: bytes per second; None for no limit. It may change at any time, from the next turn on.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._next_turn = float("-inf")

    def take(self, size: int, now: float) -> tuple[int, float]:
        """Return how many of `size` bytes (at least one) the next turn allows, and its time in seconds after `now`."""
        if self.limit is None:
            return size, 0.0
        granted = min(size, max(1, int(self.limit * PIECE_SECONDS)))
        turn = max(self._next_turn, now - CREDIT_SECONDS)
        self._next_turn = turn + granted / self.limit
        return granted, max(0.0, turn - now)


class Allowance:
    """The bandwidth of a process, for all its threads and stores.

    Args:
        limit: bytes per second; None for no limit.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._lock = threading.Lock()
        self._rate = ByteRate(limit)  # guarded by the lock
        self._waited_seconds = 0.0  # guarded by the lock

    @property
    def limit(self) -> int | None:
        """Bytes per second; None for no limit."""
        return self._rate.limit

    @property
    def waited_seconds(self) -> float:
        """Seconds that all threads together have waited for their turns."""
        return self._waited_seconds

    def change(self, limit: int | None) -> None:
        """Change the limit from the next piece on; waiting threads keep their turns, a tenth of a second each."""
        with self._lock:
            self._rate.limit = limit

    def take(self, size: int) -> int:
        """Wait for a turn and return how many of `size` bytes it allows: at least one, unless `size` is 0."""
        if not size or self._rate.limit is None:
            return size
        with self._lock:
            granted, wait_seconds = self._rate.take(size, time.monotonic())
            self._waited_seconds += wait_seconds
        if wait_seconds:
            time.sleep(wait_seconds)
        return granted


UNLIMITED: Final = Allowance()


class RationedBody:
    """A body that is read at the rate of the allowance.

    Args:
        body: a reader that no other code uses, or bytes.
        size: in bytes.
        allowance: limits the bytes per second.
    """

    def __init__(self, body: bytes | Body, size: int, allowance: Allowance) -> None:
        self._body: Body = io.BytesIO(body) if isinstance(body, bytes) else body
        self._left = size - self._body.tell()
        self._size = size
        self._allowance = allowance

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes, often fewer; none only at the end."""
        piece = self._body.read(self._allowance.take(self._left if size < 0 else min(size, self._left)))
        self._left -= len(piece)
        return piece

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move the position as `io.IOBase.seek` does, and return it."""
        position = self._body.seek(offset, whence)
        self._left = self._size - position
        return position

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._size - self._left
