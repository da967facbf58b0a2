"""Why a store refuses a request, in words for an operator: a wrong key, a wrong clock or a missing right.

A store that names the reason is believed. Where it names none (the answer to a HEAD has no body, a proxy answers in the
store's place) the message names all three, less the clock where the answer's own date shows that it is right.
"""

import time
from email.utils import parsedate_to_datetime
from typing import Final

# S3, and Azure with an account's key, refuse each request whose time is fifteen minutes from their own.
REFUSED_SKEW_SECONDS: Final = 14 * 60.0


def skew_of(date: str | None) -> float | None:
    """Return by how many seconds this machine's clock is ahead of an answer's HTTP date; None without a date."""
    try:
        return None if date is None else time.time() - parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


def is_refused_skew(skew: float | None) -> bool:
    """Return whether a store that looks at clocks refuses this difference."""
    return skew is not None and abs(skew) >= REFUSED_SKEW_SECONDS


def set_the_clock(skew: float | None) -> str:
    """Return what to do about a difference between the clocks; None means that its size is not known."""
    if skew is None:
        return "this machine's clock and the store's differ too much: set the clock (NTP)"
    side = "ahead of" if skew > 0 else "behind"
    return f"this machine's clock is {abs(skew):.0f} s {side} the store's: set the clock (NTP)"


def without_reason(credentials: str, needed: str, skew: float | None) -> str:
    """Return what a refusal without a reason may mean, and what to look at.

    Args:
        credentials: what proves the identity to this store: a noun.
        needed: the right that the operation needs.
        skew: as `skew_of`, of this answer.
    """
    clock = "" if skew is not None and not is_refused_skew(skew) else ", set this machine's clock (NTP)"
    return f"the store gives no reason: check {credentials}{clock}, and allow this identity {needed}"
