"""Things measured side by side in one run, and what is said of them.

The machine is noisy, so a figure alone says little: each round measures everything once, in an order that turns from
round to round, and what counts is the median of each round's ratio.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Goal:
    """A figure that was measured, and the bound it is held to.

    Attributes:
        what: is measured.
        found: the figure.
        bound: what it should reach.
        at_least: whether the bound is the least that will do; else it is the most.
        unit: of both.
    """

    what: str
    found: float
    bound: float
    at_least: bool
    unit: str = ""

    @property
    def met(self) -> bool:
        """Whether the figure reaches its bound."""
        return self.found >= self.bound if self.at_least else self.found <= self.bound


def rounds(things: Mapping[str, Callable[[], T]], count: int, warm_up: int = 0) -> dict[str, list[T]]:
    """What each thing gave in each round; the first `warm_up` rounds are run and not kept.

    Every second round goes through the things backwards, so that nothing always follows the same neighbour.
    """
    found: dict[str, list[T]] = {name: [] for name in things}
    for number in range(-warm_up, count):
        names = list(things)
        for name in names if number % 2 == 0 else reversed(names):
            result = things[name]()
            if number >= 0:
                found[name].append(result)
    return found


def median_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """The median of the rounds' ratios."""
    return statistics.median(one / other for one, other in zip(above, below, strict=True))


def quantile(values: Sequence[float], share: float) -> float:
    """The least value that at least `share` of the values (0 to 1) do not exceed.

    Raises:
        ValueError: no values.
    """
    if not values:
        raise ValueError("a quantile of nothing")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns as wide as they need; the first to the left, the others to the right, floats with two decimals."""
    shown = [list(head), *([f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in shown) for column in range(len(head))]
    for row in shown:
        cells = [
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def print_goals(goals: Sequence[Goal]) -> int:
    """A line for each goal; how many were missed."""
    rows = [
        (
            goal.what,
            f"{goal.found:.2f}{goal.unit}",
            f"{'>=' if goal.at_least else '<='} {goal.bound:g}{goal.unit}",
            "met" if goal.met else "MISSED",
        )
        for goal in goals
    ]
    print_table(("goal", "found", "bound", ""), rows)
    return sum(not goal.met for goal in goals)
