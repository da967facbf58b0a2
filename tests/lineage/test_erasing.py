"""The erase rules in every order of single store operations: erasers together with agents, collectors and readers."""

import pytest

from tests.lineage.clauses import ALL, Property
from tests.lineage.erase_rules import ALL_OF_ERASE, EraseRule
from tests.lineage.erasures import DROPPED, ERASURES
from tests.lineage.model import Model
from tests.lineage.search import search

# A run of minutes on this machine may be ten times slower on another.
full = [pytest.mark.full, pytest.mark.timeout(7200)]
# Each needs less than a quarter of a second of a processor, and a clause of `make test` less than a tenth.
SHORT = (
    "erase-list-lost",
    "erase-back",
    "erase-back-older",
    "erase-start-lost-older",
    "erase-forged",
    "erase-gc-older",
)
# In it a violation stays: the documented limit.
LIMIT = "erase-two-lists-lost"
LONG = [name for name in ERASURES if name not in {*SHORT, LIMIT}]
LONGER = {
    EraseRule.BATCH_EPOCH,
    EraseRule.HIGHER_SHOWS,
    EraseRule.EPOCH_STAYS,
    EraseRule.CONTAINS,
    EraseRule.WHERE_NONE,
    EraseRule.COPY_CARRIES,
    EraseRule.LISTS_AGAIN,
    EraseRule.TAKES_IF_THERE,
    EraseRule.LISTED_ETAG,
    EraseRule.DEAD_TAILS,
    EraseRule.GREATEST,
    EraseRule.BELOW_START,
}


@pytest.mark.parametrize("name", [*SHORT, *(pytest.param(name, marks=full) for name in LONG)])
def test_no_order_of_operations_violates_a_property(name: str) -> None:
    """All clauses on, all states of each scenario: the erase rules, and those of commit, `log.start` and retention."""
    result = search(Model(ERASURES[name]))
    assert result.violation is None, f"{name}: {result}"
    assert result.complete


@pytest.mark.parametrize("clause", [pytest.param(each, marks=full if each in LONGER else ()) for each in EraseRule])
def test_without_a_clause_its_counterexample_is_back(clause: EraseRule) -> None:
    """It is the one that the clause's docstring names."""
    result = search(Model(ERASURES[DROPPED[clause]], ALL | ALL_OF_ERASE - {clause}))
    assert result.violation is not None, f"without {clause.name}: {result}"
    broken: Property = result.violation.broken
    assert f"Without it ({broken.name})" in (clause.__doc__ or ""), f"without {clause.name}: {result}"


@pytest.mark.full
def test_a_list_that_is_lost_while_another_eraser_waits_shows_its_records() -> None:
    """The documented limit: the eraser has read `log.start` before the list was named, and lists after its loss."""
    result = search(Model(ERASURES[LIMIT]))
    assert result.violation is not None, result
    assert result.violation.broken == Property.E1, result
    lost = next(at for at, step in enumerate(result.trace) if step.endswith("is LOST"))
    assert any(step.endswith("GET log.start: 0") for step in result.trace[:lost]), result
    assert any("list erased/: none" in step for step in result.trace[lost:]), result
