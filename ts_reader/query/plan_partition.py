"""The plan of one partition: from a query and its filters to offsets, ranges and transactions.

Ranges are pruned by record time. Timestamps need not ascend, and a batch's base timestamp is not a minimum. So only the
metadata that the agent wrote when it shipped the segment counts. A segment is left out if its greatest timestamp is
below the wanted ones, or its least one above them. The least one is in the metadata only if each batch has one record,
or the broker's time. A segment is read if the agent could not scan all of it: damage, compressed messages of magic 0
and 1, a Java uploader's segment.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from ts_common.archive.copies import SegmentCopy
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import Hole, ReadRange
from ts_common.archive.sealed_objects import ABSENT
from ts_common.archive.sealed_ranges import Part, SealedRun, as_ranges
from ts_common.errors import ObjectFrozen
from ts_common.log_format.framing import NO_TIMESTAMP
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_reader.find.rules import Window
from ts_reader.query.bounds import Bounds, Loss, find_bounds, loss_of, reads_anything
from ts_reader.query.filters import BEYOND, EVERYTHING, LOWEST, QueryFilters, Ranges, intersection
from ts_reader.query.frozen import Span, explain, frozen_of, ranges_of
from ts_reader.query.query import Bound, Edge, Offset, Offsets, Query, Timestamp, Timestamps
from ts_reader.query.splits import PartitionRanges
from ts_reader.query.windows import clipped, union
from ts_reader.reading.time_index import first_that_may_reach
from ts_reader.reading.transactions import Hidden, apart, find_hidden, stable_end

_UNRECORDED: Final = "no object in the store contains them; tsctl repair can put them back"
_RECORDED: Final = "a gap record has the reason, which tsctl gaps prints"
# A column of microseconds cannot hold a later time, so no filter can be applied to such a record's time.
_LATEST_MS: Final = ((1 << 63) - 1) // 1000


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """What a query reads of one partition.

    Attributes:
        bounds: of the query in it.
        losses: offsets of the query that are lost.
    """

    view: PartitionView
    bounds: Bounds
    read: PartitionRanges
    losses: tuple[Loss, ...]


def plan_partition(
    store: ObjectStore,
    view: PartitionView,
    query: Query,
    filters: QueryFilters = EVERYTHING,
    hidden_by_cut: Sequence[AbortedTransaction] = (),
    found: Iterable[Window] | None = None,
) -> PartitionPlan:
    """Return what a query reads of a partition.

    Args:
        hidden_by_cut: the transactions that the query's cut does not show, without the aborted ones.
        found: windows of offsets that have the query's keys in any copy of a segment; None for all offsets.

    Raises:
        ObjectFrozen: a frozen segment decides what is read. `splits_of` checks the others.
        QueryError: no record is at or after the starting timestamp, and the query does not allow that.
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from reading indexes and timestamps.
    """
    try:
        return _plan_partition(store, view, query, filters, hidden_by_cut, found)
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
    filters: QueryFilters,
    hidden_by_cut: Sequence[AbortedTransaction],
    found: Iterable[Window] | None,
) -> PartitionPlan:
    if (loss := loss_of(view)) is not None:
        none = Bounds(view.start, view.start)
        asked = reads_anything(view, query) and filters.windows(view.start, BEYOND)
        return PartitionPlan(view, none, PartitionRanges((), erased=view.erased), (loss,) if asked else ())
    bounds = find_bounds(store, _shown(store, view, query), query)
    windows = filters.windows(bounds.start, bounds.end)
    hidden = Hidden()
    if query.read_committed and windows:
        hidden = find_hidden(store, view, windows[0][0], windows[-1][1])
    parts: Sequence[Part | Hole] = view.runs(windows[0][0], windows[-1][1]) if windows else ()
    if len(windows) > 1:
        parts = [*clipped(parts, union(windows))]
    losses = tuple(_losses(view, bounds, filters, (part for part in parts if isinstance(part, Hole)), hidden))
    times = filters.milliseconds
    if query.cut is not None:
        times = intersection(times, ((LOWEST, query.cut.milliseconds + 1),))
    read = tuple(prune_by_time(store, (part for part in parts if not isinstance(part, Hole)), times))
    ranges = as_ranges(read if found is None else tuple(_with_keys(read, found)))
    if not query.tolerance.fails:
        ranges = tuple(view.with_spares(ranges))
    aborted = apart((*hidden.transactions, *hidden_by_cut)) if hidden_by_cut else hidden.transactions
    return PartitionPlan(view, bounds, PartitionRanges(ranges, aborted, erased=view.erased), losses)


def _with_keys(parts: Sequence[Part], found: Iterable[Window]) -> Iterator[Part]:
    """Yield what can have the query's keys. No index has live tails, nor a copy whose records reach into the next."""
    unknown = (part for part in parts if isinstance(part, ReadRange) and (part.is_tail or part.before is not None))
    windows = union((*found, *((part.start, part.end) for part in unknown)))
    yield from (part for part in clipped(parts, windows) if not isinstance(part, Hole))


