"""Transactions over several partitions: hidden in all of them, or their producers are named."""

from collections.abc import Iterable

import pytest

from ts_common.log_format.index_files import AbortedTransaction
from ts_common.model import TopicPartition
from ts_reader.query.whole_transactions import Whole, make_whole
from ts_reader.reading.transactions_at import CLOCK_MARGIN_MS, Transaction

NOON = 100_000_000
A, B, C = (TopicPartition("t", number) for number in range(3))
HIDDEN = (AbortedTransaction(7, 10, 19, -1),)


def shown(epoch: int = 3, marker_epoch: int = 4, time: int = NOON) -> Transaction:
    return Transaction(7, epoch, 10, 19, NOON - 50, marker_epoch, time)


def late(epoch: int = 3, marker_epoch: int | None = 4, begun: int = NOON - 40) -> Transaction:
    return Transaction(7, epoch, 30, 39, begun, marker_epoch, None if marker_epoch is None else NOON + 1)


def whole(found: dict[TopicPartition, list[Transaction]], before: dict[TopicPartition, list[Transaction]]) -> Whole:
    def committed(partition: TopicPartition, producers: frozenset[int], since: int) -> Iterable[Transaction]:
        return [
            each
            for each in before.get(partition, [])
            if each.producer_id in producers and each.time is not None and each.time >= since
        ]

    return make_whole({partition: found.get(partition, []) for partition in (A, B, C)}, committed, NOON)


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        (late(), True),
        (late(marker_epoch=None), True),  # its marker is not shipped
        (late(epoch=4, marker_epoch=5), False),  # the next transaction of the producer
        (late(epoch=4, marker_epoch=None), False),
        (late(epoch=3, marker_epoch=3), False),  # before the version was raised
    ],
)
def test_a_unique_producer_epoch_hides_a_transaction_in_all_partitions(other: Transaction, is_same: bool) -> None:
    """No producer is named: it is certain whether the markers are of one transaction."""
    found = whole({B: [other]}, {A: [shown()]})
    assert found.hidden == {A: HIDDEN if is_same else (), B: (), C: ()}
    assert found.warnings == ()


def test_a_producer_without_unique_epochs_is_named_with_its_partitions() -> None:
    """Its records stay: no field shows whether the markers are of one transaction."""
    before = {A: [shown(3, 3)], C: [shown(3, 3)]}
    found = whole({B: [late(3, 3)], C: [late(3, None)]}, before)
    assert not any(found.hidden.values())
    assert found.warnings == (
        "producer 7: one of its transactions can be shown in part: it committed up to the cut in t-0, t-2, and later "
        "or not yet in t-1, t-2",
    )


@pytest.mark.parametrize(
    "other",
    [
        late(4, 4),  # the producer was fenced in between
        late(3, 3, begun=NOON + CLOCK_MARGIN_MS + 1),  # it began after the other one was committed
    ],
)
def test_a_producer_is_not_named_if_the_markers_are_of_different_transactions(other: Transaction) -> None:
    """By their epochs, or by their times."""
    assert whole({B: [other]}, {A: [shown(3, 3)]}).warnings == ()


def test_two_transactions_in_one_partition_are_whole_there() -> None:
    """The other producers of a partition do not matter."""
    assert whole({A: [late(3, 3)]}, {A: [shown(3, 3)]}).warnings == ()
    other = Transaction(8, 3, 5, 6, NOON, 3, NOON)
    assert whole({A: [late(3, 3)]}, {B: [other]}).warnings == ()
    assert whole({A: [late(3, 3)], B: [late(4, 4)]}, {A: [shown(3, 3)]}).warnings == ()


def test_many_producers_are_named_in_one_sentence_after_the_first_ones() -> None:
    """So that a warning stays readable."""
    partitions = (A,), (B,)
    found = Whole({}, dict.fromkeys(range(22), partitions)).warnings
    assert len(found) == 21
    assert found[-1] == "producers 20, 21: transactions of these can be shown in part too"
