"""Protocol rule 8, 7 to 9, in every order of single operations: a position whose read is deferred."""

import pytest

from tests.lineage.clauses import Property
from tests.lineage.positions import ALL_OF_ROWS, RowClause, RowModel
from tests.lineage.search import search


def test_no_order_of_operations_violates_a_property() -> None:
    """All clauses on, all states."""
    result = search(RowModel())
    assert result.violation is None, f"{result}"
    assert result.complete


@pytest.mark.parametrize("clause", RowClause)
def test_without_a_clause_its_counterexample_is_back(clause: RowClause) -> None:
    """It is the one that the clause's docstring names."""
    result = search(RowModel(ALL_OF_ROWS - {clause}))
    assert result.violation is not None, f"without {clause.name}: {result}"
    broken: Property = result.violation.broken
    assert f"Without it ({broken.name})" in (clause.__doc__ or ""), f"without {clause.name}: {result}"
