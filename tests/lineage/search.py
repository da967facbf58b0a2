"""Breadth first search of all states, so that the trace of a violation is a shortest one.

A state is kept as one number: the numbers of its fields, each different value of a field kept once.
"""

from array import array
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, Protocol, TypeVar

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


S = TypeVar("S", bound=tuple[Hashable, ...])


class Searched(Protocol[S]):
    """A model."""

    def start(self) -> S:
        """Return the first state."""

    def following(self, state: S) -> Iterator[tuple[str, S]]:
        """Yield each step that is possible, and where it leads; raise a violation by a step."""

    def check(self, state: S) -> None:
        """Raise a violation of a property by a state."""


class _Packing(Generic[S]):
    """Turns states into numbers and back."""

    BITS = 28

    def __init__(self, first: S) -> None:
        self._of: Callable[..., S] = type(first)
        self._numbers: list[dict[Hashable, int]] = [{} for _ in first]
        self._values: list[list[Hashable]] = [[] for _ in first]

    def pack(self, state: S) -> int:
        """Return the number of a state.

        Raises:
            OverflowError: a field has too many values.
        """
        packed = 0
        for value, numbers, values in zip(state, self._numbers, self._values, strict=True):
            number = numbers.setdefault(value, len(values))
            if number == len(values):
                values.append(value)
            packed = packed << self.BITS | number
        if len(values) >> self.BITS:
            raise OverflowError(f"a field has {len(values)} values")
        return packed

    def unpack(self, packed: int) -> S:
        """Return the state of a number."""
        fields = list[Hashable]()
        for values in reversed(self._values):
            fields.append(values[packed & (1 << self.BITS) - 1])
            packed >>= self.BITS
        return self._of(*reversed(fields))


def search(model: Searched[S], limit: int | None = None) -> Result:
    """All states of a model, or those up to the first violation.

    Args:
        model: what is searched.
        limit: end, incomplete, when more states are found.
    """
    start = model.start()
    packing = _Packing(start)
    states, parents = [packing.pack(start)], array("L", [0])
    found = set(states)
    at = 0
    while at < len(states):
        state = packing.unpack(states[at])
        try:
            model.check(state)
            for _, after in model.following(state):
                packed = packing.pack(after)
                if packed not in found:
                    found.add(packed)
                    states.append(packed)
                    parents.append(at)
        except Violation as violation:
            way = [at]
            while way[-1]:
                way.append(parents[way[-1]])
            trace = _labels(model, [packing.unpack(states[each]) for each in reversed(way)])
            return Result(len(found), violation, trace, complete=False)
        if limit is not None and len(found) > limit:
            return Result(len(found), None, (), complete=False)
        at += 1
    return Result(len(found), None, (), complete=True)


def _labels(model: Searched[S], way: list[S]) -> tuple[str, ...]:
    """Return the label of each step of a way."""
    steps = pairwise(way)
    return tuple(next(label for label, after in model.following(state) if after == then) for state, then in steps)
