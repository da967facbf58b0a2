"""Retry policies: how often, after what failures, and with what pauses."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from tenacity import Retrying, wait_fixed

from ts_common.errors import AccessDenied, OutcomeUnknown, StoreUnavailable
from ts_common.store.retry import FIRST_PAUSE_SECONDS, OPERATION_POLICY, READ_ATTEMPTS, request_policy


class Attempts:
    """A request with one outcome for each attempt: a value is returned, an exception raised."""

    def __init__(self, *outcomes: object) -> None:
        self._outcomes: Iterator[object] = iter(outcomes)
        self.count = 0

    def __call__(self) -> object:
        self.count += 1
        outcome = next(self._outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@pytest.fixture
def policy() -> Retrying:
    """Return the policy of a request; unavailable stores and the status 500 are retried, without a pause."""
    closed = threading.Event()
    closed.set()
    return request_policy(closed, lambda error: isinstance(error, StoreUnavailable), lambda answer: answer == 500)


def test_a_request_is_sent_again_after_a_failure_that_can_pass(policy: Retrying) -> None:
    """An exception, then a response; the caller gets the first success."""
    attempts = Attempts(StoreUnavailable("reset"), 500, 200)
    assert policy(attempts) == 200
    assert attempts.count == 3


@pytest.mark.parametrize("outcome", [StoreUnavailable("reset"), 500])
def test_the_outcome_of_a_request_is_that_of_its_last_attempt(policy: Retrying, outcome: object) -> None:
    """After `READ_ATTEMPTS` attempts the error or the response is the caller's, without one of the library."""
    attempts = Attempts(*[outcome] * READ_ATTEMPTS, 200)
    if isinstance(outcome, Exception):
        with pytest.raises(StoreUnavailable, match="reset"):
            policy(attempts)
    else:
        assert policy(attempts) == 500
    assert attempts.count == READ_ATTEMPTS


@pytest.mark.parametrize("outcome", [200, 404, AccessDenied("403")])
def test_another_outcome_is_the_callers_at_once(policy: Retrying, outcome: object) -> None:
    """A retry would return the same."""
    attempts = Attempts(outcome, 200)
    if isinstance(outcome, Exception):
        with pytest.raises(AccessDenied):
            policy(attempts)
    else:
        assert policy(attempts) == outcome
    assert attempts.count == 1


def test_closing_ends_a_pause() -> None:
    """A process that ends does not wait for the next attempt: it follows at once."""
    closed = threading.Event()
    policy = request_policy(closed, lambda error: True, lambda answer: False).copy(wait=wait_fixed(30))
    began = time.monotonic()
    threading.Timer(0.1, closed.set).start()
    assert policy(Attempts(StoreUnavailable("reset"), StoreUnavailable("reset"), 200)) == 200
    assert time.monotonic() - began < 20


def pauses_of(policy: Retrying, attempts: Callable[[], object]) -> list[float]:
    """Return the pauses of a policy in seconds, without waiting."""
    pauses: list[float] = []
    with pytest.raises(StoreUnavailable):
        policy.copy(sleep=pauses.append)(attempts)
    return pauses


def test_pauses_of_a_request_double_at_most() -> None:
    """Random parts of 0.2 s, 0.4 s and so on, so that not all threads return at the same time."""
    policy = request_policy(threading.Event(), lambda error: True, lambda answer: False)
    found = [pauses_of(policy, Attempts(*[StoreUnavailable("reset")] * READ_ATTEMPTS)) for _ in range(50)]
    assert all(len(pauses) == READ_ATTEMPTS - 1 for pauses in found)
    for number in range(READ_ATTEMPTS - 1):
        of_one = [pauses[number] for pauses in found]
        assert len(set(of_one)) > 1
        assert 0 <= min(of_one) <= max(of_one) <= FIRST_PAUSE_SECONDS * 2**number


def test_a_long_operation_outlasts_a_short_outage() -> None:
    """Six attempts of each step; the last error is raised itself, and no pause is longer than ten seconds."""
    attempts = Attempts(*[StoreUnavailable("reset")] * 6)
    pauses = pauses_of(OPERATION_POLICY, attempts)
    assert attempts.count == 6
    assert all(0 <= pause <= min(10, 0.1 * 2**number) for number, pause in enumerate(pauses))


@pytest.mark.parametrize("error", [AccessDenied("403"), OutcomeUnknown("reset")])
def test_a_long_operation_repeats_no_step_after_another_error(error: Exception) -> None:
    """Only an unavailable store passes by itself."""
    attempts = Attempts(error, 200)
    with pytest.raises(type(error)):
        OPERATION_POLICY.copy(sleep=lambda _seconds: None)(attempts)
    assert attempts.count == 1
