"""The limit of lines of each event in the log of a process: a hostile client cannot fill the log.

A client that fetches from a hole, or joins a group again and again, causes a line each time. Lines of the audit are
never left out.
"""

import time
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final

import structlog

_LINES: Final = 20  # of one event in a period
_PERIOD_SECONDS: Final = 10.0
_OF_AUDIT: Final = frozenset({"login_refused", "topic_refused", "topic_read_began", "topic_read"})


class LimitedLines:
    """A processor of structlog; a line after a pause has the number of lines that were left out.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._periods: dict[str, tuple[float, int]] = {}  # of each event: the start, and the lines since

    def __call__(self, logger: Any, method: str, facts: MutableMapping[str, Any]) -> Mapping[str, Any]:
        """Return the facts of a line.

        Raises:
            structlog.DropEvent: the line is left out.
        """
        del logger, method
        event = facts.get("event")
        if not isinstance(event, str) or event in _OF_AUDIT:
            return facts
        now, left_out = self._clock(), 0
        start, lines = self._periods.get(event, (now, 0))
        if now - start >= _PERIOD_SECONDS:
            left_out = max(0, lines - _LINES)
            start, lines = now, 0
        self._periods[event] = start, lines + 1
        if lines >= _LINES:
            raise structlog.DropEvent
        return {**facts, "left_out": left_out} if left_out else facts


def limit_lines() -> None:
    """Limit the lines of the log, which is configured already."""
    structlog.configure(processors=[LimitedLines(), *structlog.get_config()["processors"]])
