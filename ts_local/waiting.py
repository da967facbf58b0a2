"""The one way to wait here: for a condition, with a deadline. Nothing sleeps "to be safe"."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class WaitTimedOutError(TimeoutError):
    """What was awaited did not come in time. The message says what, how long, and the last state seen."""


def wait_for(
    predicate: Callable[[], T],
    what: str,
    seconds: float = 30.0,
    *,
    state: Callable[[], object] | None = None,
    every: float = 0.02,
) -> T:
    """Ask `predicate` until its answer is true, and give that answer back.

    Args:
        predicate: asked at least once, also with `seconds` = 0. What it raises goes to the caller at once.
        what: what is awaited, for the error: "broker 1 leads t-0".
        seconds: how long to ask.
        state: asked once on time-out, for the error; absent, the predicate's last answer is shown.
        every: seconds between two questions.

    Raises:
        WaitTimedOutError: the answer was still false after `seconds`.
    """
    deadline = time.monotonic() + seconds
    while True:
        answer = predicate()
        if answer:
            return answer
        if time.monotonic() >= deadline:
            last = answer if state is None else state()
            raise WaitTimedOutError(f"waited {seconds:g} s for: {what}; last state: {last!r}")
        time.sleep(every)
