"""`python -m tests.lineage [scenario ..] [--without CLAUSE]`: print the shortest trace of a violation."""

import argparse
import sys
import time

from tests.lineage.clauses import ALL, Clause, Habit
from tests.lineage.deletion import ALL_OF_14, DELETIONS, Rule14
from tests.lineage.deletion_model import DeletionModel
from tests.lineage.model import Model
from tests.lineage.scenarios import SCENARIOS
from tests.lineage.search import search


def main() -> int:
    """The exit status: 1 if a property is violated."""
    names = [*SCENARIOS, *DELETIONS]
    parser = argparse.ArgumentParser(
        prog="python -m tests.lineage",
        description=__doc__,
        epilog="\n\n".join(f"{clause.name}: {clause.__doc__}" for clause in (*Clause, *Rule14)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenarios", nargs="*", metavar="scenario", help=f"all, or of: {' '.join(names)}")
    parser.add_argument("--without", action="append", default=[], choices=[*Clause.__members__, *Rule14.__members__])
    parser.add_argument("--habit", action="append", default=[], choices=[habit.name for habit in Habit])
    parser.add_argument("--limit", type=int, help="end a search at so many states")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.scenarios if name not in names]
    if unknown:
        parser.error(f"no such scenario: {' '.join(unknown)}")
    clauses = ALL - {clause for clause in Clause if clause.name in arguments.without}
    of_14 = ALL_OF_14 - {clause for clause in Rule14 if clause.name in arguments.without}
    habits = frozenset(Habit[name] for name in arguments.habit)
    violated = False
    for name in arguments.scenarios or names:
        begun = time.process_time()
        if name in DELETIONS:
            result = search(DeletionModel(DELETIONS[name], of_14), arguments.limit)
        else:
            result = search(Model(SCENARIOS[name], clauses, habits), arguments.limit)
        print(f"{name}: {result}\n    ({time.process_time() - begun:.1f} s)", flush=True)  # noqa: T201
        violated |= result.violation is not None
    return violated


if __name__ == "__main__":
    sys.exit(main())
