"""Mutants of the agent: each breaks one rule, and histories must notice. `make mutants` runs all of them.

A mutant replaces some text in one function of production code, in this process only. If the function no longer has the
text, the mutant is stale, which is an error: a change of the function requires a change of the mutant.
"""

import argparse
import inspect
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType, FunctionType
from typing import Any

from tests.histories.draws import draw
from tests.histories.mutant_list import MUTANTS, Mutant
from tests.histories.run import STEPS, run, silence

SEEDS = (0, 1_000_000, 2_000_000)
HISTORIES = 1_000
_LONGEST_SECONDS = 60.0


class Stale(Exception):
    """The text that a mutant replaces is not in its function."""


@dataclass(frozen=True)
class Fate:
    """The fate of a mutant.

    Attributes:
        mutant: which.
        seed: of the first history.
        killed_by: the history that noticed; None if it survived.
        because: the error of that history.
        seconds: run time.
    """

    mutant: Mutant
    seed: int
    killed_by: int | None
    because: str
    seconds: float


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """Replace the functions inside the block.

    Raises:
        Stale: the function has another text now.
    """
    with ExitStack() as restored:
        for function in {edit.function: None for edit in mutant.edits}:
            restored.callback(setattr, function, "__code__", function.__code__)
            function.__code__ = _mutated(mutant, function)
        yield


def _mutated(mutant: Mutant, function: FunctionType) -> Any:
    source = textwrap.dedent(inspect.getsource(function))
    for edit in mutant.edits:
        if edit.function is function:
            if source.count(edit.old) != 1:
                raise Stale(f"{function.__qualname__} holds {edit.old!r} {source.count(edit.old)} times")
            source = source.replace(edit.old, edit.new)
    made: dict[str, Any] = {}
    exec(compile(source, "<mutant>", "exec"), function.__globals__, made)
    return made[function.__name__].__code__


def try_mutant(mutant: Mutant, seed: int, histories: int) -> Fate:
    """Run histories until one notices. One that also fails without the mutant does not count.

    Raises:
        Stale: as in `applied`.
    """
    began = time.monotonic()
    for number in range(seed, seed + histories):
        with applied(mutant):
            because = _noticed(number)
        if because and not _noticed(number):
            return Fate(mutant, seed, number, because, time.monotonic() - began)
    return Fate(mutant, seed, None, "", time.monotonic() - began)


def _noticed(number: int) -> str:
    """Return the error of a history; empty if it passes."""
    try:
        with _limit(_LONGEST_SECONDS):
            failure = run(number, draw(number, STEPS))
    except _TooLong:
        return "never ends"
    return "" if failure is None else str(failure.error)[:110]


class _TooLong(BaseException):
    """A history does not end."""


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    def end(_: int, __: FrameType | None) -> None:
        raise _TooLong

    before: Any = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _tell(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="names, with commas")
    parser.add_argument("--seeds", type=int, nargs="*", default=SEEDS)
    parser.add_argument("--histories", type=int, default=HISTORIES)
    options = parser.parse_args()
    silence()
    chosen = [mutant for mutant in MUTANTS if not options.only or mutant.name in options.only.split(",")]
    survivors = _run_all(chosen, options.seeds, options.histories, _tell)
    _tell(f"{len(chosen)} mutants, {len(survivors)} survived: {', '.join(sorted(survivors))}")
    return 1 if survivors else 0


def _run_all(chosen: Sequence[Mutant], seeds: Sequence[int], histories: int, tell: Callable[[str], None]) -> set[str]:
    survivors = set()
    for mutant in chosen:
        for seed in seeds:
            try:
                fate = try_mutant(mutant, seed, histories)
            except Stale as stale:
                tell(f"{mutant.name}: STALE: {stale}")
                survivors.add(mutant.name)
                break
            if fate.killed_by is None:
                survivors.add(mutant.name)
                tell(f"{mutant.name}: SURVIVED {histories} histories from {seed} ({fate.seconds:.0f} s): {mutant.does}")
            else:
                count = fate.killed_by - seed + 1
                tell(
                    f"{mutant.name}: killed by the {count}. history from {seed} ({fate.seconds:.0f} s): {fate.because}"
                )
    return survivors


if __name__ == "__main__":
    sys.exit(main())
