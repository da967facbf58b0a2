"""A cut: several partitions as of one moment, by the times of records and of commit markers.

It shows the records with a timestamp at or before the moment. Of transactions it shows those whose commit marker has
such a time. `ts_reader.query.rows_until` leaves out later records where a split is read. This module has the rest: is
the cut complete, which transactions are hidden, and which can be shown in part.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from ts_common.archive.catalog import PartitionCatalog
from ts_common.archive.ends import Ends, brokers_with_ends, read_ends
from ts_common.archive.view import PartitionView
from ts_common.errors import CorruptData, NewerFormat, QueryError
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_reader.query.completeness import Shipped, copies_shipped_after, has_later, unproven
from ts_reader.query.moments import time_text
from ts_reader.query.query import Cut, Query, Subscription
from ts_reader.query.subscription import find_topics
from ts_reader.query.wanted import Wanted
from ts_reader.query.whole_transactions import make_whole
from ts_reader.reading.incarnation_option import NEWEST
from ts_reader.reading.parallel import in_threads
from ts_reader.reading.topics import Topic, some
from ts_reader.reading.transactions_at import CLOCK_MARGIN_MS, TransactionsAt

log = structlog.get_logger("ts_reader")

_MAX_LISTED: Final = 20


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
    store: ObjectStore, query: Query, cut: Cut, read: Iterable[PartitionCatalog]
) -> tuple[tuple[Topic, ...], list[PartitionCatalog]]:
    """Return the topics that a query does not read and whose transactions count in its cut, and their partitions.

    Raises:
        CorruptData: a commit, `log.start` or list of incarnations cannot be parsed.
        StoreUnavailable, AccessDenied, BucketMissing: from the store.
    """
    known = {catalog.keys.partition for catalog in read}
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
    wanted: Wanted,
) -> CutPlan:
    """Return what a cut hides in each partition; check that it is complete.

    Args:
        store: of the topics.
        query: what to read.
        cut: of the query.
        topics: of the query and of the cut.
        views: of their partitions.
        ends: of all brokers, read before the partitions.
        wanted: what filters leave of the query.

    Raises:
        QueryError: nothing proves that all records of a partition up to the moment are shipped, and the cut fails then.
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from reading segments.
    """
    moment = cut.milliseconds
    newest = {topic.name: topic.directory == topic.incarnations.newest_directory for topic in topics}
    shipped = in_threads(
        lambda view: Shipped(
            view.partition, view.end, _has_later(store, view, query, moment), newest[view.partition.topic]
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
            if newest.get(partition.topic) and wanted.has(partition)
        ]
    lacking = unproven(shipped, ends, moment)
    if lacking and cut.fails_unproven:
        raise QueryError(f"{_unproven(lacking, moment)}. {query.wording.despite_unproven}")
    found = in_threads(lambda view: TransactionsAt(store, view, moment), views, step="transactions")
    by_partition = {view.partition: each for view, each in zip(views, found, strict=True)}
    whole = make_whole(
        {partition: each.late for partition, each in by_partition.items()},
        lambda partition, producers, since: by_partition[partition].committed(producers, since),
        moment,
    )
    return CutPlan(
        {partition: (*each.hidden, *whole.hidden[partition]) for partition, each in by_partition.items()},
        (*([_unproven(lacking, moment)] if lacking else []), *whole.warnings),
    )


def _has_later(store: ObjectStore, view: PartitionView, query: Query, moment: int) -> bool:
    """Return whether a shipped record of a view proves a moment; read records if metadata does not show it."""
    if view.start == view.end:
        return False
    if has_later(view, moment):
        return True
    copies, proof = copies_shipped_after(view, moment), moment + CLOCK_MARGIN_MS
    if not any(_may_reach(copy.metadata.time_max, copy.metadata.records, proof) for copy in copies):
        return False
    from ts_reader.query.offset_by_time import first_offset_of  # noqa: PLC0415  (what decodes)

    return first_offset_of(store, replace(view, copies=copies), proof, query, after_hole=False) is not None


def _may_reach(time_max: int | None, records: int | None, proof: int) -> bool:
    return records is None or (time_max is not None and time_max >= proof)


def _unproven(lacking: Sequence[TopicPartition], moment: int) -> str:
    listed = some(map(str, lacking), _MAX_LISTED)
    return (
        f"cut at {time_text(moment)}: records up to then can be missing in {listed}: no shipped record is five minutes "
        "later, and no agent's word in ends/ proves that all are shipped; choose an earlier moment, or repeat the "
        "query later"
    )
