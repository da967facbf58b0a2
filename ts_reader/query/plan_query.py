"""The planner: from a query to topics, views, offsets, ranges and splits. It decodes nothing but timestamps.

All offsets of the query that are lost are one `DataLoss`, or warnings if the query allows loss. Offsets that compaction
removed are not lost, nor are offsets that filters exclude.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Final

from ts_common.archive.plan import Hole
from ts_common.archive.view import PartitionView, open_view
from ts_common.errors import ObjectFrozen
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_reader.query.bounds import Bounds, check_named_partitions, find_bounds, reads_anything
from ts_reader.query.cut import NOTHING_HIDDEN, other_catalogs, plan_cut, read_all_ends
from ts_reader.query.frozen import Span, check_thawed, explain, frozen_of, ranges_of
from ts_reader.query.gc_tuning import collecting_less
from ts_reader.query.losses import Loss, check_losses, loss_of
from ts_reader.query.policies import View
from ts_reader.query.query import Bound, Edge, Offset, Offsets, Query, Timestamp, Timestamps, settled
from ts_reader.query.split import Split, bytes_of
from ts_reader.query.splitting import PartitionRanges, make_splits, whole_partitions
from ts_reader.query.subscription import find_topics, where
from ts_reader.query.time_pruning import prune_by_time
from ts_reader.query.wanted import BEYOND, EVERYTHING, LOWEST, Wanted, intersection
from ts_reader.reading.parallel import in_threads
from ts_reader.reading.transactions import Hidden, apart, find_hidden, stable_end

_RECORDED: Final = "a gap record has the reason, which tsctl gaps prints"


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """What a query reads, with its warnings.

    Attributes:
        splits: by topic, partition and offset.
        warnings: one sentence each.
        losses: offsets that the query lost, and is allowed to lose.
        segments: the number of `.log` objects to read.
        all_segments: the number of committed `.log` objects of the topics.
        bytes: the number of bytes to read at most.
        all_bytes: the bytes of all committed `.log` objects of the topics.
    """

    splits: tuple[Split, ...]
    warnings: tuple[str, ...]
    losses: tuple[Loss, ...]
    segments: int
    all_segments: int
    bytes: int
    all_bytes: int


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """What a query reads of one partition.

    Attributes:
        view: of the partition.
        bounds: of the query in it.
        read: ranges of it.
        losses: offsets of the query that are lost.
    """

    view: PartitionView
    bounds: Bounds
    read: PartitionRanges
    losses: tuple[Loss, ...]


def plan_query(store: ObjectStore, query: Query, wanted: Wanted = EVERYTHING) -> QueryPlan:
    """Plan a query on the store's current objects.

    Args:
        store: of its topics.
        query: what to read.
        wanted: what filters leave of it.

    Raises:
        QueryError: the store does not hold a topic, a partition or offsets of the query.
        DataLoss: offsets of the query are lost, and it fails on data loss.
        CorruptData, NewerFormat: an object is damaged, or a later release wrote it.
        ObjectNotFound: retention deleted an object while the planner read it.
        ObjectFrozen: segments of the query are in an archive class; the message has the command that thaws them.
        StoreUnavailable, AccessDenied, BucketMissing: from the store.
    """
    with collecting_less():
        return _plan(store, settled(store, query), wanted)


def _plan(store: ObjectStore, query: Query, wanted: Wanted) -> QueryPlan:
    ends = () if query.cut is None else read_all_ends(store, query)
    topics = find_topics(store, query)
    check_named_partitions(query, topics)
    if query.view is View.LATEST:  # filters of records apply after the newest record of each key is found
        wanted = wanted.of_partitions
    found = [catalog for topic in topics for catalog in topic.partitions]
    catalogs = [catalog for catalog in found if wanted.has(catalog.keys.partition)]
    damaged: list[str] | None = None if query.tolerance.fails else []
    views = in_threads(
        lambda catalog: open_view(store, catalog, damaged=damaged), catalogs, step="metadata of segments"
    )
    cut, beside = NOTHING_HIDDEN, list[PartitionView]()
    if query.cut is not None:
        others, more = other_catalogs(store, query, query.cut, catalogs)
        beside = in_threads(lambda catalog: open_view(store, catalog, damaged=damaged), more)
        cut = plan_cut(store, query, query.cut, (*topics, *others), [*views, *beside], ends, wanted)
    plans = in_threads(
        lambda view: plan_partition(store, view, query, wanted, cut.hidden.get(view.partition, ())),
        views,
        step="offsets",
    )
    # Without the commit of another partition, the transactions of the cut are unknown.
    losses = [loss for plan in plans for loss in plan.losses] + [loss for loss in map(loss_of, beside) if loss]
    check_losses(losses, query)
    read = {copy.key: copy for plan in plans for part in plan.read.ranges for copy in part.copies}
    held = [segment for catalog in found for segment in catalog.committed]
    return QueryPlan(
        splits=splits_of(store, [plan.read for plan in plans], query),
        warnings=(
            *([_no_match(query)] if not topics else []),
            *(view.warning for view in views if view.warning and not view.state.is_loss),
            *sorted(damaged or ()),
            *cut.warnings,
        ),
        losses=tuple(losses),
        segments=len(read),
        all_segments=len(held),
        bytes=sum(bytes_of(part) for plan in plans for part in plan.read.ranges),
        all_bytes=sum(segment.size for segment in held),
    )


def _no_match(query: Query) -> str:
    pattern, option = query.subscription.pattern, query.wording.sign("pattern")
    return f"{option}{'' if pattern is None else pattern.pattern}: no topic of {where(query)} matches"


def splits_of(store: ObjectStore, partitions: Sequence[PartitionRanges], query: Query) -> tuple[Split, ...]:
    """Return the splits of a query.

    Raises:
        ObjectFrozen: segments must be thawed first; as `plan_query`.
        StoreUnavailable, AccessDenied: from reading indexes of segments that are cut.
    """
    check_thawed(store, [part for partition in partitions for part in partition.ranges], query.incarnation)
    if query.view is View.LATEST:
        splits = whole_partitions(store, partitions, query.tolerance)
    else:
        splits = make_splits(store, partitions, query.limits, query.tolerance)
    way_out = query.wording.despite_corruption
    until = None if query.cut is None else query.cut.milliseconds
    scan = token_hex(4)
    return tuple(
        replace(split, connection=query.connection, limit=query.limit, way_out=way_out, until=until, scan=scan)
        for split in splits
    )


def plan_partition(
    store: ObjectStore,
    view: PartitionView,
    query: Query,
    wanted: Wanted = EVERYTHING,
    hidden_by_cut: Sequence[AbortedTransaction] = (),
) -> PartitionPlan:
    """Return what a query reads of a partition.

    Args:
        store: of the segments.
        view: of the partition.
        query: what to read.
        wanted: what filters leave of it.
        hidden_by_cut: the transactions that the query's cut does not show, without the aborted ones.

    Raises:
        ObjectFrozen: as `plan_query`, if a frozen segment decides what is read. `splits_of` checks the others.
        QueryError: no record is at or after the starting timestamp, and the query does not allow that.
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from reading indexes and timestamps.
    """
    try:
        return _plan_partition(store, view, query, wanted, hidden_by_cut)
    except ObjectFrozen as error:  # of a segment whose timestamps or markers decide what is read
        named = ranges_of(view, _span(query, view.partition))
        # It can be outside of the query's offsets: markers of their transactions follow them.
        failed = [part for part in ranges_of(view, Span()) if any(copy.key in str(error) for copy in part.copies)]
        if not failed:
            raise
        ranges = [*failed, *(part for part in named if part.copies != failed[0].copies)]
        frozen = [*failed, *frozen_of(ranges[len(failed) :])]
        raise ObjectFrozen(f"{explain(store, frozen, ranges, query.incarnation)}: {error}") from error


def _span(query: Query, partition: TopicPartition) -> Span:
    """Return the range of a partition that a query names."""

    def of(bound: Bound) -> tuple[int | None, int | None]:
        match bound:
            case Offset(offset):
                return offset, None
            case Offsets(by_topic):
                found = by_topic.get(partition.topic, {}).get(partition.partition)
                return (found if isinstance(found, int) else None), None
            case Timestamp(milliseconds):
                return None, milliseconds
            case Timestamps(times):
                return None, times.get(partition.topic, {}).get(partition.partition)
            case Edge():
                return None, None

    (start, since), (end, until) = of(query.start), of(query.end)
    return Span(start, end, since, until)


def _plan_partition(
    store: ObjectStore,
    view: PartitionView,
    query: Query,
    wanted: Wanted,
    hidden_by_cut: Sequence[AbortedTransaction],
) -> PartitionPlan:
    if (loss := loss_of(view)) is not None:
        none = Bounds(view.start, view.start)
        asked = reads_anything(view, query) and wanted.windows(view.start, BEYOND)
        return PartitionPlan(view, none, PartitionRanges((), ()), (loss,) if asked else ())
    shown: PartitionView = view
    hidden = Hidden()
    if query.read_committed and query.cut is None:  # markers may follow the visible end
        shown = replace(view, end=stable_end(store, view))
    bounds = find_bounds(store, shown, query)
    windows = wanted.windows(bounds.start, bounds.end)
    if query.read_committed and windows:
        hidden = find_hidden(store, view, windows[0][0], windows[-1][1])
    losses = [
        Loss(view.partition, low, high, what)
        for start, end, what in bounds.lost
        for low, high in wanted.windows(start, end)
    ]
    ranges = []
    for part in (part for low, high in windows for part in view.plan(low, high)):
        if isinstance(part, Hole):
            why = _RECORDED if part.recorded else "no object in the store contains them; tsctl repair can put them back"
            losses.append(Loss(view.partition, part.start, part.end, f"are lost: {why}"))
        else:
            ranges.append(part)
    losses += [Loss(view.partition, one.first, one.hole.start, f"are {one.reason}") for one in hidden.cut_off]
    milliseconds = wanted.milliseconds
    if query.cut is not None:
        milliseconds = intersection(milliseconds, ((LOWEST, query.cut.milliseconds + 1),))
    timely = tuple(prune_by_time(store, ranges, milliseconds))
    if not query.tolerance.fails:
        timely = tuple(view.with_spares(timely))
    aborted = apart((*hidden.transactions, *hidden_by_cut)) if hidden_by_cut else hidden.transactions
    return PartitionPlan(view, bounds, PartitionRanges(timely, aborted), tuple(losses))
