"""Where a query starts and ends in each partition, and which of its offsets are lost: from its bounds to offsets.

A timestamp means the first record, in the order of offsets, that has it or a later one.

Offsets of the query outside the view are data loss. Below its start, retention removed them. Above its end they were
never shipped, or an election lost them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ts_common.archive.partition_view import PartitionView
from ts_common.errors import DataLoss, QueryError
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_reader.query.query import Bound, Edge, Offset, Offsets, Query, Timestamp, Timestamps
from ts_reader.query.timestamps import time_text
from ts_reader.reading.topics import Topic

_MAX_LISTED: Final = 20


@dataclass(frozen=True, slots=True)
class Loss:
    """Offsets `[start, end)` of a partition that a query cannot read.

    Attributes:
        partition: of the offsets.
        start: the first one.
        end: the offset after the last one.
        reason: the rest of a sentence about them.
        is_open: whether more can be lost: `end` is only the lowest that the end can be.
    """

    partition: TopicPartition
    start: int
    end: int
    reason: str
    is_open: bool = False

    @property
    def text(self) -> str:
        """The sentence without the partition."""
        last = "and later" if self.is_open else f"to {self.end - 1}"
        return f"offsets {self.start} {last} {self.reason}"

    def __str__(self) -> str:
        return f"{self.partition}: {self.text}"


def loss_of(view: PartitionView) -> Loss | None:
    """Return what readers lose of a partition whose commit is missing or damaged; None if they lose nothing so."""
    if not view.state.is_loss:
        return None
    why = (view.warning or "").removeprefix(f"{view.partition}: ")
    end = max(view.start + 1, view.stored_end)
    return Loss(view.partition, view.start, end, f"are not shown: {why}", is_open=True)


def check_losses(losses: Sequence[Loss | str], query: Query) -> None:
    """Check that a query lost nothing, or allows loss.

    Raises:
        DataLoss: otherwise, with the losses.
    """
    if losses and query.fail_on_data_loss:
        listed = "; ".join(map(str, losses[:_MAX_LISTED]))
        more = f"; and {len(losses) - _MAX_LISTED} more" if len(losses) > _MAX_LISTED else ""
        raise DataLoss(f"{listed}{more}. {query.wording.despite_loss}")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Offsets `[start, end)` of a partition to plan for, inside its view.

    Attributes:
        start: first offset.
        end: the offset after the last, at least `start`.
        lost: ranges `[from, to)` of the query outside the view, each with the rest of a sentence about them.
    """

    start: int
    end: int
    lost: tuple[tuple[int, int, str], ...] = ()


def check_named_partitions(query: Query, topics: Iterable[Topic]) -> None:
    """Check that bounds by partition name each partition of the query and no other, as Spark's Kafka source requires.

    The store does not hold the number of partitions of a topic without data, so any of them may be named.

    Raises:
        QueryError: a partition is missing, or does not belong to the query.
    """
    by_name = {topic.name: topic for topic in topics}
    expected = {catalog.keys.partition for topic in by_name.values() for catalog in topic.partitions}
    empty = {name for name, topic in by_name.items() if not topic.partitions}
    wording = query.wording
    for bound, side, edge in (
        (query.start, "starting", f"{wording.earliest} is earliest"),
        (query.end, "ending", f"{wording.latest} is latest"),
    ):
        if not isinstance(bound, Offsets | Timestamps):
            continue
        problems = []
        named = _named_by(bound)
        has_offsets = isinstance(bound, Offsets)
        if missing := sorted(expected - named):
            problems.append(f"nothing for {_list(missing)}{f' ({edge})' if has_offsets else ''}")
        if foreign := sorted(other for other in named - expected if other.topic not in empty):
            problems.append(f"{_list(foreign)}, which this query does not read")
        if problems:
            name = wording.name(f"{side}_offsets" if has_offsets else f"{side}_timestamps")
            raise QueryError(f"{name}: {'; '.join(problems)}; it must name every partition of the query, and no other")


def _named_by(bound: Offsets | Timestamps) -> set[TopicPartition]:
    return {TopicPartition(topic, number) for topic, partitions in bound.by_topic.items() for number in partitions}


def _list(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))


def find_bounds(store: ObjectStore, view: PartitionView, query: Query) -> Bounds:
    """Return the offsets of a partition that a query reads.

    Raises:
        QueryError: the start is greater than the end; or no record is at or after the starting timestamp, and the query
            does not allow that.
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from reading timestamps.
    """
    if view.start == view.end:  # the view is empty, so no record has a timestamp
        start, end = _offset(view, query.start), _offset(view, query.end)
    else:
        start = _starting_offset(store, view, query)
        end = _ending_offset(store, view, query)
    if start > end and not _ends_at_latest(view, query.end):
        raise QueryError(
            f"{view.partition}: the query starts at offset {start}, which is greater than the offset {end} "
            "where it ends"
        )
    return _inside(view, start, end, read_committed=query.read_committed)


