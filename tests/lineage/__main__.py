"""`python -m tests.lineage [scenario ..] [--without CLAUSE]`: print the shortest trace of a violation."""

import argparse
import sys
import time

from tests.lineage.clauses import ALL, Clause, Habit
from tests.lineage.model import Model
from tests.lineage.scenarios import SCENARIOS
from tests.lineage.search import search


def main() -> int:
    """The exit status: 1 if a property is violated."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.lineage",
        description=__doc__,
        epilog="\n\n".join(f"{clause.name}: {clause.__doc__}" for clause in Clause),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenarios", nargs="*", metavar="scenario", help=f"all, or of: {' '.join(SCENARIOS)}")
    parser.add_argument("--without", action="append", default=[], choices=[clause.name for clause in Clause])
    parser.add_argument("--habit", action="append", default=[], choices=[habit.name for habit in Habit])
    parser.add_argument("--limit", type=int, help="end a search at so many states")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.scenarios if name not in SCENARIOS]
    if unknown:
        parser.error(f"no such scenario: {' '.join(unknown)}")
    clauses = ALL - {Clause[name] for name in arguments.without}
    habits = frozenset(Habit[name] for name in arguments.habit)
    violated = False
    for name in arguments.scenarios or SCENARIOS:
        begun = time.process_time()
        result = search(Model(SCENARIOS[name], clauses, habits), arguments.limit)
        print(f"{name}: {result}\n    ({time.process_time() - begun:.1f} s)", flush=True)  # noqa: T201
        violated |= result.violation is not None
    return violated


if __name__ == "__main__":
    sys.exit(main())
