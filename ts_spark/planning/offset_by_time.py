"""The first record with a timestamp or a later one, in the modes in which a corrupt batch does not end a query."""

import numpy as np
import pyarrow as pa

from ts_common.archive.plan import ReadRange, with_spares
from ts_common.archive.view import PartitionView
from ts_common.log_format.limits import BatchLimit
from ts_common.reading.first_offset import Search, first_offset_at, search_for
from ts_common.store.contract import ObjectStore
from ts_spark.executor.corruption_tolerant import TolerantReader
from ts_spark.options.modes import WAY_OUT, Tolerance


def first_offset_of(
    store: ObjectStore,
    view: PartitionView,
    milliseconds: int,
    tolerance: Tolerance,
    limit: BatchLimit,
    *,
    after_hole: bool = True,
) -> int | None:
    """As `first_offset_at`; where corrupt batches are tolerated, what is corrupt is passed over, and the copies that
    stand in for it are read.

    Raises:
        CorruptData, BatchTooLarge, ObjectNotFound, StoreUnavailable, AccessDenied: from reading segments.
    """
    if tolerance.fails:
        search = search_for(store, milliseconds, way_out=WAY_OUT, limit=limit)
    else:
        search = _tolerant_search(store, view, milliseconds, limit)
    return first_offset_at(view, search, after_hole=after_hole)


def _tolerant_search(store: ObjectStore, view: PartitionView, milliseconds: int, limit: BatchLimit) -> Search:
    reader = TolerantReader(store, ("offset", "timestamp"), silent=True, limit=limit)

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
