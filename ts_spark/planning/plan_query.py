"""Planning a query, on the driver: options, topics, views, offsets, ranges, splits. Nothing is decoded here but
timestamps, where a query names some.

Whatever offsets are asked for and gone are data loss, all of it told at once: with `failOnDataLoss` an error, else
warnings. Offsets that compaction removed are none, nor are those that filters do not ask for.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ts_common.archive.plan import Hole, with_spares
from ts_common.archive.view import PartitionView, open_view
from ts_common.errors import DataLoss
from ts_common.reading.parallel import in_threads
from ts_common.reading.transactions import Hidden, find_hidden, stable_end
from ts_common.store.contract import ObjectStore
from ts_spark.options.filters import EVERYTHING, Wanted
from ts_spark.options.modes import View
from ts_spark.options.query import QueryOptions, settled
from ts_spark.planning.bounds import check_named_partitions, find_bounds
from ts_spark.planning.gc_tuning import collecting_less
from ts_spark.planning.splitting import PartitionRanges, make_splits, whole_partitions
from ts_spark.planning.time_pruning import prune_by_time
from ts_spark.planning.topics import find_topics, where
from ts_spark.split import Split, bytes_of

_MOST_LOSSES_TOLD: Final = 20
_RECORDED: Final = "a gap is recorded there; an agent whose broker still holds them fills it"


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """What is to be read, and what there is to say about it.

    Attributes:
        splits: by topic, partition and offset.
        warnings: one sentence each.
        segments: `.log` objects that are read, of `all_segments` that the topics hold below their commits.
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
class PartitionPlan:
    """What is to be read of one partition.

    Attributes:
        view: of the partition.
        read: ranges of it.
        losses: one sentence for each range of offsets that was asked for and is gone.
    """

    view: PartitionView
    read: PartitionRanges
    losses: tuple[str, ...]


def plan_query(store: ObjectStore, options: QueryOptions, wanted: Wanted = EVERYTHING) -> QueryPlan:
    """Plan a query against what the store holds now.

    Args:
        store: where its topics lie.
        options: of the query.
        wanted: what filters leave of it.

    Raises:
        QueryError: topics, partitions or offsets that the store does not hold.
        DataLoss: offsets that are asked for are gone, and `failOnDataLoss` is true.
        CorruptData, NewerFormat: what the store holds is damaged, or a later release's.
        ObjectNotFound: retention took an object while it was looked at.
        StoreUnavailable, AccessDenied, BucketMissing: the store's.
    """
    with collecting_less():
        return _plan(store, settled(store, options), wanted)


def _plan(store: ObjectStore, options: QueryOptions, wanted: Wanted) -> QueryPlan:
    topics = find_topics(store, options)
    check_named_partitions(options, topics)
    if options.view is View.LATEST:  # the newest record of a key is found among all, and filtered then
        wanted = wanted.of_partitions
    asked = [catalog for topic in topics for catalog in topic.partitions]
    catalogs = [catalog for catalog in asked if wanted.has(catalog.keys.partition)]
    damaged: list[str] | None = None if options.tolerance.fails else []
    views = in_threads(
        lambda catalog: open_view(store, catalog, damaged=damaged), catalogs, telling="metadata of segments"
    )
    plans = in_threads(lambda view: plan_partition(store, view, options, wanted), views, telling="offsets")
    losses = [loss for plan in plans for loss in plan.losses]
    check_losses(losses, options)
    read = {copy.key: copy for plan in plans for part in plan.read.ranges for copy in part.copies}
    held = [segment for catalog in asked for segment in catalog.committed]
    return QueryPlan(
        splits=splits_of(store, [plan.read for plan in plans], options),
        warnings=(
            *([options.ignored] if options.ignored else []),
            *([_no_match(options)] if not topics else []),
            *(view.warning for view in views if view.warning),
            *sorted(damaged or ()),
            *losses,
        ),
        segments=len(read),
        all_segments=len(held),
        bytes=sum(bytes_of(part) for plan in plans for part in plan.read.ranges),
        all_bytes=sum(segment.size for segment in held),
    )


def _no_match(options: QueryOptions) -> str:
    pattern = options.subscription.pattern
    return f"subscribePattern={'' if pattern is None else pattern.pattern}: no topic of {where(options)} matches"


def check_losses(losses: Sequence[str], options: QueryOptions) -> None:
    """Let a query pass that lost nothing, or that asks for what is left.

    Raises:
        DataLoss: otherwise, with the losses.
    """
    if losses and options.fail_on_data_loss:
        told = "; ".join(losses[:_MOST_LOSSES_TOLD])
        more = f"; and {len(losses) - _MOST_LOSSES_TOLD} more" if len(losses) > _MOST_LOSSES_TOLD else ""
        raise DataLoss(f'{told}{more}. To read what is there, set option("failOnDataLoss", "false")')


def splits_of(store: ObjectStore, partitions: Sequence[PartitionRanges], options: QueryOptions) -> tuple[Split, ...]:
    """The tasks of a query.

    Raises:
        StoreUnavailable, AccessDenied: from reading indexes of segments that are cut.
    """
    if options.view is View.LATEST:
        splits = whole_partitions(store, partitions, options.tolerance)
    else:
        splits = make_splits(store, partitions, options.limits, options.tolerance)
    return tuple(replace(split, connection=options.connection, limit=options.limit) for split in splits)


def plan_partition(
    store: ObjectStore, view: PartitionView, options: QueryOptions, wanted: Wanted = EVERYTHING
) -> PartitionPlan:
    """What a query reads of a partition.

    Raises:
        QueryError: no record at or after the starting timestamp, and no word on what to do then.
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from reading indexes and timestamps.
    """
    shown: PartitionView = view
    hidden = Hidden()
    if options.read_committed:  # markers can stand behind what is shown
        shown = replace(view, end=stable_end(store, view))
    bounds = find_bounds(store, shown, options)
    windows = wanted.windows(bounds.start, bounds.end)
    if options.read_committed and windows:
        hidden = find_hidden(store, view, windows[0][0], windows[-1][1])
    losses = [
        f"{view.partition}: offsets {low} to {high - 1} {what}"
        for start, end, what in bounds.lost
        for low, high in wanted.windows(start, end)
    ]
    ranges = []
    for part in (part for low, high in windows for part in view.plan(low, high)):
        if isinstance(part, Hole):
            why = _RECORDED if part.recorded else "no object in the store holds them"
            losses.append(f"{view.partition}: offsets {part.start} to {part.end - 1} are lost: {why}")
        else:
            ranges.append(part)
    losses += [
        f"{view.partition}: offsets {one.first} to {one.hole.start - 1} are {one.reason}" for one in hidden.cut_off
    ]
    timely = tuple(prune_by_time(store, ranges, wanted.milliseconds))
    if not options.tolerance.fails:
        timely = tuple(with_spares(timely, view.copies, view.epochs))
    return PartitionPlan(view, PartitionRanges(timely, hidden.transactions), tuple(losses))
