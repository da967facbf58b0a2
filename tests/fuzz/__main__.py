"""Draw inputs, `python -m tests.fuzz [target ...]`, or run one: `--replay file`. Ends with 1 where an input failed."""

import argparse
import sys
import time
from pathlib import Path

from tests.fuzz.parent import Failure, HarnessError, fuzz, minimise, replay
from tests.fuzz.targets import TARGETS, shared

_FOUND = Path("build/fuzz")


def main() -> int:
    """Run the targets, one after the other; returns the exit code. A target that breaks off shows what it counted."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="target", help=f"of {', '.join(TARGETS)}; all of them otherwise")
    parser.add_argument("--seconds", type=float, default=300.0, help="of running, shared by the targets (default 300)")
    parser.add_argument("--seed", type=int, help="of what is drawn (default: the time)")
    parser.add_argument("--replay", type=Path, action="append", help="run this input of the one target, and no other")
    parser.add_argument("--unguided", action="store_true", help="draw at random, also where atheris could choose")
    given = parser.parse_args()
    names = given.targets or list(TARGETS)
    if unknown := set(names) - TARGETS.keys():
        parser.error(f"no target {', '.join(sorted(unknown))}; known are {', '.join(TARGETS)}")
    if given.replay and len(names) != 1:
        parser.error("--replay takes one target")
    seed = int(time.time()) if given.seed is None else given.seed
    failures: list[Failure] = []
    broken = False
    for name, seconds in shared(given.seconds, names).items():
        try:
            if given.replay:
                outcome = replay(name, given.replay, _FOUND)
            else:
                outcome = fuzz(name, seconds, seed, _FOUND, guide=not given.unguided)
        except HarnessError as error:
            sys.stdout.write(f"{error}\n")
            outcome, broken = error.outcome, True
        sys.stdout.write(f"{outcome.lines()}\n")
        sys.stdout.flush()
        known = [failure for failure in outcome.failures if failure.kind in TARGETS[name].known]
        for failure in known:
            sys.stdout.write(f"    {failure.kind} is known of the library below ({failure.file})\n")
        new = [failure for failure in outcome.failures if failure not in known]
        for failure in new:
            try:
                again = failure.kind in replay(name, [failure.file], _FOUND).kinds
                if again and not given.replay:
                    minimise(failure)
            except HarnessError as error:
                sys.stdout.write(f"{error}\n")
                again, broken = False, True
            _tell(failure, again=again)
        failures += new
    return 1 if failures or broken else 0


def _tell(failure: Failure, *, again: bool) -> None:
    traceback = failure.traceback.rstrip().encode("utf-8", "backslashreplace").decode()
    sys.stdout.write(f"--- {failure.target}: {failure.kind}\n{traceback}\n")
    if not again:
        sys.stdout.write("    (alone the input does not fail in that way: look at what ran before it, by the seed)\n")
    sys.stdout.write(f"    python -m tests.fuzz {failure.target} --replay {failure.file}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
