"""Log lines that clients cause, at most a few in a period: a hostile client cannot fill the log."""

import time
from collections.abc import Callable
from typing import Any, Final

import structlog

_LINES: Final = 20  # of one event in a period
_PERIOD_SECONDS: Final = 10.0


class LimitedLog:
    """Writes warnings; a line after a pause has the number of lines that were left out.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._periods: dict[str, tuple[float, int]] = {}  # of each event: the start, and the lines since

    def warning(self, event: str, **facts: Any) -> None:
        """Log an event, or count it.

        Args:
            event: a name of the project's list, never a text of a client.
            **facts: its fields.
        """
        now = self._clock()
        start, lines = self._periods.get(event, (now, 0))
        if now - start >= _PERIOD_SECONDS:
            left_out = lines - _LINES
            start, lines = now, 0
            if left_out > 0:
                facts["left_out"] = left_out
        self._periods[event] = (start, lines + 1)
        if lines < _LINES:
            structlog.get_logger().warning(event, **facts)
