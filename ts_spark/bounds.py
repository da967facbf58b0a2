"""Where a query begins and ends in each partition: from the words of its options to offsets.

A timestamp means the first record, in the order of offsets, that has it or a later one. Record timestamps need not
ascend, so this is found by decoding: of the segments whose greatest timestamp reaches it, the first that holds one,
from where a `.timeindex` proves that all before is earlier.

Offsets that were asked for and lie outside the view are data loss: below its start retention took them, beyond its end
they were never shipped (or an election lost them).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from ts_common.catalog import SegmentCopy
from ts_common.errors import QueryError
from ts_common.log_format.columns import Projection, RecordColumns
from ts_common.model import TopicPartition
from ts_common.plan import Hole, ReadRange
from ts_common.store.contract import ObjectStore
from ts_common.view import PartitionView
from ts_spark.query import Bound, Edge, Offsets, QueryOptions, Timestamp, Timestamps
from ts_spark.reading import SegmentReader, known_crc32c
from ts_spark.times import first_that_may_reach
from ts_spark.tolerant import TolerantReader
from ts_spark.topics import Topic

# Where a `.timeindex` leads to, a match is an index interval away: some KB by default. So little is fetched at once,
# and looked at before more is.
_NEAR_BYTES: Final = 128 << 10
_NEAR_ROWS: Final = 512


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
            hint = " (-2 is earliest, -1 latest)" if isinstance(bound, Offsets) else ""
            problems.append(f"nothing for {', '.join(map(str, missing))}{hint}")
        empty = {name for name, topic in by_name.items() if not topic.partitions}
        if foreign := sorted(other for other in named - asked if other.topic not in empty):
            problems.append(f"{', '.join(map(str, foreign))}, which this query does not read")
        if problems:
            raise QueryError(f"{name}: {'; '.join(problems)}; it names every partition of the query and no other")


def find_bounds(store: ObjectStore, view: PartitionView, options: QueryOptions) -> Bounds:
    """The offsets that a query asks of a partition.

    Raises:
        QueryError: no record at or after the starting timestamp, and no word on what to do then.
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from reading timestamps.
    """
    if view.start == view.end:  # nothing is shown, so no timestamp can be found in it
        start, end = _offset(view, options.start), _offset(view, options.end)
    else:
        start = _starting_offset(store, view, options)
        end = _ending_offset(store, view, options)
    return _inside(view, start, end)


def _starting_offset(store: ObjectStore, view: PartitionView, options: QueryOptions) -> int:
    milliseconds = _milliseconds(view, options.start)
    if milliseconds is None:
        return _offset(view, options.start)
    found = first_offset_at(store, view, milliseconds, tolerant=not options.tolerance.fails)
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
    found = first_offset_at(store, view, milliseconds, after_hole=False, tolerant=not options.tolerance.fails)
    return view.end if found is None else found


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


def _inside(view: PartitionView, start: int, end: int) -> Bounds:
    lost = []
    unshipped = f"are not in the store: the next offset is {view.end} (not shipped yet, or an election lost them)"
    if start < (below := min(view.start, end)):
        lost.append((start, below, f"are lost: below the log's start {view.start}"))
    if end > (beyond := max(view.end, start)):
        lost.append((beyond, end, unshipped))
    elif start > view.end:
        lost.append((view.end, start, unshipped))
    start = min(max(start, view.start), view.end)
    return Bounds(start, max(start, min(end, view.end)), tuple(lost))


def first_offset_at(
    store: ObjectStore, view: PartitionView, milliseconds: int, *, after_hole: bool = True, tolerant: bool = False
) -> int | None:
    """The offset of the first record of a view that has a timestamp or a later one; None where none has.

    Args:
        store: where its segments lie.
        view: of a partition.
        milliseconds: since 1970.
        after_hole: where the record is the first one after a hole, the one that is asked for may be lost: answer with
            the hole's start, so that the loss is met.
        tolerant: pass over what is corrupt.
    """
    read: Callable[[SegmentCopy, int, int], Iterator[RecordColumns]]
    if tolerant:
        read = TolerantReader(store, (), silent=True).columns
    else:
        near = SegmentReader(store, Projection(key=False, value=False, headers=False), max_rows=_NEAR_ROWS)

        def read(copy: SegmentCopy, start: int, end: int) -> Iterator[RecordColumns]:
            return near.read(copy, start, end, chunk_bytes=_NEAR_BYTES if start > copy.base else None)

    hole: Hole | None = None
    for part in view.plan(view.start, view.end):
        if isinstance(part, Hole):
            hole = hole or part
            continue
        # Behind a hole it matters whether any record comes before the first match, so nothing is skipped there; nor in
        # the modes that look through damaged segments anyhow.
        found = _first_in(read, None if hole or tolerant else store, part, milliseconds)
        if found is not None:
            offset, is_first_record = found
            return hole.start if hole and is_first_record and after_hole else offset
        hole = None
    return None


def _first_in(
    read: Callable[[SegmentCopy, int, int], Iterator[RecordColumns]],
    times: ObjectStore | None,
    part: ReadRange,
    milliseconds: int,
) -> tuple[int, bool] | None:
    """Offset of the first match in any copy, and whether no record was met before it.

    With `times`, the store, what stands before a match is skipped as far as a `.timeindex` proves that it is none.
    """
    found: int | None = None
    first: int | None = None
    for copy in part.copies:
        if not _may_reach(copy, milliseconds):
            continue
        start = part.start
        if times is not None:
            start = max(start, first_that_may_reach(times, copy, milliseconds))
        if start >= part.end:
            continue
        for columns in read(copy, start, part.end):
            first = int(columns.offsets[0]) if first is None else min(first, int(columns.offsets[0]))
            if found is not None and int(columns.offsets[0]) >= found:
                break
            matches = np.flatnonzero(columns.timestamps >= milliseconds)
            if len(matches):
                offset = int(columns.offsets[matches[0]])
                found = offset if found is None else min(found, offset)
                break
    return None if found is None else (found, found == first)


def _may_reach(copy: SegmentCopy, milliseconds: int) -> bool:
    """Whether a copy can hold a record so late. One of the Java uploader's does not say how late its records are."""
    metadata = copy.metadata
    if metadata.time_max is None:
        return known_crc32c(metadata) is None
    return metadata.time_max >= milliseconds
