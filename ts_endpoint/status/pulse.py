"""Whether the event loop still runs: a timer sets the time, and the thread of the pages reads its age."""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Final

BEAT_SECONDS: Final = 0.5


class Pulse:
    """The age of the last beat of an event loop.

    Args:
        clock: seconds, monotonic.
        beat_seconds: between two beats.
        on_beat: called on the loop at each beat.
    """

    def __init__(
        self,
        clock: Callable[[], float] = monotonic,
        beat_seconds: float = BEAT_SECONDS,
        on_beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock
        self._beat_seconds = beat_seconds
        self._on_beat = on_beat
        self._last = clock()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def age(self) -> float:
        """Seconds since the last beat; on any thread."""
        return self._clock() - self._last

    def start(self) -> None:
        """Beat on the running loop until `stop`."""
        self._last = self._clock()
        self._on_beat()
        self._timer = asyncio.get_running_loop().call_later(self._beat_seconds, self.start)

    def stop(self) -> None:
        """Beat no more."""
        if self._timer is not None:
            self._timer.cancel()
