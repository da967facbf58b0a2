"""The timestamp of one record of a view."""

from ts_common.archive.plan import ReadRange
from ts_common.archive.view import PartitionView
from ts_common.decode.columns import Projection
from ts_common.reading.segment_reader import SegmentReader
from ts_common.store.contract import ObjectStore

_NEAR_BYTES = 128 << 10


def time_at(store: ObjectStore, view: PartitionView, offset: int) -> int | None:
    """Return the timestamp of the record at an offset, in ms; None if no copy has it.

    Raises:
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from reading the segment.
    """
    reader = SegmentReader(store, Projection(key=False, value=False, headers=False), max_rows=1)
    for step in view.plan(offset, offset + 1):
        for copy in step.copies if isinstance(step, ReadRange) else ():
            for columns in reader.read(copy, offset, offset + 1, chunk_bytes=_NEAR_BYTES):
                if len(columns.offsets) and int(columns.offsets[0]) == offset:
                    return int(columns.timestamps[0])
    return None
