"""`python -m tests.tail [--seeds 0:1000] [--without CLAUSE]`: run histories, and print those that break a rule."""

import argparse
import sys
import time
from collections import Counter

from tests.tail.clauses import ALL_OF_TAIL, TailClause
from tests.tail.world import STEPS, history


def main() -> int:
    """The exit status: 1 if a history broke a rule."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.tail",
        description=__doc__,
        epilog="\n\n".join(f"{clause}: {clause.__doc__}" for clause in TailClause),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", default="0:200", help="from:to")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--without", action="append", default=[], choices=list(TailClause))
    parser.add_argument("--profile", default="", help="even, busy or wild; drawn by default")
    parser.add_argument("--most", type=int, default=3, help="histories that break a rule before it ends")
    arguments = parser.parse_args()
    first, last = map(int, arguments.seeds.split(":"))
    clauses = ALL_OF_TAIL - {clause for clause in TailClause if clause in arguments.without}
    begun, broken, counts, lost = time.process_time(), 0, Counter[str](), 0
    seed = first
    for seed in range(first, last):
        result = history(seed, clauses, arguments.steps, arguments.profile)
        counts += result.counts
        lost += result.has_lost
        if result.broken is not None:
            broken += 1
            sys.stdout.write(f"history {seed}: {result.broken}\n")
            if broken == arguments.most:
                break
    seconds = time.process_time() - begun
    sys.stdout.write(
        f"{seed + 1 - first} histories, {broken} broken, {lost} with lost records, {seconds:.1f} s\n{dict(counts)}\n"
    )
    return min(broken, 1)


if __name__ == "__main__":
    sys.exit(main())
