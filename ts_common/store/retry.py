"""Retry policies: the number of attempts, the pauses, and the failures that are retried.

Requests to a store are retried only if they read or delete, or write an object that no reader uses. The SDK retries
requests to S3, up to `READ_ATTEMPTS` attempts too. The agent's tasks wait `backoff_seconds` in their queue, so that no
thread waits with them (protocol rule 9).
"""

import random
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
    wait_exponential,
    wait_fixed,
    wait_random_exponential,
)

from ts_common.errors import OutcomeUnknown, StoreUnavailable

READ_ATTEMPTS = 3
FIRST_PAUSE_SECONDS = 0.2  # at most, doubled at each attempt
PROBE_ATTEMPTS = 5
_OPERATION_ATTEMPTS = 6
_LONGEST_PAUSE_SECONDS = 10
_SNAPSHOT_ATTEMPTS = 6
_CHECK_ATTEMPTS = 3
_CHECK_PAUSE_SECONDS = 1
_FIRST_BACKOFF_SECONDS = 0.2
_LONGEST_BACKOFF_SECONDS = 30.0

# One step of a long operation that a user started: a chunk of an object, a listing of a partition. Each attempt is a
# whole request with its own retries.
OPERATION_POLICY = Retrying(
    retry=retry_if_exception_type(StoreUnavailable),
    stop=stop_after_attempt(_OPERATION_ATTEMPTS),
    wait=wait_random_exponential(multiplier=0.1, max=_LONGEST_PAUSE_SECONDS),
    reraise=True,
)

# A put of an object whose name no other writer uses, so a second put does no harm; like `OPERATION_POLICY` else.
OWN_OBJECT_POLICY = Retrying(
    retry=retry_if_exception_type((StoreUnavailable, OutcomeUnknown)),
    stop=stop_after_attempt(_OPERATION_ATTEMPTS),
    wait=wait_random_exponential(multiplier=0.1, max=_LONGEST_PAUSE_SECONDS),
    reraise=True,
)

# A put of an object that no reader uses, so a second put does no harm.
PROBE_POLICY = Retrying(
    retry=retry_if_exception_type(OutcomeUnknown), stop=stop_after_attempt(PROBE_ATTEMPTS), reraise=True
)


def snapshot_policy(is_unsettled: Callable[[Any], bool]) -> Retrying:
    """Return the policy of a reader's snapshot, for 3.1 seconds; its outcome is that of the last attempt.

    Args:
        is_unsettled: whether the snapshot was read between two writes of an agent.
    """
    return Retrying(
        retry=retry_if_result(is_unsettled),
        stop=stop_after_attempt(_SNAPSHOT_ATTEMPTS),
        wait=wait_exponential(multiplier=0.1),
        retry_error_callback=_outcome,
    )


def check_policy(failure: type[Exception], before_retry: Callable[[], object]) -> Retrying:
    """Return the policy of one request of `ts-uploader check`.

    Args:
        before_retry: is called after each pause.
    """

    def before(state: RetryCallState) -> None:
        if state.attempt_number > 1:
            before_retry()

    return Retrying(
        retry=retry_if_exception_type(failure),
        stop=stop_after_attempt(_CHECK_ATTEMPTS),
        wait=wait_fixed(_CHECK_PAUSE_SECONDS),
        before=before,
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


def backoff_seconds(attempt: int) -> float:
    """Return how long to wait before attempt number `attempt` (0: at once): doubling, capped, with jitter."""
    if attempt <= 0:
        return 0.0
    longest = min(_LONGEST_BACKOFF_SECONDS, _FIRST_BACKOFF_SECONDS * 2.0 ** min(attempt - 1, 16))
    return random.uniform(longest / 2, longest)  # noqa: S311  (spreads retries; nothing is protected by it)
