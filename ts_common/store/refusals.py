"""Explain to an operator why a store denies a request: a wrong key, a wrong clock or a missing permission.

If the store names the reason, the message has it. Otherwise (a response to HEAD has no body, or a proxy answers) the
message lists all three, without the clock if the date of the response shows that it is right.
"""

import time
from email.utils import parsedate_to_datetime
from typing import Final

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
