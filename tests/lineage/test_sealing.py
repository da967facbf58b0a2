"""Protocol rule 16 and reading rule 10 in every order of single store operations: sealed cache objects."""

import pytest

from tests.lineage.clauses import Property
from tests.lineage.sealing import ALL_OF_16, DROPPED, SCENARIOS, Rule16
from tests.lineage.sealing_model import SealingModel
from tests.lineage.search import search
from tests.matrix import cases

# Two sealers with an election or a repair, and a forgery: half of the time of all scenarios.
LONG = {"forged-repair", "forged-lost", "two"}


@pytest.mark.parametrize("name", cases(SCENARIOS, quick=SCENARIOS.keys() - LONG))
def test_no_order_of_operations_violates_a_property(name: str) -> None:
    """All clauses on, all states of each scenario."""
    result = search(SealingModel(SCENARIOS[name]))
    assert result.violation is None, f"{name}: {result}"
    assert result.complete


@pytest.mark.parametrize("clause", Rule16)
def test_without_a_clause_its_counterexample_is_back(clause: Rule16) -> None:
    """It is the one that the clause's docstring names."""
    result = search(SealingModel(SCENARIOS[DROPPED[clause]], ALL_OF_16 - {clause}))
    assert result.violation is not None, f"without {clause.name}: {result}"
    broken: Property = result.violation.broken
    assert f"Without it ({broken.name})" in (clause.__doc__ or ""), f"without {clause.name}: {result}"
