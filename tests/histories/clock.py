"""The host's clocks in a history: each read advances both; the wall clock can be set."""

_SECOND = 1_000_000_000


class Clock:
    """Two clocks, in nanoseconds."""

    def __init__(self) -> None:
        self._monotonic = 0
        self._ahead = 10**18

    def tick(self, seconds: float = 1.0) -> int:
        """Advance both clocks, and return the monotonic one."""
        self._monotonic += int(seconds * _SECOND)
        return self._monotonic

    def wall(self, seconds: float = 1.0) -> int:
        """Advance both clocks, and return nanoseconds since the epoch."""
        return self.tick(seconds) + self._ahead

    def true(self, seconds: float = 1.0) -> int:
        """Return nanoseconds since the epoch by a clock that is never set."""
        return self.tick(seconds) + 10**18

    def jump(self, seconds: float) -> None:
        """Set the wall clock, backwards too."""
        self._ahead += int(seconds * _SECOND)
