"""The project's only way to wait: for a condition, with a deadline. No test sleeps."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")
# A call often needs milliseconds of this process, of a server and of an agent. So the longer a wait has lasted, the
# less often it calls: it ends a tenth later at most.
_SHORTEST: Final = 0.02
_LONGEST: Final = 0.25
_PART: Final = 0.1


class WaitTimedOutError(TimeoutError):
    """A condition was not met in time. The message has the condition, the time and the last state."""


def wait_for(
    predicate: Callable[[], T],
    what: str,
    seconds: float = 30.0,
    *,
    state: Callable[[], object] | None = None,
    every: float | None = None,
) -> T:
    """Call `predicate` until its result is true, and return that result.

    Args:
        predicate: called at least once, also with `seconds` = 0. Its exceptions are raised at once.
        what: the condition, for the error: "broker 1 leads t-0".
        state: called once on timeout, for the error; default: the predicate's last result.
        every: seconds between two calls; default: a tenth of the time so far, from 0.02 to 0.25.

    Raises:
        WaitTimedOutError: the result was still false after `seconds`.
    """
    began = time.monotonic()
    deadline = began + seconds
    while True:
        answer = predicate()
        if answer:
            return answer
        if time.monotonic() >= deadline:
            last = answer if state is None else state()
            raise WaitTimedOutError(f"waited {seconds:g} s for: {what}; last state: {last!r}")
        waited = time.monotonic() - began
        time.sleep(min(max(_SHORTEST, _PART * waited), _LONGEST) if every is None else every)
