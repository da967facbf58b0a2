"""The difference between this host's clock and a store's."""

import time

import pytest

from ts_common.store.clock import ResponseClock, skew_between


@pytest.mark.parametrize(
    ("stored_at", "skew"),
    [(100.0, 0), (99.0, 0), (103.0, 0), (98.0, 1), (40.0, 59), (103.5, -0.5), (163.0, -60)],
)
def test_only_a_time_outside_of_the_put_shows_a_difference(stored_at: float, skew: float) -> None:
    """A put lasted from 100 to 103; the store's date has no fraction of a second."""
    assert skew_between(100, stored_at, 103) == skew


def test_the_time_is_that_of_the_last_response() -> None:
    """Without a date, or with a malformed one, it is this host's."""
    clock = ResponseClock()
    assert clock.current_time() == pytest.approx(time.time(), abs=60)
    clock.note("Thu, 01 Jan 1970 00:16:40 GMT")
    clock.note(None)
    assert clock.current_time() == pytest.approx(1000, abs=60)
    clock.note("tomorrow")
    assert clock.current_time() == pytest.approx(time.time(), abs=60)
