"""A moment as people write it, in milliseconds since 1970."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ts_reader.query.timestamps import EXPECTED, milliseconds_of, time_text

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (0, 0),
        (1 << 62, 1 << 62),
        ("@0", 0),
        ("@1700000000000", 1_700_000_000_000),
        (datetime(1970, 1, 1, 0, 0, 1), 1000),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0),
        (datetime(1969, 12, 31, tzinfo=UTC), 0),
        (date(1970, 1, 2), 86_400_000),
        ("1970-01-01T00:00:01Z", 1000),
        (" 1970-01-01 00:00:01 ", 1000),
        ("1970-01-02", 86_400_000),
        ("19700102T000000Z", 86_400_000),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1970-01-01T00:00:00.001", 1),
        ("1970-01-01T00:00:00.0011", 2),
        ("1969-12-31T23:59:59.9999Z", 0),
        ("9999-12-31T23:59:59.999999-12:00", 253_402_344_000_000),
        ("0001-01-01T00:00:00+14:00", 0),
    ],
)
def test_a_moment_has_several_forms(moment: date | str | int, expected: int) -> None:
    """Without an offset it is UTC; part of a millisecond counts for the next one; 1970 is the first moment."""
    assert milliseconds_of(moment) == expected


@pytest.mark.parametrize("moment", ["1970-01-01T00:00:00.0019", datetime(1970, 1, 1, 0, 0, 0, 1000), 1])
def test_a_moment_can_be_rounded_down(moment: datetime | str | int) -> None:
    """For rows up to it: a row of the next millisecond is later."""
    assert milliseconds_of(moment, rounds_up=False) == 1


@given(st.datetimes(min_value=datetime(1970, 1, 2)), ZONES)
def test_a_moment_is_the_same_in_each_zone_and_as_text(moment: datetime, zone: timezone) -> None:
    """The result is the first whole millisecond at or after it."""
    aware = moment.replace(tzinfo=UTC)
    found = milliseconds_of(moment)
    assert found * 1000 - (aware - EPOCH) // timedelta(microseconds=1) in range(1000)
    try:
        elsewhere = aware.astimezone(zone)
    except OverflowError:  # before the year 1 or after 9999 there
        return
    assert milliseconds_of(elsewhere) == milliseconds_of(elsewhere.isoformat()) == found
    assert milliseconds_of(moment.isoformat(" ")) == found


@pytest.mark.parametrize(
    "moment",
    [
        "",
        "x",
        "@",
        "@-5",
        "@5.0",
        "5",
        "@٣",
        "2026-13-01",
        "12:00",
        True,
        1.5,
        None,
        b"@5",
        "@" + "9" * 20,
    ],
)
def test_what_is_no_moment_names_what_is_expected(moment: object) -> None:
    """A number as text needs its sign, because it could be a year."""
    with pytest.raises(ValueError) as caught:
        milliseconds_of(moment)  # type: ignore[arg-type]  # a wrong value
    assert str(caught.value) == f"expected {EXPECTED}"


def test_negative_milliseconds_are_an_error() -> None:
    """Kafka has no time before 1970."""
    with pytest.raises(ValueError, match="not negative"):
        milliseconds_of(-1)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "1970-01-01T00:00:00.000Z"), (1_700_000_000_001, "2023-11-14T22:13:20.001Z"), (10**18, f"@{10**18}")],
)
def test_a_moment_is_written_in_utc(milliseconds: int, text: str) -> None:
    """Beyond the calendar as a number."""
    assert time_text(milliseconds) == text
