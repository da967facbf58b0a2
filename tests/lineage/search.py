"""Breadth first search of all states, so that the trace of a violation is a shortest one."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tests.lineage.clauses import Violation


@dataclass(frozen=True)
class Result:
    """What a search found.

    Attributes:
        states: how many it found.
        violation: None: none up to there.
        trace: the shortest way to the violation, a line a step.
        complete: whether these are all states.
    """

    states: int
    violation: Violation | None
    trace: tuple[str, ...]
    complete: bool

    def __str__(self) -> str:
        if self.violation is None:
            return f"{self.states:,} states, {'all' if self.complete else 'cut off there'}; no violation"
        lines = [
            f"{self.states:,} states; violation of {self.violation}",
            f"({self.violation.broken.value})",
            *self.trace,
        ]
        return "\n    ".join(lines)


S = TypeVar("S")


class Searched(Protocol[S]):
    """A model."""

    def start(self) -> S:
        """Return the first state."""

    def following(self, state: S) -> Iterator[tuple[str, S]]:
        """Yield each step that is possible, and where it leads; raise a violation by a step."""

    def check(self, state: S) -> None:
        """Raise a violation of a property by a state."""


def search(model: Searched[S], limit: int | None = None) -> Result:
    """All states of a model, or those up to the first violation.

    Args:
        model: what is searched.
        limit: end, incomplete, when more states are found.
    """
    start = model.start()
    found_from: dict[S, tuple[S, str] | None] = {start: None}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        try:
            model.check(state)
            for label, after in model.following(state):
                if after not in found_from:
                    found_from[after] = state, label
                    waiting.append(after)
        except Violation as violation:
            return Result(len(found_from), violation, _trace(found_from, state), complete=False)
        if limit is not None and len(found_from) > limit:
            return Result(len(found_from), None, (), complete=False)
    return Result(len(found_from), None, (), complete=True)


def _trace(found_from: dict[S, tuple[S, str] | None], state: S) -> tuple[str, ...]:
    labels = []
    while (step := found_from[state]) is not None:
        state, label = step
        labels.append(label)
    return tuple(reversed(labels))