def _shown(store: ObjectStore, view: PartitionView, query: Query) -> PartitionView:
    """Return a view without what is not decided yet; markers may follow the visible end."""
    if not query.read_committed or query.cut is not None:
        return view
    return replace(view, end=stable_end(store, view))


def _losses(
    view: PartitionView, bounds: Bounds, filters: QueryFilters, holes: Iterable[Hole], hidden: Hidden
) -> Iterator[Loss]:
    """Yield the losses of a query: outside of the view, in holes, and of transactions that a hole cuts off."""
    for start, end, what in bounds.lost:
        yield from (Loss(view.partition, low, high, what) for low, high in filters.windows(start, end))
    for hole in holes:
        why = _RECORDED if hole.recorded else view.elsewhere(hole.start) or _UNRECORDED
        yield Loss(view.partition, hole.start, hole.end, f"are lost: {why}")
    for one in hidden.cut_off:
        yield Loss(view.partition, one.first, one.hole.start, f"are {one.reason}")


def prune_by_time(store: ObjectStore, parts: Iterable[Part], milliseconds: Ranges) -> Iterator[Part]:
    """Yield the ranges that may hold records of these times, with the copies that may.

    Records of these times can begin in a range after one that holds none: there a request for the `.timeindex` pays.

    Args:
        parts: of one partition, in order.
        milliseconds: since 1970.

    Raises:
        StoreUnavailable, AccessDenied: from reading a `.timeindex`.
    """
    begins = bool(milliseconds) and milliseconds[0][0] > NO_TIMESTAMP
    may_begin = begins
    for part in _divided(parts, milliseconds):
        if isinstance(part, SealedRun):
            number, stop = part.rows.start, part.rows.stop
            while may_begin and number < stop:
                row = part.of_row(number)
                start = max(row.start, first_that_may_reach(store, row.copies[0], milliseconds[0][0]))
                if start < row.end:
                    yield row if start == row.start else replace(row, start=start)
                    may_begin = False
                number += 1
            if number < stop:
                yield part.part(number, stop)
            continue
        if part is None:
            may_begin = begins
            continue
        if part.before is not None:  # its records can have any time
            yield part
            continue
        copies = tuple(copy for copy in part.copies if _may_hold(copy, milliseconds))
        if not copies:
            may_begin = begins
            continue
        start = part.start
        if may_begin:
            start = max(start, min(first_that_may_reach(store, copy, milliseconds[0][0]) for copy in copies))
        if start < part.end:
            may_begin = False
            as_it_was = start == part.start and len(copies) == len(part.copies)
            yield part if as_it_was else replace(part, start=start, copies=copies)


def _divided(parts: Iterable[Part], milliseconds: Ranges) -> Iterator[Part | None]:
    """Yield parts, of each run only the rows that may hold records of these times; None for rows that are left out."""
    for part in parts:
        if not isinstance(part, SealedRun):
            yield part
            continue
        rows, columns = part.rows, part.sealed.columns
        latest, least = (columns[name][rows.start : rows.stop] for name in ("time_max", "time_min"))
        # Least and greatest values of columns are found without a loop in Python, and decide for nearly all runs.
        lowest, greatest, begin, end = min(latest), max(latest), min(least), max(least)
        if any(low <= lowest and end < high for low, high in milliseconds):
            yield part
            continue
        greatest = max(greatest, NO_TIMESTAMP)
        if greatest <= _LATEST_MS and all(greatest < low or high <= begin for low, high in milliseconds):
            yield None
            continue
        times = zip(latest, least, strict=True)
        kept = [number for number, each in enumerate(times, rows.start) if _may_hold_row(*each, milliseconds)]
        following = rows.start
        for _, group in groupby(enumerate(kept), lambda each: each[1] - each[0]):
            numbers = [number for _, number in group]
            if numbers[0] > following:
                yield None
            following = numbers[-1] + 1
            yield part.part(numbers[0], following)
        if following < rows.stop:
            yield None


def _may_hold_row(latest: int, least: int, milliseconds: Ranges) -> bool:
    """Return what `_may_hold` returns of a row of a sealed object; `ABSENT` is below all times."""
    latest = NO_TIMESTAMP if latest == ABSENT else latest
    return latest > _LATEST_MS or any(low <= latest and least < high for low, high in milliseconds)


def _may_hold(copy: SegmentCopy, milliseconds: Ranges) -> bool:
    metadata = copy.metadata
    latest = NO_TIMESTAMP if metadata.time_max is None else metadata.time_max
    if metadata.records is None or metadata.corruptions or latest > _LATEST_MS:
        return True
    return any(low <= latest and (metadata.time_min is None or metadata.time_min < high) for low, high in milliseconds)
