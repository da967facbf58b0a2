"""The first record, in the order of offsets, that has a timestamp or a later one.

Record timestamps need not ascend, so this is found by decoding: of the segments whose greatest timestamp reaches it,
the first that holds one, from where a `.timeindex` proves that all before is earlier.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from ts_common.archive.copies import SegmentCopy
from ts_common.archive.plan import Hole, ReadRange
from ts_common.archive.segment_metadata import known_crc32c
from ts_common.archive.view import PartitionView
from ts_common.decode.columns import Projection
from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit
from ts_common.reading.segment_reader import SegmentReader
from ts_common.reading.time_index import first_that_may_reach
from ts_common.store.contract import ObjectStore

# Where a `.timeindex` leads to, a match is an index interval away: some KB by default. So little is fetched at once,
# and looked at before more is.
_NEAR_BYTES: Final = 128 << 10
_NEAR_ROWS: Final = 512

# The offsets of a range's first record and of its first match. With the flag the first record is asked for as well;
# without, what cannot match is passed over.
Search = Callable[[ReadRange, bool], tuple[int | None, int | None]]


def first_offset_at(view: PartitionView, search: Search, *, after_hole: bool = True) -> int | None:
    """The offset of the first record of a view that has a timestamp or a later one; None where none has.

    Args:
        view: of a partition.
        search: for that timestamp; `search_for` makes one.
        after_hole: where no record comes between a hole and the match, or the view's end, the one that is asked for may
            be lost: answer with the hole's start, so that the loss is met.

    Raises:
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from reading segments.
    """
    hole: Hole | None = None  # the first one that no record has followed
    for part in view.plan(view.start, view.end):
        if isinstance(part, Hole):
            hole = hole or part
            continue
        first, found = search(part, hole is not None)
        if found is not None:
            return hole.start if hole and after_hole and found == first else found
        if first is not None:
            hole = None
    return hole.start if hole and after_hole else None


def search_for(
    store: ObjectStore,
    milliseconds: int,
    *,
    way_out: str = "",
    limit: BatchLimit = DEFAULT_LIMIT,
) -> Search:
    """A search that a corrupt batch ends.

    Args:
        store: where the segments lie.
        milliseconds: since 1970.
        way_out: as of `SegmentReader`.
        limit: how much memory one record batch may take.
    """
    projection = Projection(key=False, value=False, headers=False)
    reader = SegmentReader(store, projection, max_rows=_NEAR_ROWS, way_out=way_out, limit=limit)

    def search(part: ReadRange, first_too: bool) -> tuple[int | None, int | None]:
        found: int | None = None
        first: int | None = None
        for copy in part.copies:
            reaches = _may_reach(copy, milliseconds)
            if not reaches and not first_too:
                continue
            start = part.start if first_too else max(part.start, first_that_may_reach(store, copy, milliseconds))
            chunk_bytes = _NEAR_BYTES if start > part.start else None
            for columns in reader.read(copy, start, part.end, chunk_bytes=chunk_bytes) if start < part.end else ():
                begin = int(columns.offsets[0])
                first = begin if first is None else min(first, begin)
                if not reaches or (found is not None and begin >= found):
                    break
                matches = np.flatnonzero(columns.timestamps >= milliseconds)
                if len(matches):
                    offset = int(columns.offsets[matches[0]])
                    found = offset if found is None else min(found, offset)
                    break
        return first, found

    return search


def _may_reach(copy: SegmentCopy, milliseconds: int) -> bool:
    """Whether a copy can hold a record so late.

    One of the Java uploader's does not say how late its records are; of a damaged one only what is whole was looked at.
    """
    metadata = copy.metadata
    if metadata.corruptions:
        return True
    if metadata.time_max is None:
        return known_crc32c(metadata) is None
    return metadata.time_max >= milliseconds
