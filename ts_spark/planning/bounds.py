"""Where a query begins and ends in each partition: from the words of its options to offsets.

A timestamp means the first record, in the order of offsets, that has it or a later one.

Offsets that were asked for and lie outside the view are data loss: below its start retention took them, beyond its end
they were never shipped (or an election lost them).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ts_common.archive.view import PartitionView
from ts_common.errors import QueryError
from ts_common.model import TopicPartition
from ts_common.reading.topics import Topic
from ts_common.store.contract import ObjectStore
from ts_spark.options.query import Bound, Edge, Offsets, QueryOptions, Timestamp, Timestamps


@dataclass(frozen=True, slots=True)
class Bounds:
    """Offsets `[start, end)` of a partition to plan for, inside its view.

    Attributes:
        start: first offset.
        end: the offset after the last, at least `start`.
        lost: ranges `[from, to)` that were asked for and lie outside the view, each with the words that say so.
    """

    start: int
    end: int
    lost: tuple[tuple[int, int, str], ...] = ()


def check_named_partitions(options: QueryOptions, topics: Iterable[Topic]) -> None:
    """JSON offsets name each partition of the query and none besides, as Spark's Kafka source asks.

    How many partitions a topic without data has, nothing in the store says: any of them may be named.

    Raises:
        QueryError: otherwise.
    """
    by_name = {topic.name: topic for topic in topics}
    asked = {catalog.keys.partition for topic in by_name.values() for catalog in topic.partitions}
    for side, bound in (("starting", options.start), ("ending", options.end)):
        if not isinstance(bound, Offsets | Timestamps):
            continue
        name = f"{side}Offsets" if isinstance(bound, Offsets) else f"{side}OffsetsByTimestamp"
        named = {TopicPartition(topic, number) for topic, partitions in bound.by_topic.items() for number in partitions}
        problems = []
        if missing := sorted(asked - named):
            edge = "-2 is earliest" if side == "starting" else "-1 is latest"  # what a query of either kind may name
            hint = f" ({edge})" if isinstance(bound, Offsets) else ""
            problems.append(f"nothing for {', '.join(map(str, missing))}{hint}")
        empty = {name for name, topic in by_name.items() if not topic.partitions}
        if foreign := sorted(other for other in named - asked if other.topic not in empty):
            problems.append(f"{', '.join(map(str, foreign))}, which this query does not read")
        if problems:
            raise QueryError(f"{name}: {'; '.join(problems)}; it must name every partition of the query, and no other")


def find_bounds(store: ObjectStore, view: PartitionView, options: QueryOptions) -> Bounds:
    """The offsets that a query asks of a partition.

    Raises:
        QueryError: the start is greater than the end; or no record at or after the starting timestamp, and no word on
            what to do then.
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from reading timestamps.
    """
    if view.start == view.end:  # nothing is shown, so no timestamp can be found in it
        start, end = _offset(view, options.start), _offset(view, options.end)
    else:
        start = _starting_offset(store, view, options)
        end = _ending_offset(store, view, options)
    if start > end and not _ends_at_latest(view, options.end):
        raise QueryError(
            f"{view.partition}: the query starts at offset {start}, which is greater than the offset {end} "
            "where it ends"
        )
    return _inside(view, start, end, read_committed=options.read_committed)


def _ends_at_latest(view: PartitionView, bound: Bound) -> bool:
    """Whether a start beyond the end was not shipped yet, rather than asked for by mistake."""
    if isinstance(bound, Offsets):
        return bound.by_topic[view.partition.topic][view.partition.partition] is Edge.LATEST
    return bound is Edge.LATEST


def _starting_offset(store: ObjectStore, view: PartitionView, options: QueryOptions) -> int:
    milliseconds = _milliseconds(view, options.start)
    if milliseconds is None:
        return _offset(view, options.start)
    found = _first_offset_at(store, view, milliseconds, options)
    if found is not None:
        return found
    if options.start_without_match is Edge.LATEST:
        return view.end
    raise QueryError(
        f"starting at timestamp {milliseconds}: {view.partition} has no record at or after it in its offsets "
        f"{view.start} to {view.end - 1}; with startingOffsetsByTimestampStrategy=latest such a partition gives no rows"
    )


def _ending_offset(store: ObjectStore, view: PartitionView, options: QueryOptions) -> int:
    milliseconds = _milliseconds(view, options.end)
    if milliseconds is None:
        return _offset(view, options.end)
    found = _first_offset_at(store, view, milliseconds, options, after_hole=False)
    return view.end if found is None else found


def _first_offset_at(
    store: ObjectStore, view: PartitionView, milliseconds: int, options: QueryOptions, *, after_hole: bool = True
) -> int | None:
    # It decodes, and numba takes 0.4 s to load: most queries name no timestamp.
    from ts_spark.planning.offset_by_time import first_offset_of  # noqa: PLC0415

    return first_offset_of(store, view, milliseconds, options.tolerance, options.limit, after_hole=after_hole)


def _milliseconds(view: PartitionView, bound: Bound) -> int | None:
    """The timestamp that a bound names for a partition; None where it names an offset."""
    if isinstance(bound, Timestamps):
        return bound.by_topic[view.partition.topic][view.partition.partition]
    return bound.milliseconds if isinstance(bound, Timestamp) else None


def _offset(view: PartitionView, bound: Bound) -> int:
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
