"""A store's clock, compared with this host's, and why a store denies a request: a wrong clock, key or permission.

If the store names the reason of a denied request, the message has it. Otherwise (a response to HEAD has no body, or a
proxy answers) the message lists all three, without the clock if the date of the response shows that it is right.
"""

import time
from email.utils import parsedate_to_datetime
from typing import Final

DATE_SECONDS: Final = 1.0  # precision of an HTTP date
REPORTED_SKEW_SECONDS: Final = 30.0


def skew_between(before: float, stored_at: float, after: float) -> float:
    """Return by how many seconds this host's clock is ahead of the store's at least; below 0 if it is behind.

    Args:
        before: this host's time before a put, in seconds since the epoch.
        stored_at: `ObjectInfo.modified` of the put.
        after: this host's time after it.
    """
    ahead = before - stored_at - DATE_SECONDS
    return ahead if ahead > 0 else -max(0.0, stored_at - after)


class ResponseClock:
    """The clock of a store, by the HTTP date of its last response; used on all threads.

    Modification times of objects are by the same clock, so an age from both is right on a host with a wrong clock.
    """

    def __init__(self) -> None:
        self._last: tuple[str, float] | None = None  # the date, and this host's monotonic time then

    def note(self, date: str | None) -> None:
        """Keep the header `Date` of a response; a response without one is ignored."""
        if date is not None:
            self._last = date, time.monotonic()

    def current_time(self) -> float:
        """Return seconds since the epoch; by this host's clock if no response had a valid date."""
        try:
            if self._last is not None:
                date, noted = self._last
                return parsedate_to_datetime(date).timestamp() + time.monotonic() - noted
        except (TypeError, ValueError, OverflowError):
            pass
        return time.time()


# S3, and Azure with an account's key, reject each request whose time differs by fifteen minutes from their own.
REFUSED_SKEW_SECONDS: Final = 14 * 60.0


def skew_of(date: str | None) -> float | None:
    """Return by how many seconds this host's clock is ahead of a response's HTTP date; None without a date."""
    try:
        return None if date is None else time.time() - parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


def is_refused_skew(skew: float | None) -> bool:
    """Return whether a store that checks clocks rejects this difference."""
    return skew is not None and abs(skew) >= REFUSED_SKEW_SECONDS


def set_the_clock(skew: float | None) -> str:
    """Return what to do about a difference between the clocks; None means that its size is unknown."""
    if skew is None:
        return "this host's clock and the store's differ too much: set the clock (NTP)"
    side = "ahead of" if skew > 0 else "behind"
    return f"this host's clock is {abs(skew):.0f} s {side} the store's: set the clock (NTP)"


def without_reason(credentials: str, needed: str, skew: float | None) -> str:
    """Return what to check if a store denies access without a reason.

    Args:
        credentials: a noun for what proves the identity to this store.
        needed: the permission that the operation requires.
        skew: as `skew_of`, of this response.
    """
    clock = "" if skew is not None and not is_refused_skew(skew) else ", set this host's clock (NTP)"
    return f"the store gives no reason: check {credentials}{clock}, and allow this identity {needed}"
