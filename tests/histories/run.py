"""Run histories: `python -m tests.histories.run --seed 7 --histories 500`; a failing one is minimised and printed."""

import argparse
import logging
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from tests.histories.draws import Flavour, Step, draw
from tests.histories.world import World

STEPS = 70


@dataclass(frozen=True)
class Failure:
    """A history that broke a rule.

    Attributes:
        seed: of the history.
        steps: those that remain.
        error: of the history.
        notes: the events.
        calm: as in `run`.
    """

    seed: int
    steps: tuple[Step, ...]
    error: BaseException
    notes: tuple[str, ...]
    calm: bool = False

    def __str__(self) -> str:
        where = traceback.extract_tb(self.error.__traceback__)
        own = [frame for frame in where if "histories" in frame.filename or "ts_" in frame.filename][-3:]
        lines = [
            f"history {self.seed}: {type(self.error).__name__}: {self.error}",
            *(f"  at {frame.filename}:{frame.lineno} {frame.name}" for frame in own),
            f"{Flavour.of(self.seed)}",
            f"{len(self.steps)} steps: {' / '.join(step.act for step in self.steps)}",
            *self.notes,
        ]
        return "\n".join(lines)


def run(seed: int, steps: Sequence[Step], *, calm: bool = False) -> Failure | None:
    """Run one history; return its failure, None if it passes.

    Args:
        seed: draws its flavour.
        steps: of the history.
        calm: no election loses records, whatever the flavour.
    """
    world = World(replace(Flavour.of(seed), lossy=False) if calm else Flavour.of(seed))
    try:
        with world.open():
            for step in steps:
                world.note(f"-- {step.act}")
                world.take(step)
    except Exception as error:  # noqa: BLE001  (whatever a history raises is a failure of it)
        return Failure(seed, tuple(steps), error, tuple(world.notes), calm)
    return None


def shrink(failure: Failure, seconds: float) -> Failure:
    """Return the failure with fewer steps, as far as the time allows; it has the same kind of error."""
    until = time.monotonic() + seconds
    size = max(1, len(failure.steps) // 2)
    while size:
        position = 0
        while position < len(failure.steps) and time.monotonic() < until:
            fewer = failure.steps[:position] + failure.steps[position + size :]
            found = run(failure.seed, fewer, calm=failure.calm)
            if found is not None and kind_of(found.error) == kind_of(failure.error):
                failure = found
            else:
                position += size
        size = 0 if time.monotonic() >= until else size // 2
    return failure


def kind_of(error: BaseException) -> str:
    """Return what two failures have in common: the text without its numbers."""
    return type(error).__name__ + "".join(letter for letter in str(error)[:60] if letter.isalpha())


def silence() -> None:
    """Suppress the log lines of the agents."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def _tell(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--histories", type=int, default=1_000_000_000)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--shrink", type=float, default=20.0, help="seconds for each failing history")
    parser.add_argument("--most", type=int, default=1, help="failures of different kinds before it ends")
    parser.add_argument("--calm", action="store_true", help="no election loses records")
    options = parser.parse_args()
    silence()
    began, count = time.monotonic(), 0
    kinds: dict[str, int] = {}
    for seed in range(options.seed, options.seed + options.histories):
        if time.monotonic() - began > options.seconds:
            break
        count += 1
        failure = run(seed, draw(seed, options.steps, calm=options.calm), calm=options.calm)
        if failure is None:
            continue
        kind = kind_of(failure.error)
        kinds[kind] = kinds.get(kind, 0) + 1
        if kinds[kind] == 1:
            _tell(str(shrink(failure, options.shrink)))
        if len(kinds) >= options.most:
            break
    _tell(f"{count} histories from {options.seed} in {time.monotonic() - began:.0f} s; failures: {kinds}")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
