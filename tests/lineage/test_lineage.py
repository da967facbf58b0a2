"""Protocol rules 5 and 6, reading rule 1 and remote retention, in every order of single store operations.

The figures behind the names are seconds of a processor; what `make test` runs costs less than 10 of them.
"""

from itertools import combinations, product

import pytest

from tests.lineage.clauses import ALL, Clause, Habit, Property
from tests.lineage.kafka import Epochs, Log, history, shared_end
from tests.lineage.model import Model
from tests.lineage.scenarios import SCENARIOS
from tests.lineage.search import search
from tests.lineage.state import State
from tests.matrix import cases
from ts_common.archive.epoch_history import EpochHistory

# A run of minutes on this machine may be ten times slower on another.
full = [pytest.mark.full, pytest.mark.timeout(7200)]

SHORT = (
    "older-release",  # 0.1
    "older-release-hole",  # 0.1
    "repaired",  # 0.1
    "one-epoch-equal",  # 0.1
    "short-read",  # 0.1
    "overtaken",  # 0.2
    "one-epoch",  # 0.2
    "commit-lost",  # 0.5
    "forged",  # 0.5
    "created-late",  # 0.6
    "rebuilt-late",  # 0.6
    "read",  # 0.5
    "collector-killed",  # 0.5
    "emptied",  # 0.7
    "one-epoch-read",  # 0.9
    "short-clean",  # 1.1
    "short-lossy",  # 2.9
)
# Others of them change nothing until the model or the rules do; `make test-full` searches them.
QUICK = [
    *("older-release", "older-release-hole", "repaired", "one-epoch-equal", "short-read"),
    *("overtaken", "one-epoch", "forged", "collector-killed"),
]
# In them a violation stays: the documented limits.
LIMIT = "limit"
OPEN = ("lost-back", "lost-twice")
LONG = [name for name in SCENARIOS if name not in {*SHORT, *OPEN, LIMIT}]
# What the code does where the rules leave it open.
AS_CODE = frozenset({Habit.ANNOUNCES, Habit.HEEDS_LATER_RECORDS, Habit.HEEDS_ABOVE_HIGHEST})


def assert_holds(name: str, habits: frozenset[Habit] = frozenset()) -> None:
    """Every state of a scenario keeps S1 to S5 and R1 to R3."""
    result = search(Model(SCENARIOS[name], habits=habits))
    assert result.violation is None, f"{name}: {result}"
    assert result.complete, f"{name}: {result}"


@pytest.mark.parametrize("name", cases(SHORT, quick=QUICK))
def test_no_order_of_operations_violates_a_property(name: str) -> None:
    """All clauses on, all states of the short scenarios."""
    assert_holds(name)


@pytest.mark.parametrize("name", [pytest.param(name, marks=full) for name in LONG])
def test_no_order_of_operations_violates_a_property_in_a_long_scenario(name: str) -> None:
    """All clauses on, all states of the others."""
    assert_holds(name)


