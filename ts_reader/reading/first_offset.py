"""The first record, in the order of offsets, that has a timestamp or a later one.

Record timestamps need not ascend, so the search decodes records. It reads only segments whose greatest timestamp is
late enough, and starts after the records that a `.timeindex` proves to be earlier.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from ts_common.archive.copies import SegmentCopy
from ts_common.archive.erased_offsets import ErasedOffsets
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import Hole, ReadRange
from ts_common.archive.sealed_objects import ABSENT
from ts_common.archive.sealed_ranges import Part, SealedRun
from ts_common.archive.segment_metadata import known_crc32c
from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit
from ts_common.store.contract import ObjectStore
from ts_reader.decode.arrow_schema import MILLISECONDS
from ts_reader.decode.columns import Projection
from ts_reader.decode.kernel_arrays import Column
from ts_reader.decode.kernel_source import Int64Rows
from ts_reader.reading.rows import read_intact_rows
from ts_reader.reading.segment_reader import SegmentReader
from ts_reader.reading.time_index import first_that_may_reach

# After the start that a `.timeindex` gives, a match is at most an index interval away: some KB by default. So the
# search fetches and decodes little at once.
_NEAR_BYTES: Final = 128 << 10
_NEAR_ROWS: Final = 512
LOWEST_TIME: Final = -(1 << 63)  # ms

# Returns the offsets of a range's first record and of its first match. With the flag it finds the first record too;
# without the flag it may skip records that cannot match.
Search = Callable[[ReadRange, bool], tuple[int | None, int | None]]


def first_offset_at(
    view: PartitionView, search: Search, *, after_hole: bool = True, least: int = LOWEST_TIME
) -> int | None:
    """Return the offset of the first record of a view at or after a timestamp; None if no record is.

    Args:
        search: for that timestamp; `search_for` makes one.
        after_hole: whether to return the start of a hole if no record is between the hole and the match, or the view's
            end. The wanted record may be in that hole, and a query that starts there reports the loss.
        least: the timestamp, ms since 1970: sealed segments whose records are all earlier are not searched.

    Raises:
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from reading segments.
    """
    hole: Hole | None = None  # the first one that no record has followed
    for part in _that_may_reach(view.runs(view.start, view.end), least):
        if isinstance(part, Hole):
            hole = hole or part
            continue
        first, found = search(part, hole is not None)
        if found is not None:
            return hole.start if hole and after_hole and found == first else found
        if first is not None:
            hole = None
    return hole.start if hole and after_hole else None


def _that_may_reach(steps: Iterable[Part | Hole], least: int) -> Iterator[ReadRange | Hole]:
    """Yield steps, without rows of sealed objects that have a greatest timestamp below another one."""
    for step in steps:
        if not isinstance(step, SealedRun):
            yield step
            continue
        times = step.sealed.columns["time_max"]
        yield from (step.of_row(number) for number in step.rows if times[number] >= least or times[number] == ABSENT)


class MarkerTimes:
    """Notes the transaction markers that a decoder passes, which yields no rows of them.

    Args:
        least: ms since 1970; earlier markers are not noted.
    """

    def __init__(self, least: int = LOWEST_TIME) -> None:
        self._least = least
        self._found: dict[int, int] = {}  # timestamps by offset

    @property
    def first(self) -> int | None:
        """The least offset so far; None without a marker."""
        return min(self._found, default=None)

    def take(self, table: Int64Rows, start: int, end: int, following: int) -> None:  # noqa: ARG002  (an observer's)
        """Note the markers among the batches of a table; see `ts_reader.decode.batch_summary.BatchObserver`."""
        offsets, times = table[:, Column.BASE_OFFSET], table[:, Column.MAX_TIMESTAMP]
        is_marker = (table[:, Column.HIDDEN] == 1) & (table[:, Column.RECORD_COUNT] > 0)
        noted = is_marker & (offsets >= start) & (offsets < end) & (times >= self._least)
        self._found.update(zip(offsets[noted].tolist(), times[noted].tolist(), strict=True))

    @property
    def greatest(self) -> tuple[int, int] | None:
        """The greatest timestamp so far in ms, and the least offset that has it; None without a marker."""
        found = max(((time, -offset) for offset, time in self._found.items()), default=None)
        return None if found is None else (found[0], -found[1])

    def time_of(self, offset: int) -> int | None:
        """Return the timestamp of a marker, in ms; None if it was not passed."""
        return self._found.get(offset)


def search_for(
    store: ObjectStore,
    milliseconds: int,
    *,
    erased: ErasedOffsets,
    counts_markers: bool = False,
    way_out: str = "",
    limit: BatchLimit = DEFAULT_LIMIT,
) -> Search:
    """Return a search that fails at a corrupt batch.

    Args:
        milliseconds: since 1970.
        erased: the view's.
        counts_markers: whether a match can be a transaction marker too, as for a broker.
        way_out: as of `SegmentReader`.
    """
    projection = Projection(key=False, value=False, headers=False)
    markers = MarkerTimes(milliseconds) if counts_markers else None
    reader = SegmentReader(
        store, projection, erased=erased, max_rows=_NEAR_ROWS, way_out=way_out, limit=limit, summary=markers
    )

    def search_copy(
        part: ReadRange, copy: SegmentCopy, first_too: bool, known: int | None
    ) -> tuple[int | None, int | None]:
        """Return the first record that was read of a copy, and the first match of all copies so far."""
        first: int | None = None
        reaches = part.before is not None or _may_reach(copy, milliseconds)
        if not reaches and not first_too:
            return first, known
        is_near = first_too or part.before is not None
        start = part.start if is_near else max(part.start, first_that_may_reach(store, copy, milliseconds))
        if start >= part.end:
            return first, known
        chunk_bytes = _NEAR_BYTES if start > part.start else None
        for columns in reader.read(copy, start, part.end, chunk_bytes=chunk_bytes, before=part.before):
            begin = int(columns.offsets[0])
            first = _least(first, begin)
            if not reaches or (known is not None and begin >= known):
                break
            matches = np.flatnonzero(columns.timestamps >= milliseconds)
            if len(matches):
                return first, _least(known, int(columns.offsets[matches[0]]))
            if markers is not None and markers.first is not None:
                break
        return first, known

    def search(part: ReadRange, first_too: bool) -> tuple[int | None, int | None]:
        first: int | None = None
        found: int | None = None
        for copy in part.copies:
            begin, found = search_copy(part, copy, first_too, found)
            first = _least(first, begin)
        return first, _least(found, None if markers is None else markers.first)

    return search


def _least(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)


def tolerant_search(
    store: ObjectStore, view: PartitionView, milliseconds: int, *, limit: BatchLimit = DEFAULT_LIMIT
) -> Search:
    """Return a search that skips corrupt batches, and reads all copies; arguments as of `search_for`."""

    def search(part: ReadRange, _: bool) -> tuple[int | None, int | None]:
        first: int | None = None
        for rows in read_intact_rows(
            store, view.with_spares([part]), ("offset", MILLISECONDS), erased=view.erased, silent=True, limit=limit
        ):
            if not isinstance(rows, pa.RecordBatch) or not rows.num_rows:
                continue
            offsets = rows.column("offset").to_numpy()
            first = int(offsets[0]) if first is None else first
            matches = np.flatnonzero(rows.column(MILLISECONDS).to_numpy() >= milliseconds)
            if len(matches):
                return first, int(offsets[matches[0]])
        return first, None

    return search


def _may_reach(copy: SegmentCopy, milliseconds: int) -> bool:
    """Return whether a copy can have a record at or after a timestamp.

    A Java uploader's copy has no greatest timestamp. The one of a damaged copy covers its intact batches only.
    """
    metadata = copy.metadata
    if metadata.corruptions:
        return True
    if metadata.time_max is None:
        return known_crc32c(metadata) is None
    return metadata.time_max >= milliseconds
