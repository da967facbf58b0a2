"""The tail rules and reading rule 11 in random and directed histories."""

from collections.abc import Callable
from functools import cache

import pytest

from tests.tail.clauses import ALL_OF_TAIL, TailClause
from tests.tail.directed import DIRECTED
from tests.tail.reading import Broken
from tests.tail.world import STEPS, Result, history

# By clause, a history that breaks a rule without it, an early one; those of `DIRECTED` have histories of their own.
_BROKEN_BY = {
    TailClause.OWN: 9,
    TailClause.BOUND: 1,
    TailClause.STABLE: 0,
    TailClause.CONTINUES: 12,
    TailClause.REREAD: 108,
    TailClause.FREE: 1,
    TailClause.ORDER: 0,
    TailClause.FRESH: 110,
    TailClause.NAMED: 361,
    TailClause.AHEAD: 16,
    TailClause.CARRY: 0,
    TailClause.GRACE: 97,
    TailClause.NOT_LED: 0,
    TailClause.KEPT: 1,
    TailClause.DELETED_LATER: 64,
    TailClause.COMMIT_FIRST: 4,
    TailClause.CHAIN: 71,
    TailClause.LIVE: 16,
    TailClause.FROM_NEXT: 35,
    TailClause.WHOLE: 19,
    TailClause.ABORTED: 0,
    TailClause.POSITION: 44,
    TailClause.SETTLED: 55,
}
_EITHER = frozenset({TailClause.KNOWN, TailClause.LISTED}), 3595  # each closes the counterexample of both
_BY_NAME = {each.__name__: (dropped, each) for dropped, each in DIRECTED.items()}


def test_no_history_breaks_a_rule() -> None:
    """All clauses on: views are the leader's log below its high watermark, and complete at the end."""
    _assert_holds(range(15))


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_no_history_of_many_more_breaks_a_rule() -> None:
    """As above; a tenth of them is longer."""
    _assert_holds(range(15, 10_000))
    _assert_holds(range(10_000, 11_000), 9000)


def _assert_holds(seeds: range, steps: int = STEPS) -> None:
    for seed in seeds:
        result = _with_all_clauses(seed, steps)
        assert result.broken is None, f"history {seed}: {result.broken}"


@cache  # several clauses have their counterexample in the same history
def _with_all_clauses(seed: int, steps: int = STEPS) -> Result:
    return history(seed, steps=steps)


@pytest.mark.parametrize("clause", _BROKEN_BY)
def test_without_a_clause_its_counterexample_is_back(clause: TailClause) -> None:
    """It is a history that breaks no rule with the clause."""
    seed = _BROKEN_BY[clause]
    assert _with_all_clauses(seed).broken is None
    assert history(seed, ALL_OF_TAIL - {clause}).broken is not None


def test_either_of_two_clauses_closes_a_counterexample() -> None:
    """Agents name no leadership, and readers use none, where the leader's list is silent."""
    both, seed = _EITHER
    assert history(seed, ALL_OF_TAIL - both).broken is not None
    for kept in both:
        assert history(seed, ALL_OF_TAIL - both | {kept}).broken is None


@pytest.mark.parametrize("name", _BY_NAME)
def test_a_directed_history_breaks_a_rule_without_its_clauses_only(name: str) -> None:
    """Any clause suffices where several close one counterexample."""
    dropped, directed = _BY_NAME[name]
    _assert_directed(directed, ALL_OF_TAIL)
    for kept in dropped if len(dropped) > 1 else ():
        _assert_directed(directed, ALL_OF_TAIL - dropped | {kept})
    with pytest.raises(Broken):
        directed(ALL_OF_TAIL - dropped)


def _assert_directed(directed: Callable[[frozenset[TailClause]], None], clauses: frozenset[TailClause]) -> None:
    try:
        directed(clauses)
    except Broken as error:
        pytest.fail(f"{error}")


def test_each_clause_has_its_counterexample() -> None:
    """A clause that is added needs one."""
    assert {*_BROKEN_BY, *_EITHER[0], *(clause for dropped in DIRECTED for clause in dropped)} == ALL_OF_TAIL
