"""One rate of bytes for the whole process, as its operator sets it.

All that is sent as bodies of puts takes turns: whoever wants to send asks for a piece, gets at most what may pass in a
tenth of a second, and waits until its turn comes. So every upload moves on, however low the rate is, and none stands
still for longer than the others' pieces take. A body is waited for between two sends, where no time-out of ours runs.

What was not used (a segment was being scanned, the store was slow) may be made up for, up to half a second's worth.
So in any span of time no more passes than the rate allows for that span and six tenths of a second.
"""

import io
import threading
import time
from typing import Final

from ts_common.store.contract import Body

PIECE_SECONDS: Final = 0.1
CREDIT_SECONDS: Final = 0.5


class ByteRate:
    """The arithmetic: when how many bytes may go. Knows no clock; times are seconds of any one clock.

    Attributes:
        limit: bytes per second; None for no limit. May be set at any time, and holds from the next turn on.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._next_turn = float("-inf")

    def take(self, size: int, now: float) -> tuple[int, float]:
        """How many of `size` bytes (at least one) may go in one turn, and how many seconds after `now` it comes."""
        if self.limit is None:
            return size, 0.0
        granted = min(size, max(1, int(self.limit * PIECE_SECONDS)))
        turn = max(self._next_turn, now - CREDIT_SECONDS)
        self._next_turn = turn + granted / self.limit
        return granted, max(0.0, turn - now)


class Allowance:
    """What a process may send; used by all its threads and stores.

    Args:
        limit: bytes per second; None for no limit.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._lock = threading.Lock()
        self._rate = ByteRate(limit)  # guarded by the lock
        self._waited_seconds = 0.0  # likewise

    @property
    def limit(self) -> int | None:
        """Bytes per second; None for no limit."""
        return self._rate.limit

    @property
    def waited_seconds(self) -> float:
        """How long threads waited for their turns so far, all together."""
        return self._waited_seconds

    def change(self, limit: int | None) -> None:
        """Another limit, from the next piece on. Who waits already keeps its turn: a tenth of a second for each."""
        with self._lock:
            self._rate.limit = limit

    def take(self, size: int) -> int:
        """Wait for a turn to send some of `size` bytes; how many (at least one, unless `size` is 0)."""
        if not size or self._rate.limit is None:
            return size
        with self._lock:
            granted, patience = self._rate.take(size, time.monotonic())
            self._waited_seconds += patience
        if patience:
            time.sleep(patience)
        return granted


UNLIMITED: Final = Allowance()


class RationedBody:
    """A body that is handed out as the allowance lets it go.

    Args:
        body: a reader of its own, or bytes.
        size: in bytes.
        allowance: what is taken from.
    """

    def __init__(self, body: bytes | Body, size: int, allowance: Allowance) -> None:
        self._body: Body = io.BytesIO(body) if isinstance(body, bytes) else body
        self._left = size - self._body.tell()
        self._size = size
        self._allowance = allowance

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes, often fewer; empty only at the end."""
        piece = self._body.read(self._allowance.take(self._left if size < 0 else min(size, self._left)))
        self._left -= len(piece)
        return piece

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """As `io.IOBase.seek`."""
        position = self._body.seek(offset, whence)
        self._left = self._size - position
        return position

    def tell(self) -> int:
        """The position in bytes."""
        return self._size - self._left