# Clause, scenario, property, and a part of a step of the shortest trace that the clause forbids.
DROPPED = (
    (Clause.FLOOR_UNKNOWN, "older-release", Property.R3, "a hold begins"),
    (Clause.COPY_FLOOR, "forged", Property.R3, "forged log.start: 1 floor 1"),
    (Clause.INFERRED_UNKNOWN, "older-release-hole", Property.R3, "PUT the copy: 2 floor 2"),
    (Clause.STORE_TIME, "forged", Property.R2, "floor 0, deletes below 1"),
    (Clause.SAME_WRITE, "forged", Property.R2, "forged log.start"),
    (Clause.LOG_START_FIRST, "forged", Property.R2, "PUT the copy: 1 floor 0 since"),
    (Clause.LEFTOVERS_WAIT, "overtaken", Property.R2, "deletes what was left below 1"),
    (Clause.FLOOR_ON_ETAG, "overtaken", Property.R3, "PUT log.start: refused, goes on"),
    (Clause.COPY_BEFORE_FLOOR, "overtaken", Property.R3, "PUT log.start: 1 floor 0 (was lost)"),
    (Clause.SHOW_ON_ETAG, "start-lost-back", Property.S5, "shows from 0"),
    (Clause.LIST_FIRST, "commit-lost", Property.R2, "PUT 0.e1.log (epochs 1"),
    (Clause.REBUILT_GOES_BACK, "lost-read", Property.R3, "offset.wm is LOST"),
    (Clause.EMPTY_GOES_BACK, "trimmed", Property.S3, "PUT log.start: 0 (down, nothing is archived)"),
    (Clause.AGENT_CARRIES_FLOOR, "gap", Property.R3, "agent 2: PUT log.start"),
    (Clause.AGENT_LOWERS_FLOOR, "emptied", Property.R1, "agent 2: PUT log.start: 0 floor 1"),
    (Clause.LATER_LOG_START, "created-late", Property.S4, "agent 1: PUT offset.wm: next 0 epochs none"),
    (Clause.LOG_START_ABOVE_NEXT, "created-late", Property.S2, "agent 1: PUT offset.wm: next 0 epochs none"),
    (Clause.NUMBER_STAYS, "skipped", Property.S2, "agent 2: PUT offset.wm: goes back, next 1"),
    (
        Clause.SAME_LINEAGE,
        "one-epoch-read",
        Property.S1,
        "reader: GET log.start: 1 floor 1 lineage [2,3,3]; begins at 0",
    ),
    (Clause.VARIANT_OF_LINEAGE, "one-epoch", Property.R2, "PUT 0.e2.log (epochs 2): taken, done"),
    (Clause.COPY, "start-lost", Property.R2, "PUT log.start: 0 (was lost)"),
    (Clause.COPY_IS_READ, "start-lost", Property.R2, "collector 1: GET the copy: absent; floor 0, shows from 0"),
    (Clause.COPY_BEFORE_SHOW, "forged-after-a-hold", Property.R2, "is killed"),
    (Clause.HIGHEST_NEXT, "back-empty", Property.R2, "PUT 0.log: taken by equal bytes, done"),
)
LONGER = {Clause.COPY, Clause.COPY_IS_READ, Clause.COPY_BEFORE_SHOW, Clause.HIGHEST_NEXT, Clause.SHOW_ON_ETAG}
# Each of these is needed by variants without a lineage in their names, which earlier releases wrote.
FOR_EARLIER_NAMES = (
    (Clause.PLAN_EPOCH, "short-lossy", Property.R2, "PUT 0.e2.log (epochs 2): taken, done"),
    (Clause.VARIANT_BY_LEADER, "variant-back", Property.R2, "agent 4: PUT 0.e2.log (epochs 2): taken, done"),
)


def assert_broken(dropped: frozenset[Clause], name: str, broken: Property, key_step: str) -> None:
    """A scenario without some clauses violates a property, by a trace with a step."""
    result = search(Model(SCENARIOS[name], ALL - dropped))
    assert result.violation is not None, f"{name} without {dropped}: {result}"
    assert result.violation.broken == broken, f"{name} without {dropped}: {result}"
    assert any(key_step in step for step in result.trace), f"{name} without {dropped}: {result}"


@pytest.mark.parametrize(
    ("clause", "name", "broken", "key_step"),
    [pytest.param(*case, marks=full if case[0] in LONGER else ()) for case in DROPPED],
)
def test_without_a_clause_its_counterexample_is_back(
    clause: Clause, name: str, broken: Property, key_step: str
) -> None:
    """One clause dropped, in a small scenario that has its counterexample."""
    assert_broken(frozenset({clause}), name, broken, key_step)


@pytest.mark.full
@pytest.mark.parametrize(("clause", "name", "broken", "key_step"), FOR_EARLIER_NAMES)
def test_names_without_a_lineage_need_the_epoch_of_their_leader(
    clause: Clause, name: str, broken: Property, key_step: str
) -> None:
    """Where names have no lineage, the search finds nothing with the clause, and its counterexample without it."""
    earlier = search(Model(SCENARIOS[name], ALL - {Clause.VARIANT_OF_LINEAGE}))
    assert earlier.violation is None, f"{name}: {earlier}"
    assert_broken(frozenset({clause, Clause.VARIANT_OF_LINEAGE}), name, broken, key_step)