def first_offset_of(
    store: ObjectStore, view: PartitionView, milliseconds: int, query: Query, *, after_hole: bool = True
) -> int | None:
    """Return what `first_offset_at` returns; a tolerant query skips corrupt batches and reads other copies.

    Raises:
        CorruptData, BatchTooLarge, ObjectNotFound, StoreUnavailable, AccessDenied: from reading segments.
    """
    # Most queries have no timestamp, and what decodes takes time to load.
    from ts_reader.reading.first_offset import first_offset_at, search_for, tolerant_search  # noqa: PLC0415

    if query.tolerance.fails:
        search = search_for(
            store, milliseconds, erased=view.erased, way_out=query.wording.despite_corruption, limit=query.limit
        )
    else:
        search = tolerant_search(store, view, milliseconds, limit=query.limit)
    return first_offset_at(view, search, after_hole=after_hole, least=milliseconds)


def reads_anything(view: PartitionView, query: Query) -> bool:
    """Return whether a query reads a record of a partition whose end is unknown: not if its offsets are empty."""
    start, end = _number(view, query.start), _number(view, query.end)
    return end is None or max(view.start, start or 0) < end


def _number(view: PartitionView, bound: Bound) -> int | None:
    """Return the offset that a bound names; None for a time, and for earliest or latest."""
    is_offset = isinstance(bound, Offset) or (
        isinstance(bound, Offsets)
        and not isinstance(bound.by_topic[view.partition.topic][view.partition.partition], Edge)
    )
    return _offset(view, bound) if is_offset else None


def _ends_at_latest(view: PartitionView, bound: Bound) -> bool:
    """Return whether a start above the end may be an offset that is not shipped yet, and not a mistake."""
    if isinstance(bound, Offsets):
        return bound.by_topic[view.partition.topic][view.partition.partition] is Edge.LATEST
    return bound is Edge.LATEST


def _starting_offset(store: ObjectStore, view: PartitionView, query: Query) -> int:
    milliseconds = _milliseconds(view, query.start)
    if milliseconds is None:
        return _offset(view, query.start)
    found = first_offset_of(store, view, milliseconds, query)
    if found is not None:
        return found
    if query.start_without_match is Edge.LATEST:
        return view.end
    raise QueryError(
        f"starting at timestamp {milliseconds} ({time_text(milliseconds)}): {view.partition} has no record at or after "
        f"it in its offsets "
        f"{view.start} to {view.end - 1}; with {query.wording.without_match} such a partition returns no rows"
    )


def _ending_offset(store: ObjectStore, view: PartitionView, query: Query) -> int:
    milliseconds = _milliseconds(view, query.end)
    if milliseconds is None:
        return _offset(view, query.end)
    found = first_offset_of(store, view, milliseconds, query, after_hole=False)
    return view.end if found is None else found


def _milliseconds(view: PartitionView, bound: Bound) -> int | None:
    """Return the timestamp of a bound for a partition; None if the bound is an offset."""
    if isinstance(bound, Timestamps):
        return bound.by_topic[view.partition.topic][view.partition.partition]
    return bound.milliseconds if isinstance(bound, Timestamp) else None


def _offset(view: PartitionView, bound: Bound) -> int:
    if isinstance(bound, Offset):
        return bound.offset
    if isinstance(bound, Offsets):
        by_partition: Mapping[int, int | Edge] = bound.by_topic[view.partition.topic]
        given = by_partition[view.partition.partition]
        if not isinstance(given, Edge):
            return given
        bound = given
    return view.start if bound is Edge.EARLIEST else view.end


def _inside(view: PartitionView, start: int, end: int, *, read_committed: bool) -> Bounds:
    lost = []
    unshipped = f"are not in the store: the next offset is {view.end} (not shipped yet, or an election lost them)"
    if read_committed:
        unshipped = (
            f"are not shown: the last stable offset is {view.end} (not decided or not shipped yet, or an election lost "
            f"them)"
        )
    if start < (below := min(view.start, end)):
        lost.append((start, below, f"are lost: below the log's start {view.start}"))
    if end > (beyond := max(view.end, start)):
        lost.append((beyond, end, unshipped))
    elif start > view.end:
        lost.append((view.end, start, unshipped))
    start = min(max(start, view.start), view.end)
    return Bounds(start, max(start, min(end, view.end)), tuple(lost))
