"""`python -m tests.lineage [scenario ..] [--without CLAUSE]`: print the shortest trace of a violation."""

import argparse
import sys
import time

from tests.lineage.clauses import ALL, Clause, Habit
from tests.lineage.deletion import ALL_OF_14, DELETIONS, Rule14
from tests.lineage.deletion_model import DeletionModel
from tests.lineage.erase_rules import ALL_OF_ERASE, EraseRule
from tests.lineage.erasures import ERASURES
from tests.lineage.model import Model
from tests.lineage.scenarios import SCENARIOS
from tests.lineage.search import search


def main() -> int:
    """The exit status: 1 if a property is violated."""
    scenarios = SCENARIOS | ERASURES
    names = [*scenarios, *DELETIONS]
    dropped = {clause.name: clause for clause in (*Clause, *EraseRule, *Rule14)}
    parser = argparse.ArgumentParser(
        prog="python -m tests.lineage",
        description=__doc__,
        epilog="\n\n".join(f"{clause.name}: {clause.__doc__}" for clause in dropped.values()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenarios", nargs="*", metavar="scenario", help=f"all, or of: {' '.join(names)}")
    parser.add_argument("--without", action="append", default=[], choices=[*dropped])
    parser.add_argument("--habit", action="append", default=[], choices=[habit.name for habit in Habit])
    parser.add_argument("--limit", type=int, help="end a search at so many states")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.scenarios if name not in names]
    if unknown:
        parser.error(f"no such scenario: {' '.join(unknown)}")
    without = {dropped[name] for name in arguments.without}
    clauses, of_14 = (ALL | ALL_OF_ERASE) - without, ALL_OF_14 - without
    habits = frozenset(Habit[name] for name in arguments.habit)
    violated = False
    for name in arguments.scenarios or names:
        begun = time.process_time()
        if name in DELETIONS:
            result = search(DeletionModel(DELETIONS[name], of_14), arguments.limit)
        else:
            result = search(Model(scenarios[name], clauses, habits), arguments.limit)
        print(f"{name}: {result}\n    ({time.process_time() - begun:.1f} s)", flush=True)  # noqa: T201
        violated |= result.violation is not None
    return violated


if __name__ == "__main__":
    sys.exit(main())
