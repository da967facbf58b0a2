"""A store's clock: as its responses show it, and compared with this host's by the time that it gives an object."""

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
