"""Log lines that clients cause, at most a few in a period: a hostile client cannot fill the log."""

import time
from collections.abc import Callable
from typing import Any, Final

import structlog

_LINES: Final = 20  # of one event in a period
_PERIOD_SECONDS: Final = 10.0


class LineLimit:
    """Counts the lines of each event.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._periods: dict[str, tuple[float, int]] = {}  # of each event: the start, and the lines since

    def left_out(self, event: str) -> int | None:
        """Count a line; return the number of lines that were left out before it, or None to leave it out too.

        Args:
            event: a name of the project's list, never a text of a client.
        """
        now = self._clock()
        start, lines = self._periods.get(event, (now, 0))
        before = 0
        if now - start >= _PERIOD_SECONDS:
            before = max(0, lines - _LINES)
            start, lines = now, 0
        self._periods[event] = (start, lines + 1)
        return before if lines < _LINES else None


class LimitedLog:
    """Writes warnings; a line after a pause has the number of lines that were left out.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = LineLimit(clock)

    def warning(self, event: str, **facts: Any) -> None:
        """Log an event, or count it.

        Args:
            event: as of `LineLimit.left_out`.
            **facts: its fields.
        """
        left_out = self._limit.left_out(event)
        if left_out is not None:
            structlog.get_logger().warning(event, **facts, **({"left_out": left_out} if left_out else {}))
