from typing import Any

import pytest

from ts_common.archive.lineage import Lineage, epoch_of


def test_a_lineage_is_a_list_of_three_numbers() -> None:
    """The JSON form is `[epoch, begin, highest]`."""
    lineage = Lineage(5, 100, 250)
    assert lineage.encode() == [5, 100, 250]
    assert Lineage.decode([5, 100, 250]) == lineage


@pytest.mark.parametrize("fields", [None, [], [5, 100], [5, 100, 250, 1], [-1, 100, 250], ["5", 100, 250], {"a": 1}])
def test_any_other_value_is_rejected(fields: Any) -> None:
    """A lineage with a missing, negative or textual part is no lineage."""
    with pytest.raises(ValueError, match=r"list of three|whole number"):
        Lineage.decode(fields)


def test_no_lineage_is_older_than_each_lineage() -> None:
    """Lineages are ordered by the epoch of the agent whose commit went back."""
    assert epoch_of(None) < epoch_of(Lineage(0, 0, 0)) < epoch_of(Lineage(1, 0, 0))
