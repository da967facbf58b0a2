"""Planning a query, on the driver: options, topics, views, offsets, ranges, splits. Nothing is decoded here but
timestamps, where a query names some.

Whatever offsets are asked for and gone are data loss, all of it told at once: with `failOnDataLoss` an error, else
warnings. Offsets that compaction removed are none.
"""

from dataclasses import dataclass, replace
from typing import Final

from ts_common.errors import DataLoss
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.plan import Hole
from ts_common.store.contract import ObjectStore
from ts_common.transactions import find_aborted, stable_end
from ts_common.view import PartitionView, open_view
from ts_spark.bounds import check_named_partitions, find_bounds
from ts_spark.garbage import collecting_less
from ts_spark.options import QueryOptions
from ts_spark.parallel import in_threads
from ts_spark.split import Split, bytes_of
from ts_spark.splitting import PartitionRanges, make_splits
from ts_spark.topics import find_topics

_MOST_LOSSES_TOLD: Final = 20


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """What is to be read, and what there is to say about it.

    Attributes:
        splits: by topic, partition and offset.
        warnings: one sentence each.
        segments: `.log` objects that are read, of `all_segments` that the topics' views hold.
        all_segments: see `segments`.
        bytes: how much is read at most, of `all_bytes`.
        all_bytes: see `bytes`.
    """

    splits: tuple[Split, ...]
    warnings: tuple[str, ...]
    segments: int
    all_segments: int
    bytes: int
    all_bytes: int


@dataclass(frozen=True, slots=True)
class _PartitionPlan:
    view: PartitionView
    read: PartitionRanges
    losses: tuple[str, ...]


def plan_query(store: ObjectStore, options: QueryOptions) -> QueryPlan:
    """Plan a query against what the store holds now.

    Raises:
        QueryError: topics, partitions or offsets that the store does not hold.
        DataLoss: offsets that are asked for are gone, and `failOnDataLoss` is true.
        CorruptData: what the store holds is damaged.
        ObjectNotFound: retention took an object while it was looked at.
        StoreUnavailable, AccessDenied, BucketMissing: the store's.
    """
    with collecting_less():
        return _plan(store, options)


def _plan(store: ObjectStore, options: QueryOptions) -> QueryPlan:
    topics = find_topics(store, options)
    check_named_partitions(options, topics)
    catalogs = [catalog for topic in topics for catalog in topic.partitions]
    views = in_threads(lambda catalog: open_view(store, catalog), catalogs, telling="metadata of segments")
    plans = in_threads(lambda view: _plan_partition(store, view, options), views, telling="offsets")
    losses = [loss for plan in plans for loss in plan.losses]
    if losses and options.fail_on_data_loss:
        told = "; ".join(losses[:_MOST_LOSSES_TOLD])
        more = f"; and {len(losses) - _MOST_LOSSES_TOLD} more" if len(losses) > _MOST_LOSSES_TOLD else ""
        raise DataLoss(f'{told}{more}. To read what is there, set option("failOnDataLoss", "false")')
    read = {copy.key: copy for plan in plans for part in plan.read.ranges for copy in part.copies}
    held = [copy for view in views for copy in view.copies]
    return QueryPlan(
        splits=make_splits(store, [plan.read for plan in plans], options.limits),
        warnings=(*(view.warning for view in views if view.warning), *losses),
        segments=len(read),
        all_segments=len(held),
        bytes=sum(bytes_of(part) for plan in plans for part in plan.read.ranges),
        all_bytes=sum(copy.segment.size for copy in held),
    )


def _plan_partition(store: ObjectStore, view: PartitionView, options: QueryOptions) -> _PartitionPlan:
    shown: PartitionView = view
    aborted: tuple[AbortedTransaction, ...] = ()
    if options.read_committed:  # markers can stand behind what is shown
        shown = replace(view, end=stable_end(store, view))
    bounds = find_bounds(store, shown, options)
    if options.read_committed and bounds.start < bounds.end:
        aborted = find_aborted(store, view, bounds.start, bounds.end)
    losses = [f"{view.partition}: offsets {low} to {high - 1} {what}" for low, high, what in bounds.lost]
    ranges = []
    for part in view.plan(bounds.start, bounds.end):
        if isinstance(part, Hole):
            why = "a gap is recorded there" if part.recorded else "no object in the store holds them"
            losses.append(f"{view.partition}: offsets {part.start} to {part.end - 1} are lost: {why}")
        else:
            ranges.append(part)
    return _PartitionPlan(view, PartitionRanges(tuple(ranges), aborted), tuple(losses))
