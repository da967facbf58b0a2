"""Transactions over several partitions in a cut: whole, or named.

The leader of each partition writes the marker by its own clock, and can be away meanwhile. So a transaction can have
markers on both sides of a moment. With `transaction.version` 2 (KIP-890) the producer epoch rises with each
transaction: producer id and epoch then name one, and a cut hides it in all partitions if one of its markers is later.
Before that version no field of a batch shows which markers belong together. Such producers are named, if by their times
the two can be of one transaction.

Source: Kafka's `TransactionMetadata.prepareAbortOrCommit`. The marker has the raised epoch, the records have the one
before it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ts_common.log_format.index_files import AbortedTransaction
from ts_common.model import TopicPartition
from ts_reader.reading.transactions_at import CLOCK_MARGIN_MS, Transaction, spans_of

_LONGEST_MS: Final = (
    24 * 3_600_000
)  # from a transaction's first commit marker to its last; longer ones are not searched
_MAX_NAMED: Final = 20

# Returns a partition's transactions of some producers with a commit marker between a time and the moment.
Committed = Callable[[TopicPartition, frozenset[int], int], Iterable[Transaction]]


@dataclass(frozen=True, slots=True)
class Whole:
    """What makes a cut whole across partitions.

    Attributes:
        hidden: by partition, the transactions that are hidden because they are later elsewhere.
        in_part: by producer id, the partitions with a commit up to the moment, and those with a later one or none.
    """

    hidden: Mapping[TopicPartition, tuple[AbortedTransaction, ...]]
    in_part: Mapping[int, tuple[tuple[TopicPartition, ...], tuple[TopicPartition, ...]]]

    @property
    def warnings(self) -> tuple[str, ...]:
        """One sentence for each producer whose transactions can be shown in part; for many, one for the rest."""
        named = sorted(self.in_part.items())
        sentences = [
            f"producer {producer_id}: one of its transactions can be shown in part: it committed up to the cut in "
            f"{_list(shown)}, and later or not yet in {_list(later)}"
            for producer_id, (shown, later) in named[:_MAX_NAMED]
        ]
        if len(named) > _MAX_NAMED:
            rest = ", ".join(str(producer_id) for producer_id, _ in named[_MAX_NAMED:])
            sentences.append(f"producers {rest}: transactions of these can be shown in part too")
        return tuple(sentences)


def make_whole(late: Mapping[TopicPartition, Sequence[Transaction]], committed: Committed, moment: int) -> Whole:
    """Return what to hide, and whom to name, so that a cut shows transactions whole or names their producers.

    Args:
        late: by partition, the transactions with a marker later than the moment, and the open ones.
        committed: finds those with an earlier marker.
        moment: ms since the epoch.

    Raises:
        what `committed` raises.
    """
    partitions_of: dict[int, set[TopicPartition]] = {}
    by_epoch: dict[tuple[int, int], list[tuple[TopicPartition, Transaction]]] = {}
    for partition, transactions in late.items():
        for each in transactions:
            partitions_of.setdefault(each.producer_id, set()).add(partition)
            by_epoch.setdefault(_named(each), []).append((partition, each))
    longest = moment - _LONGEST_MS
    begins = (_not_before(each, longest) for transactions in late.values() for each in transactions)
    since = max(min(begins, default=moment) - CLOCK_MARGIN_MS, longest)
    hidden: dict[TopicPartition, tuple[AbortedTransaction, ...]] = {}
    in_part: dict[int, tuple[set[TopicPartition], set[TopicPartition]]] = {}
    for partition in late:
        elsewhere = frozenset(producer_id for producer_id, found in partitions_of.items() if found - {partition})
        split = []
        for transaction in committed(partition, elsewhere, since) if elsewhere else ():
            others = [pair for pair in by_epoch.get(_named(transaction), ()) if pair[0] != partition]
            if any(_is_same(transaction, other) for _, other in others):
                split.append(transaction)
            elif later := {where for where, other in others if _may_be_same(transaction, other)}:
                shown, unshown = in_part.setdefault(transaction.producer_id, (set(), set()))
                shown.add(partition)
                unshown |= later
        hidden[partition] = spans_of(split)
    return Whole(hidden, {name: (tuple(sorted(a)), tuple(sorted(b))) for name, (a, b) in in_part.items()})


def _not_before(late: Transaction, longest: int) -> int:
    """Return a time before a late transaction's first marker; the times of records bound no transaction for certain."""
    if late.is_certain:
        return longest if late.not_before is None else late.not_before
    return late.begun


def _named(transaction: Transaction) -> tuple[int, int]:
    return transaction.producer_id, transaction.epoch


def _is_same(shown: Transaction, late: Transaction) -> bool:
    """Return whether two markers are certainly of one transaction; an open one has no marker yet."""
    if late.marker_epoch is None:
        return shown.is_unique and shown.epoch == late.epoch
    return shown.is_unique and (shown.epoch, shown.marker_epoch) == (late.epoch, late.marker_epoch)


def _may_be_same(shown: Transaction, late: Transaction) -> bool:
    """Return whether two markers may be of one transaction of a version that does not raise the epoch."""
    if shown.is_unique or late.is_unique or shown.epoch != late.epoch:
        return False
    return shown.time is not None and shown.time >= late.begun - CLOCK_MARGIN_MS


def _list(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))
