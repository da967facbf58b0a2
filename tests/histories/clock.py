"""The host's clocks in a history: both move on at each look; that of the wall can be set."""

_SECOND = 1_000_000_000


class Clock:
    """Nanoseconds."""

    def __init__(self) -> None:
        self._monotonic = 0
        self._ahead = 10**18

    def tick(self, seconds: float = 1.0) -> int:
        """The monotonic clock, after it moved on."""
        self._monotonic += int(seconds * _SECOND)
        return self._monotonic

    def wall(self, seconds: float = 1.0) -> int:
        """Nanoseconds since the epoch, after both moved on."""
        return self.tick(seconds) + self._ahead

    def true(self, seconds: float = 1.0) -> int:
        """Nanoseconds since the epoch by a clock that nobody set."""
        return self.tick(seconds) + 10**18

    def jump(self, seconds: float) -> None:
        """The clock of the wall is set, back too."""
        self._ahead += int(seconds * _SECOND)
