"""The limit of lines of each event in the log of a process.

A client that fetches from a hole, or joins a group again and again, causes a line each time. Lines of the audit are
never left out.
"""

import time
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final

import structlog

from ts_endpoint.network.limited_log import LineLimit

_OF_AUDIT: Final = frozenset({"login_refused", "topic_refused", "topic_read_began", "topic_read"})


class LimitedLines:
    """A processor of structlog; a line after a pause has the number of lines that were left out.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = LineLimit(clock)

    def __call__(self, logger: Any, method: str, facts: MutableMapping[str, Any]) -> Mapping[str, Any]:
        """Return the facts of a line.

        Raises:
            structlog.DropEvent: the line is left out.
        """
        del logger, method
        event = facts.get("event")
        if not isinstance(event, str) or event in _OF_AUDIT:
            return facts
        left_out = self._limit.left_out(event)
        if left_out is None:
            raise structlog.DropEvent
        return {**facts, "left_out": left_out} if left_out else facts


def limit_lines() -> None:
    """Limit the lines of the log, which is configured already."""
    structlog.configure(processors=[LimitedLines(), *structlog.get_config()["processors"]])
