"""Lost offsets of a query, and the error about them."""

from dataclasses import replace

import pytest

from ts_common.errors import DataLoss
from ts_common.model import TopicPartition
from ts_reader.query.losses import Loss, check_losses
from ts_reader.query.query import Query, Subscription

QUERY = Query("file:///nowhere", "prod", 0, Subscription(("t",)))


def losses(count: int) -> list[Loss]:
    return [Loss(TopicPartition("t", number), 5, 8, "are lost") for number in range(count)]


def test_a_loss_is_a_sentence() -> None:
    """It names the last offset, not the one after it."""
    assert str(*losses(1)) == "t-0: offsets 5 to 7 are lost"


def test_losses_end_a_query_unless_it_allows_them() -> None:
    """The error lists the first twenty, counts the rest, and has the way out."""
    check_losses([], QUERY)
    check_losses(losses(1), replace(QUERY, fail_on_data_loss=False))
    with pytest.raises(DataLoss) as caught:
        check_losses([*losses(22), "a sentence"], QUERY)
    listed = "; ".join(map(str, losses(20)))
    assert str(caught.value) == f"{listed}; and 3 more. {QUERY.wording.despite_loss}"
