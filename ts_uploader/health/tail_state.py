"""How a log of the live tail is doing, for operators."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

LATE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class TailState:
    """The state of one log.

    Attributes:
        store: location of its store.
        failing: why the last rounds failed; empty while they succeed.
        failing_seconds: since when.
        denied: why the broker cannot be requested, so that its checkpoints count; empty while it answers.
        partitions: that it ships.
        beginning: of these, those that have not reached their high watermark yet, and whose logs can be read.
        lag_seconds: since when the oldest record is acknowledged that no pack has, of the others; 0 without one. While
            rounds fail, or one hangs, since then: what was acknowledged meanwhile is unknown.
        newest: when the high watermarks of the newest pack were requested, seconds since the epoch; None before it.
        undeleted: why merged packs are not deleted; empty while they are.
        unmerged: why packs are not merged; empty while they are.
    """

    log: str
    store: str
    failing: str = ""
    failing_seconds: float = 0.0
    denied: str = ""
    partitions: int = 0
    beginning: int = 0
    lag_seconds: float = 0.0
    newest: float | None = None
    undeleted: str = ""
    unmerged: str = ""

    @property
    def late(self) -> str | None:
        """Why it is late, one sentence; None if it is not."""
        if self.failing and self.failing_seconds >= LATE_SECONDS:
            return f"each round of log {self.log} fails for {self.failing_seconds:.0f} s: {self.failing}"
        if self.unmerged:
            return f"packs of log {self.log} are not merged, so no index has room for more soon: {self.unmerged}"
        if self.denied:
            return f"the broker's checkpoints count, some five seconds late, because {self.denied}"
        if self.lag_seconds >= LATE_SECONDS:
            return f"the oldest record that no pack of log {self.log} has can be {self.lag_seconds:.0f} s old."
        if self.undeleted:
            return f"merged packs of log {self.log} are not deleted: {self.undeleted}"
        return None


def gauges(states: Iterable[TailState]) -> dict[str, float]:
    """Return the numbers of all logs, by the names of their metrics."""
    all_states = list(states)
    return {
        "tail_lag_seconds": max((state.lag_seconds for state in all_states), default=0.0),
        "tail_beginning_partitions": sum(state.beginning for state in all_states),
        "tail_partitions": sum(state.partitions for state in all_states),
    }