class StepsOnly(Model):
    """What no single step may do; C6 would end the search before C7."""

    def check(self, state: State) -> None:
        """Check nothing."""


def test_without_its_clause_a_late_agent_lowers_the_lineage_of_log_start() -> None:
    """C7: an agent of epoch 1 writes `log.start` over the one of epoch 3."""
    model = StepsOnly(SCENARIOS["rebuilt-late"], ALL - {Clause.LATER_LOG_START})
    result = search(model)
    assert result.violation is not None, result
    assert result.violation.broken == Property.S5, result


def test_each_clause_has_its_counterexample() -> None:
    """No clause is without a test that drops it, and each is described."""
    assert {case[0] for case in (*DROPPED, *FOR_EARLIER_NAMES)} == set(Clause)
    assert all(clause.__doc__ and "Without it" in clause.__doc__ for clause in Clause)


def test_a_commit_lost_in_one_window_with_two_more_faults_hides_records() -> None:
    """The first documented limit (docs/protocol.md, docs/repair.md): S2, and no record is deleted."""
    result = search(Model(SCENARIOS[LIMIT]))
    assert result.violation is not None, result
    assert result.violation.broken == Property.S2, result
    lost = result.trace.index("offset.wm is LOST")
    window = result.trace[:lost]
    assert any("goes back" in step for step in window), result
    assert window[-1].startswith("collector 0: PUT log.start"), result
    assert result.trace[lost + 1].startswith("agent 1: PUT offset.wm"), result
    assert not any("DELETE" in step for step in result.trace), result


@pytest.mark.full
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", OPEN)
def test_a_commit_lost_during_a_deletion_leaves_a_hole_unless_other_names_do_not_count(name: str) -> None:
    """The second documented limit: the rebuilt run has a name that a deletion of a former lineage removes."""
    result = search(Model(SCENARIOS[name]))
    assert result.violation is not None, result
    assert result.violation.broken == Property.R2, result
    assert "offset.wm is LOST" in result.trace, result
    assert "DELETE 0.log" in str(result.violation), result
    assert_holds(name, frozenset({Habit.COUNTS_OWN_NAMES}))


@pytest.mark.parametrize("name", [pytest.param(name, marks=full) for name in SHORT])
@pytest.mark.parametrize("habits", [AS_CODE, *(frozenset({habit}) for habit in Habit)], ids="+".join)
def test_what_the_rules_leave_open_changes_nothing(name: str, habits: frozenset[Habit]) -> None:
    """Agents may do each of these, or not."""
    assert_holds(name, habits)


def test_the_agents_own_comparison_of_epochs_is_the_models() -> None:
    """`EpochHistory.shared_end` gives the model's D for every pair of short lists that it answers."""
    lists: list[Epochs] = [
        tuple(zip(epochs, starts, strict=True))
        for size in range(4)
        for epochs, starts in product(combinations(range(1, 5), size), combinations(range(4), size))
    ]
    compared = 0
    for run, local, end, log_end in product(lists, lists, range(1, 5), range(1, 5)):
        if not run or not local or run[-1][0] > local[-1][0] or run[-1][1] >= end or local[-1][1] > log_end:
            continue  # a run that no leader of this log can find, which the agent refuses; starts beyond an end
        log = Log(0, (0,), (0,) * log_end, local)
        assert shared_end(run, end, log) == EpochHistory(run).shared_end(end, EpochHistory(local), log_end), (
            run,
            end,
            log,
        )
        compared += 1
    assert compared > 10_000


def test_a_follower_takes_over_the_leaders_line() -> None:
    """Kafka's part of the model: epochs and segments after an unclean election and the old leader's return."""
    *_, last = history("elect=0 segment=1 fetch segment=2 | elect=1 segment=1 record fetch", (2, 1))
    assert last.log == Log(0, (0, 1, 2), (1, 2, 2), ((1, 0), (2, 1)))
    assert last.logs[0] == Log(0, (0, 1), (1, 2, 2), ((1, 0), (2, 1)))
