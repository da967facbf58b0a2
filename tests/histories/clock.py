"""The host's clock in a history: it moves on at each look, and can be set."""

_SECOND = 1_000_000_000


class Clock:
    """Nanoseconds since the epoch."""

    def __init__(self) -> None:
        self._now = 10**18

    def tick(self, seconds: float = 1.0) -> int:
        """The time, after it moved on."""
        self._now += int(seconds * _SECOND)
        return self._now

    def jump(self, seconds: float) -> None:
        """The clock is set, back too."""
        self._now += int(seconds * _SECOND)
