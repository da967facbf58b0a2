"""Protocol rule 14 in every order of single store operations: a deleted topic, its agents, and its successor."""

import pytest

from tests.lineage.clauses import Property
from tests.lineage.deletion import ALL_OF_14, DELETIONS, Rule14
from tests.lineage.deletion_model import DeletionModel
from tests.lineage.search import search
from tests.matrix import cases

full = pytest.mark.full
SHORT = ("deleted-active", "deleted-unseen", "deleted-no-id", "moved", "moved-continued")


@pytest.mark.parametrize("name", cases(list(DELETIONS), quick=SHORT))
def test_u45_no_order_of_operations_violates_a_property(name: str) -> None:
    """All clauses on, all states of a scenario."""
    result = search(DeletionModel(DELETIONS[name]))
    assert result.violation is None, f"{name}: {result}"
    assert result.complete


# The clause, a scenario, and the property that the scenario violates without it.
DROPPED = (
    (Rule14.HAS_ID, "deleted-no-id", Property.D4),
    (Rule14.DELETED, "moved", Property.D5),
    (Rule14.TWICE, "moved", Property.D5),
    (Rule14.CONTINUED, "moved-continued", Property.D5),
    (Rule14.LATER_COMMIT, "deleted-unseen", Property.D6),
    (Rule14.TOLD, "deleted-unseen", Property.D1),
    (Rule14.OWN_INCARNATION, "deleted-reborn", Property.D2),
    (Rule14.OPENS_FIRST, "deleted-reborn", Property.D4),
    (Rule14.READ_LIVE, "deleted-reborn", Property.D3),
    (Rule14.TWO_INTERVALS, "deleted-early", Property.D3),
    (Rule14.ONE_NAME, "deleted-reborn", Property.D3),
    (Rule14.CUT, "deleted", Property.D3),
    (Rule14.REST, "deleted", Property.D1),
    (Rule14.ONLY_LEADER, "deleted", Property.D5),
    (Rule14.FILLS, "deleted-follower-later", Property.D2),
    (Rule14.BEGINS, "deleted-follower-begins", Property.D2),
    (Rule14.SHORTER, "deleted-follower-shorter", Property.D2),
)
LONG = {Rule14.READ_LIVE, Rule14.TWO_INTERVALS, Rule14.ONE_NAME}


@pytest.mark.parametrize(
    ("clause", "name", "broken"), [pytest.param(*case, marks=full if case[0] in LONG else ()) for case in DROPPED]
)
def test_u45_without_a_clause_its_counterexample_is_back(clause: Rule14, name: str, broken: Property) -> None:
    """One clause dropped, in a scenario that has its counterexample."""
    result = search(DeletionModel(DELETIONS[name], ALL_OF_14 - {clause}))
    assert result.violation is not None, f"{name} without {clause.name}: {result}"
    assert result.violation.broken == broken, f"{name} without {clause.name}: {result}"


def test_u45_each_clause_has_its_counterexample() -> None:
    """No clause is without a test that drops it, and the docstring names the property that it keeps."""
    assert {clause for clause, _, _ in DROPPED} == set(Rule14)
    for clause, _, broken in DROPPED:
        assert f"Without it ({broken.name})" in (clause.__doc__ or "")
