"""The first record with a timestamp or a later one, by the query's tolerance of corrupt batches."""

import numpy as np
import pyarrow as pa

from ts_common.archive.plan import ReadRange
from ts_common.archive.view import PartitionView
from ts_common.store.contract import ObjectStore
from ts_reader.decode.arrow_schema import MILLISECONDS
from ts_reader.query.query import Query
from ts_reader.reading.first_offset import Search, first_offset_at, search_for
from ts_reader.reading.rows import read_intact_rows


def first_offset_of(
    store: ObjectStore, view: PartitionView, milliseconds: int, query: Query, *, after_hole: bool = True
) -> int | None:
    """Return what `first_offset_at` returns; a tolerant query skips corrupt batches and reads other copies.

    Raises:
        CorruptData, BatchTooLarge, ObjectNotFound, StoreUnavailable, AccessDenied: from reading segments.
    """
    if query.tolerance.fails:
        way_out = query.wording.despite_corruption
        search = search_for(store, milliseconds, way_out=way_out, limit=query.limit)
    else:
        search = _tolerant_search(store, view, milliseconds, query)
    return first_offset_at(view, search, after_hole=after_hole)


def _tolerant_search(store: ObjectStore, view: PartitionView, milliseconds: int, query: Query) -> Search:
    def search(part: ReadRange, _: bool) -> tuple[int | None, int | None]:  # reads all of the range
        first: int | None = None
        ranges = view.with_spares([part])
        for rows in read_intact_rows(store, ranges, ("offset", MILLISECONDS), silent=True, limit=query.limit):
            if not isinstance(rows, pa.RecordBatch) or not rows.num_rows:
                continue
            offsets = rows.column("offset").to_numpy()
            first = int(offsets[0]) if first is None else first
            matches = np.flatnonzero(rows.column(MILLISECONDS).to_numpy() >= milliseconds)
            if len(matches):
                return first, int(offsets[matches[0]])
        return first, None

    return search
