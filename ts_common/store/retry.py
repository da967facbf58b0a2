"""Retry policies: the number of attempts, the pauses, and the failures that are retried.

Only requests that read or delete are retried (protocol rule 9 governs the agent's tasks). The SDK retries requests to
S3, up to `READ_ATTEMPTS` attempts too.
"""

import threading
from collections.abc import Callable
from typing import Any

from tenacity import (
    RetryCallState,
    Retrying,
    retry_any,
    retry_if_exception,
    retry_if_exception_type,
    retry_if_result,
    sleep_using_event,
    stop_after_attempt,
    wait_random_exponential,
)

from ts_common.errors import StoreUnavailable

READ_ATTEMPTS = 3
FIRST_PAUSE_SECONDS = 0.2  # at most, doubled at each attempt
_OPERATION_ATTEMPTS = 6
_LONGEST_PAUSE_SECONDS = 10

# One step of a long operation that a user started: a chunk of an object, a listing of a partition. Each attempt is a
# whole request with its own retries.
OPERATION_POLICY = Retrying(
    retry=retry_if_exception_type(StoreUnavailable),
    stop=stop_after_attempt(_OPERATION_ATTEMPTS),
    wait=wait_random_exponential(multiplier=0.1, max=_LONGEST_PAUSE_SECONDS),
    reraise=True,
)


def request_policy(
    closed: threading.Event, failure_passes: Callable[[BaseException], bool], answer_passes: Callable[[Any], bool]
) -> Retrying:
    """Return the policy of one HTTP request; its outcome is that of the last attempt.

    Args:
        closed: ends a pause, so that the remaining attempts follow at once.
        failure_passes: whether a retry can succeed after this exception.
        answer_passes: whether a retry can return another response than this one.
    """
    return Retrying(
        retry=retry_any(retry_if_exception(failure_passes), retry_if_result(answer_passes)),
        stop=stop_after_attempt(READ_ATTEMPTS),
        wait=wait_random_exponential(multiplier=FIRST_PAUSE_SECONDS),
        sleep=sleep_using_event(closed),
        retry_error_callback=_outcome,
    )


def _outcome(state: RetryCallState) -> Any:
    """Return the result of the last attempt, or raise its exception."""
    last: Any = state.outcome  # None only before the first attempt
    return last.result()
