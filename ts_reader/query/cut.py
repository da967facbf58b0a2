"""A cut: several partitions as of one moment, by the times of records and of commit markers.

It shows the records with a timestamp at or before the moment. Of transactions it shows those whose commit marker has
such a time. `ts_reader.query.read_split` leaves out later records where a split is read. This module has the rest: is
the cut complete, which transactions are hidden, and which can be shown in part.

**Complete.** An agent ships closed segments. Records of the moment can still be in the active segment of a broker, or
wait for their upload. Two facts prove that the store has all records of a partition up to the moment:

1. A shipped record or marker of a segment is later, by `CLOCK_MARGIN_MS` at least. An agent ships a partition in the
   order of offsets, so the records below it are in the store. A segment that was shipped earlier than that proves
   nothing: the clock of a producer was ahead. Entries of a live tail have no such time, so they prove nothing.
2. The word of an agent, in `ends/<broker>.json`: the high watermark of a partition that the broker led, when it wrote a
   checkpoint. The store must have all offsets below it, in segments or in the live tail. The checkpoint must be later
   than the moment by `CLOCK_MARGIN_MS`. If several brokers have such a word, the highest watermark counts.

The margin covers clocks that differ, records on their way from a producer, and records that are not on all replicas
yet. Without it a later commit changed a cut that was proven: records of the moment followed the later one.

No proof excludes a record that a producer sends later with an earlier timestamp. A word has no topic id, so it counts
for the newest incarnation only. An agent of a broker that no controller reaches can name a low watermark; then the word
of the next leader's agent is higher.

**Whole transactions.** The leader of each partition writes the marker by its own clock, and can be away meanwhile. So a
transaction can have markers on both sides of a moment. With `transaction.version` 2 (KIP-890) the producer epoch rises
with each transaction: producer id and epoch then name one, and a cut hides it in all partitions if one of its markers
is later. Before that version no field of a batch shows which markers belong together. Such producers are named, if by
their times the two can be of one transaction.

Source: Kafka's `TransactionMetadata.prepareAbortOrCommit`. The marker has the raised epoch, the records have the one
before it.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

import structlog

from ts_common.archive.catalog import PartitionCatalog
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.high_watermarks import Ends, brokers_with_ends, read_ends
from ts_common.archive.partition_view import PartitionView
from ts_common.errors import CorruptData, NewerFormat, QueryError
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_common.wording import some
from ts_reader.query.bounds import first_offset_of
from ts_reader.query.filters import QueryFilters
from ts_reader.query.query import Cut, Query, Subscription
from ts_reader.query.subscription import find_topics
from ts_reader.query.timestamps import time_text
from ts_reader.reading.incarnation_option import NEWEST
from ts_reader.reading.parallel import in_threads
from ts_reader.reading.topics import Topic
from ts_reader.reading.transactions_at import CLOCK_MARGIN_MS, Transaction, TransactionsAt, spans_of

log = structlog.get_logger("ts_reader")

_MAX_LISTED: Final = 20
# From a transaction's first commit marker to its last. Longer ones are not searched.
_LONGEST_MS: Final = 24 * 3_600_000
_MAX_NAMED: Final = 20

# Returns a partition's transactions of some producers with a commit marker between a time and the moment.
Committed = Callable[[TopicPartition, frozenset[int], int], Iterable[Transaction]]


@dataclass(frozen=True, slots=True)
class CutPlan:
    """What a cut hides, with its warnings.

    Attributes:
        hidden: by partition, the transactions that it does not show, without the aborted ones.
        warnings: one sentence each.
    """

    hidden: Mapping[TopicPartition, tuple[AbortedTransaction, ...]]
    warnings: tuple[str, ...] = ()


NOTHING_HIDDEN: Final = CutPlan({})


def read_all_ends(store: ObjectStore, query: Query) -> tuple[Ends, ...]:
    """Return the ends of all brokers; a damaged object, or one of a later release, is logged and left out.

    Read them before the partitions, so that a topic that is created again in between has no word of its new life.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: from the store.
    """

    def read(broker: int) -> Ends | None:
        try:
            return read_ends(store, query.keys, broker)
        except (CorruptData, NewerFormat) as error:
            log.warning("ends_unusable", key=query.keys.ends_of(broker), reason=str(error))
            return None

    found = in_threads(read, brokers_with_ends(store, query.keys))
    return tuple(ends for ends in found if ends is not None)


def other_catalogs(
    store: ObjectStore, query: Query, cut: Cut, known: Set[TopicPartition]
) -> tuple[tuple[Topic, ...], list[PartitionCatalog]]:
    """Return the topics that a query does not read and whose transactions count in its cut, and their partitions.

    Raises:
        CorruptData: a commit, `log.start` or list of incarnations cannot be parsed.
        StoreUnavailable, AccessDenied, BucketMissing: from the store.
    """
    own = {partition.topic for partition in known}
    topics: list[Topic] = []
    for names, incarnation in (
        ([name for name in cut.topics if name in own and query.subscription.assigned], query.incarnation),
        ([name for name in cut.topics if name not in own], NEWEST),
    ):
        if names:  # a pattern ignores the topics of other locations
            pattern = re.compile(rf"\A(?:{'|'.join(map(re.escape, names))})\Z")
            asked = replace(query, subscription=Subscription(pattern=pattern), incarnation=incarnation)
            topics += find_topics(store, asked)
    return tuple(topics), [each for topic in topics for each in topic.partitions if each.keys.partition not in known]


def plan_cut(
    store: ObjectStore,
    query: Query,
    cut: Cut,
    topics: Iterable[Topic],
    views: Sequence[PartitionView],
    ends: Sequence[Ends],
    filters: QueryFilters,
) -> CutPlan:
    """Return what a cut hides in each partition; check that it is complete.

    Args:
        topics: of the query and of the cut.
        ends: of all brokers, read before the partitions.

    Raises:
        QueryError: nothing proves that all records of a partition up to the moment are shipped, and the cut fails then.
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from reading segments.
    """
    moment = cut.milliseconds
    newest = {topic.name: topic.directory == topic.incarnations.newest_directory for topic in topics}
    shipped = in_threads(
        lambda view: Shipped(
            view.partition, view.end, _is_proven_later(store, view, query, moment), newest[view.partition.topic]
        ),
        views,
        step="completeness",
    )
    known = {view.partition for view in views}
    named = {partition for each in ends for partition in each.partitions}
    if query.subscription.assigned is None:  # an agent can have the word of a partition that the store lacks
        shipped += [
            Shipped(partition, 0, has_later=False)
            for partition in named - known
            if newest.get(partition.topic) and filters.has(partition)
        ]
    lacking = unproven(shipped, ends, moment)
    if lacking and cut.fails_unproven:
        raise QueryError(f"{_unproven_text(lacking, moment)}. {query.wording.despite_unproven}")
    found = in_threads(lambda view: TransactionsAt(store, view, moment), views, step="transactions")
    by_partition = {view.partition: each for view, each in zip(views, found, strict=True)}
    whole = make_whole(
        {partition: each.late for partition, each in by_partition.items()},
        lambda partition, producers, since: by_partition[partition].committed(producers, since),
        moment,
    )
    return CutPlan(
        {partition: (*each.hidden, *whole.hidden[partition]) for partition, each in by_partition.items()},
        (*([_unproven_text(lacking, moment)] if lacking else []), *whole.warnings),
    )


def _is_proven_later(store: ObjectStore, view: PartitionView, query: Query, moment: int) -> bool:
    """Return whether a shipped record of a view proves a moment; read records if metadata does not show it."""
    if view.start == view.end:
        return False
    if metadata_proves_later(view, moment):
        return True
    copies, proof = copies_shipped_after(view, moment), moment + CLOCK_MARGIN_MS
    if not any(_may_reach(copy.metadata.time_max, copy.metadata.records, proof) for copy in copies):
        return False
    closed = replace(view, copies=copies, end=view.closed_end, tail=())
    return first_offset_of(store, closed, proof, query, after_hole=False) is not None


def _may_reach(time_max: int | None, records: int | None, proof: int) -> bool:
    return records is None or (time_max is not None and time_max >= proof)


def _unproven_text(lacking: Sequence[TopicPartition], moment: int) -> str:
    listed = some(sorted(map(str, lacking)), _MAX_LISTED)
    return (
        f"cut at {time_text(moment)}: records up to then can be missing in {listed}: no shipped record is five minutes "
        "later, and no agent's word in ends/ proves that all are shipped; choose an earlier moment, or repeat the "
        "query later"
    )


@dataclass(frozen=True, slots=True)
class Shipped:
    """What the store has of a partition, for the proof.

    Attributes:
        end: the offset after the last.
        has_later: whether a shipped record or marker is later than the moment, by `CLOCK_MARGIN_MS` at least.
        is_newest: whether it is of the topic's newest incarnation.
    """

    partition: TopicPartition
    end: int
    has_later: bool
    is_newest: bool = True


def unproven(shipped: Iterable[Shipped], ends: Sequence[Ends], moment: int) -> tuple[TopicPartition, ...]:
    """Return the partitions for which nothing proves that all records up to a moment are shipped, sorted.

    Args:
        moment: ms since the epoch.
    """
    words: dict[TopicPartition, int] = {}
    for each in ends:
        for partition, end in each.partitions.items():
            if end.time >= moment + CLOCK_MARGIN_MS:
                words[partition] = max(end.high_watermark, words.get(partition, 0))
    lacking = []
    for one in shipped:
        word = words.get(one.partition) if one.is_newest else None
        if not one.has_later and (word is None or word > one.end):
            lacking.append(one.partition)
    return tuple(sorted(lacking))


def metadata_proves_later(view: PartitionView, moment: int) -> bool:
    """Return whether the metadata of segments proves a record or a marker `CLOCK_MARGIN_MS` later than a moment.

    Args:
        moment: ms since the epoch.
    """
    proof = moment + CLOCK_MARGIN_MS
    return any(
        copy.metadata.time_max is not None and copy.metadata.time_max >= proof and _is_all_live(copy, view)
        for copy in copies_shipped_after(view, moment)
    )


def copies_shipped_after(view: PartitionView, moment: int) -> tuple[SegmentCopy, ...]:
    """Return the copies that were not shipped before `CLOCK_MARGIN_MS` after a moment, by the clock of their agent."""
    proof = moment + CLOCK_MARGIN_MS
    return tuple(copy for copy in view.copies if copy.metadata.shipped is None or copy.metadata.shipped >= proof)


def _is_all_live(copy: SegmentCopy, view: PartitionView) -> bool:
    """Return whether all batches of a copy are in the view, so that its greatest timestamp is."""
    is_in_view = view.start <= copy.base and copy.end <= view.closed_end
    return is_in_view and view.live_range(copy) == (copy.base, copy.end)


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
    since = _since(late, moment)
    hidden: dict[TopicPartition, tuple[AbortedTransaction, ...]] = {}
    in_part: dict[int, tuple[set[TopicPartition], set[TopicPartition]]] = {}
    for partition in late:
        elsewhere = _elsewhere(partitions_of, partition)
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


def _elsewhere(partitions_of: Mapping[int, Set[TopicPartition]], partition: TopicPartition) -> frozenset[int]:
    """Return the producers with late transactions in other partitions."""
    return frozenset(producer_id for producer_id, found in partitions_of.items() if found - {partition})


def _since(late: Mapping[TopicPartition, Sequence[Transaction]], moment: int) -> int:
    """Return the least time, in ms, of a commit marker that can be of a late transaction."""
    longest = moment - _LONGEST_MS
    begins = (_not_before(each, longest) for transactions in late.values() for each in transactions)
    return max(min(begins, default=moment) - CLOCK_MARGIN_MS, longest)


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
