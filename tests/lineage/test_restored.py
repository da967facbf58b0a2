"""Protocol rule 15 and reading rule 9 in every order of single store operations: a restored partition."""

import pytest

from tests.lineage.clauses import Property
from tests.lineage.restored import ALL_OF_15, RestoredModel, Rule15
from tests.lineage.search import search


def test_no_order_of_operations_violates_a_property() -> None:
    """All clauses on, all states."""
    result = search(RestoredModel())
    assert result.violation is None, f"{result}"
    assert result.complete


@pytest.mark.parametrize("clause", Rule15)
def test_without_a_clause_its_counterexample_is_back(clause: Rule15) -> None:
    """It is the one that the clause's docstring names."""
    result = search(RestoredModel(ALL_OF_15 - {clause}))
    assert result.violation is not None, f"without {clause.name}: {result}"
    broken: Property = result.violation.broken
    assert f"Without it ({broken.name})" in (clause.__doc__ or ""), f"without {clause.name}: {result}"
