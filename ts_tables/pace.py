"""The pace of a run that has a rate, as the backfill of a generation."""

import time


class Pace:
    """Waits so that a run reads no more than its rate.

    Args:
        rate: bytes of segments in a second.
    """

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._until = time.monotonic()

    def wait(self, read: int) -> None:
        """Wait until so many bytes may have been read since the last call.

        Args:
            read: bytes of segments.
        """
        self._until += read / self._rate
        now = time.monotonic()
        if self._until > now:
            time.sleep(self._until - now)
        self._until = max(self._until, now)
