"""`python -m dev.bench.against OLD NAME...`: compare the figures of another checkout with this one's.

Each benchmark runs in both checkouts, alternating, `--rounds` times, each in its own environment and with its own code:
run `make test-parts` in OLD first. The command compares the medians of all figures that have a goal. It exits with 1 if
one is worse by more than `--percent`. Benchmarks of `--print-only` are printed only.
"""

import argparse
import math
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dev.bench.measuring.pairs import print_table, rounds

_GOAL = re.compile(
    r"^(?P<what>.+?)  +(?P<found>[0-9.]+)(?P<unit>[^<>\n]*?)  +(?P<bound>[<>]=) .*(?:met|MISSED)$", re.MULTILINE
)
_HERE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Figure:
    """A figure with a goal.

    Attributes:
        at_least: whether more is better.
    """

    found: float
    at_least: bool
    unit: str


def figures(printed: str) -> dict[str, Figure]:
    """Parse the table that `dev.bench.measuring.pairs.print_goals` prints, by name.

    Raises:
        ValueError: the text contains no such table.
    """
    found = {
        match["what"]: Figure(float(match["found"]), match["bound"] == ">=", match["unit"].strip())
        for match in _GOAL.finditer(printed)
    }
    if not found:
        raise ValueError(f"no table of goals in: {printed[-2000:]}")
    return found


def measure(checkout: Path, name: str) -> dict[str, Figure]:
    """Return the figures of one run in a checkout; its output is printed to standard error.

    Raises:
        subprocess.CalledProcessError: the benchmark failed.
        ValueError: it printed no figures.
    """
    room = "dev.bench" if (checkout / "dev" / "bench").is_dir() else "bench"  # its name before `dev/` was made
    command = [str(checkout / ".venv/bin/python"), "-m", *f"{room}.{name}".split(), "--no-gate"]
    ended = subprocess.run(command, cwd=checkout, stdout=subprocess.PIPE, text=True, check=True)
    print(f"--- {name} in {checkout}\n{ended.stdout}", file=sys.stderr, flush=True)
    return figures(ended.stdout)


def compare(old: Path, name: str, count: int) -> list[tuple[str, float, float, float, str]]:
    """Return (figure, the other checkout's, this one's, ratio of worse to better, unit) of one benchmark."""
    found = rounds({"old": lambda: measure(old, name), "new": lambda: measure(_HERE, name)}, count)
    rows = []
    for what, figure in found["new"][0].items():
        if what not in found["old"][0]:  # the other checkout does not measure it
            continue
        before, now = (statistics.median(each[what].found for each in found[side]) for side in ("old", "new"))
        good, bad = (now, before) if figure.at_least else (before, now)
        worse = 1.0 if good == bad else bad / good if good else math.inf  # an error of 0.00 may be compared too
        rows.append((f"{name}: {what}", before, now, worse, figure.unit))
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the checkouts; return 1 if a figure is worse."""
    parser = argparse.ArgumentParser(prog="python -m dev.bench.against", description=__doc__)
    parser.add_argument("old", type=Path, help="the other checkout")
    parser.add_argument("names", nargs="+", help='benchmarks, with their options: shipping, "takeover --mode kraft"')
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--percent", type=float, default=5.0, help="percentage that a figure may be worse")
    parser.add_argument("--print-only", nargs="*", default=[], metavar="NAME", help="benchmarks that may be worse")
    options = parser.parse_args(arguments)
    rows = [row for name in options.names for row in compare(options.old.resolve(), name, options.rounds)]
    allowed = 1 + options.percent / 100
    missed = 0
    shown = []
    for what, before, now, worse, unit in rows:
        verdict = "printed" if what.partition(":")[0] in options.print_only else "ok" if worse <= allowed else "WORSE"
        missed += verdict == "WORSE"
        shown.append((what, f"{before:.2f} {unit}".strip(), f"{now:.2f} {unit}".strip(), worse, verdict))
    print_table(("figure", "old", "new", "times as bad", ""), shown)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
