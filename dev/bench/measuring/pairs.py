"""Measures things in one run, and prints their ratios and goals.

The machine is noisy, so a single figure has little meaning. Each round measures everything once, in alternating order,
and the result is the median of the rounds' ratios.
"""

import argparse
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Goal:
    """A figure and its bound.

    Attributes:
        what: the name of the figure.
        at_least: whether the bound is a minimum; otherwise it is a maximum.
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
    """Return the results of each thing in each round; the first `warm_up` rounds are dropped.

    Every second round runs the things in reverse order, so that none always follows the same one.
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
    """Return the median of the rounds' ratios."""
    return statistics.median(one / other for one, other in zip(above, below, strict=True))


def quantile(values: Sequence[float], share: float) -> float:
    """Return the least value that at least `share` of the values (0 to 1) do not exceed.

    Raises:
        ValueError: no values.
    """
    if not values:
        raise ValueError("a quantile of nothing")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print columns: the first left-aligned, the others right-aligned, floats with two decimals."""
    shown = [list(head), *([f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in shown) for column in range(len(head))]
    for row in shown:
        cells = [
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def print_goals(goals: Sequence[Goal]) -> int:
    """Print a line for each goal; return how many were missed."""
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


def gate_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the option that all benchmarks have, `--no-gate`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--no-gate", action="store_true", help="exit with 0 even if a goal is missed")
    return parser


def exit_code(missed: int, options: argparse.Namespace) -> int:
    """Return 1 if goals were missed, unless `--no-gate` is set."""
    return 1 if missed and not options.no_gate else 0
