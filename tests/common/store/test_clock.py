"""The difference between this host's clock and a store's."""

import time
from email.utils import formatdate

import pytest

from ts_common.store.clock import (
    REFUSED_SKEW_SECONDS,
    ResponseClock,
    is_refused_skew,
    set_the_clock,
    skew_between,
    skew_of,
    without_reason,
)


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


@pytest.mark.parametrize("seconds", [-3600.0, 0.0, 900.0])
def test_the_date_of_a_response_shows_the_difference_of_the_clocks(seconds: float) -> None:
    """It is positive if this host's clock is ahead."""
    assert skew_of(formatdate(time.time() - seconds, usegmt=True)) == pytest.approx(seconds, abs=5)


@pytest.mark.parametrize(
    "date", [None, "", "yesterday", "Sun, 99 Nov 2026 02:33:34 GMT", f"Sun, 22 Nov {'9' * 20} 02:33:34 GMT"]
)
def test_without_a_valid_date_the_difference_is_unknown(date: str | None) -> None:
    """A proxy may send any text; the error that is explained must not be replaced by another."""
    assert skew_of(date) is None


@pytest.mark.parametrize(
    ("skew", "refused"),
    [
        (None, False),
        (0.0, False),
        (REFUSED_SKEW_SECONDS - 1, False),
        (REFUSED_SKEW_SECONDS + 1, True),
        (-REFUSED_SKEW_SECONDS - 1, True),
    ],
)
def test_a_clock_is_wrong_from_a_quarter_of_an_hour_on(skew: float | None, *, refused: bool) -> None:
    """In both directions; a store that checks clocks rejects each request then."""
    assert is_refused_skew(skew) is refused


@pytest.mark.parametrize(
    ("skew", "text"),
    [
        (None, "this host's clock and the store's differ too much: set the clock (NTP)"),
        (1000.4, "this host's clock is 1000 s ahead of the store's: set the clock (NTP)"),
        (-1000.4, "this host's clock is 1000 s behind the store's: set the clock (NTP)"),
    ],
)
def test_the_operator_reads_the_difference_and_its_direction(skew: float | None, text: str) -> None:
    """Without a date, only that there is one."""
    assert set_the_clock(skew) == text


@pytest.mark.parametrize(("skew", "is_named"), [(None, True), (5.0, False), (REFUSED_SKEW_SECONDS + 1, True)])
def test_a_denial_without_a_reason_names_the_clock_unless_it_is_right(skew: float | None, *, is_named: bool) -> None:
    """Credentials and the permission are always named."""
    text = without_reason("the access key", "s3:GetObject", skew)
    assert "check the access key" in text
    assert "allow this identity s3:GetObject" in text
    assert ("clock" in text) is is_named
