"""The first record, in the order of offsets, that has a timestamp or a later one.

Record timestamps need not ascend, so this is found by decoding: of the segments whose greatest timestamp reaches it,
the first that holds one, from where a `.timeindex` proves that all before is earlier.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa

from ts_common.catalog import SegmentCopy
from ts_common.log_format.columns import Projection
from ts_common.plan import Hole, ReadRange, with_spares
from ts_common.store.contract import ObjectStore
from ts_common.view import PartitionView
from ts_spark.reading import SegmentReader, known_crc32c
from ts_spark.times import first_that_may_reach
from ts_spark.tolerant import TolerantReader

# Where a `.timeindex` leads to, a match is an index interval away: some KB by default. So little is fetched at once,
# and looked at before more is.
_NEAR_BYTES: Final = 128 << 10
_NEAR_ROWS: Final = 512

# The offsets of a range's first record and of its first match. With the flag the first record is asked for as well;
# without, what cannot match is passed over.
_Search = Callable[[ReadRange, bool], tuple[int | None, int | None]]


def first_offset_at(
    store: ObjectStore, view: PartitionView, milliseconds: int, *, after_hole: bool = True, tolerant: bool = False
) -> int | None:
    """The offset of the first record of a view that has a timestamp or a later one; None where none has.

    Args:
        store: where its segments lie.
        view: of a partition.
        milliseconds: since 1970.
        after_hole: where no record comes between a hole and the match, or the view's end, the one that is asked for may
            be lost: answer with the hole's start, so that the loss is met.
        tolerant: pass over what is corrupt, and read the copies that stand in for it.

    Raises:
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from reading segments.
    """
    search = _tolerant_search(store, view, milliseconds) if tolerant else _search(store, milliseconds)
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


def _search(store: ObjectStore, milliseconds: int) -> _Search:
    reader = SegmentReader(store, Projection(key=False, value=False, headers=False), max_rows=_NEAR_ROWS)

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


def _tolerant_search(store: ObjectStore, view: PartitionView, milliseconds: int) -> _Search:
    reader = TolerantReader(store, ("offset", "timestamp"), silent=True)

    def search(part: ReadRange, _: bool) -> tuple[int | None, int | None]:  # all is read
        first: int | None = None
        (supported,) = with_spares([part], view.copies, view.epochs)
        for rows in reader.read(supported):
            if not isinstance(rows, pa.RecordBatch) or not rows.num_rows:
                continue
            offsets = rows.column("offset").to_numpy()
            first = int(offsets[0]) if first is None else first
            matches = np.flatnonzero(rows.column("timestamp").cast(pa.int64()).to_numpy() >= milliseconds * 1000)
            if len(matches):
                return first, int(offsets[matches[0]])
        return first, None

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
