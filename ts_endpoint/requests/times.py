"""Timestamps of a view, of records and of transaction markers: the one at an offset, and the greatest of all."""

from math import inf

from ts_common.archive.erased_offsets import ErasedOffsets
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import ReadRange
from ts_common.archive.segment_metadata import known_crc32c
from ts_common.log_format.framing import NO_TIMESTAMP
from ts_common.store.contract import ObjectStore
from ts_reader.decode.columns import Projection
from ts_reader.reading.first_offset import MarkerTimes, search_for
from ts_reader.reading.segment_reader import SegmentReader

_NEAR_BYTES = 128 << 10
_TIMES_ALONE = Projection(key=False, value=False, headers=False)


def time_at(store: ObjectStore, view: PartitionView, offset: int) -> int | None:
    """Return the timestamp of the record or the marker at an offset, in ms; None if no copy has it.

    Raises:
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from reading the segment.
    """
    markers = MarkerTimes()
    reader = SegmentReader(store, _TIMES_ALONE, erased=view.erased, max_rows=1, summary=markers)
    for step in view.plan(offset, offset + 1):
        if not isinstance(step, ReadRange):
            continue
        for copy in step.copies:
            for columns in reader.read(copy, offset, offset + 1, chunk_bytes=_NEAR_BYTES, before=step.before):
                if len(columns.offsets) and int(columns.offsets[0]) == offset:
                    return int(columns.timestamps[0])
    return markers.time_of(offset)


def greatest_time(store: ObjectStore, view: PartitionView) -> tuple[int, int] | None:
    """Return the greatest timestamp of a view in ms, and the first offset that has it; None without a timestamp.

    Transaction markers count: a broker returns the greatest timestamp of all batches. The metadata of a segment has it
    too, but it can be of a dead tail, or outside of the view. So it is an upper bound, and segments are read until
    no bound is above what was found.

    Returns:
        timestamp and offset.

    Raises:
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from reading segments.
    """
    ranges = view.ranges(view.start, view.end)
    best: tuple[int, int] | None = None
    for bound, step in sorted(((_bound(each), each) for each in ranges), key=lambda each: (-each[0], each[1].start)):
        if best is not None and (bound < best[0] or (bound == best[0] and step.start > best[1])):
            continue
        found = _greatest_of(store, step, view.erased, bound)
        best = best if found is None else _greater(best, found)
    return best


def _bound(step: ReadRange) -> float:
    """Return a timestamp that no record or marker of a range exceeds."""
    found = -inf
    for copy in step.copies:
        latest, is_unread = copy.metadata.time_max, known_crc32c(copy.metadata) is None
        if copy.metadata.corruptions or (latest is None and is_unread):
            return inf
        found = max(found, -inf if latest is None else latest)
    return found


def _greatest_of(store: ObjectStore, step: ReadRange, erased: ErasedOffsets, bound: float) -> tuple[int, int] | None:
    if bound == -inf:
        return None
    if bound < inf:  # nearly always the range has it, and the `.timeindex` leads to it
        _, offset = search_for(store, int(bound), erased=erased, counts_markers=True)(step, False)
        if offset is not None:
            return int(bound), offset
    markers = MarkerTimes()
    reader = SegmentReader(store, _TIMES_ALONE, erased=erased, summary=markers)
    best: tuple[int, int] | None = None
    for copy in step.copies:
        for columns in reader.read(copy, step.start, step.end, before=step.before):
            at = int(columns.timestamps.argmax())
            if columns.timestamps[at] != NO_TIMESTAMP:
                best = _greater(best, (int(columns.timestamps[at]), int(columns.offsets[at])))
    return best if markers.greatest is None else _greater(best, markers.greatest)


def _greater(one: tuple[int, int] | None, other: tuple[int, int]) -> tuple[int, int]:
    """Return the pair of timestamp and offset with the greater timestamp; of two equal ones, with the lower offset."""
    return other if one is None or (other[0], -other[1]) > (one[0], -one[1]) else one
