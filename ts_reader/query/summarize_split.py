"""The totals of a split's rows, by the headers of its batches where these suffice.

All bytes of the split's ranges are fetched, because a request for each header costs more than the bytes between two of
them, and each CRC is checked. Records are decompressed only of batches whose header does not suffice. Ranges of several
copies, tolerant queries, cuts and the newest records of keys are decoded as for their rows.
"""

import pyarrow as pa

from ts_common.archive.plan import ReadRange
from ts_common.store.contract import ObjectStore
from ts_reader.decode.arrow_schema import MILLISECONDS
from ts_reader.decode.batch_summary import BatchSummary
from ts_reader.decode.columns import Projection
from ts_reader.query.policies import View
from ts_reader.query.read_split import read_split
from ts_reader.query.split import Split
from ts_reader.query.totals import Detail, Totals
from ts_reader.reading.rows import read_ranges
from ts_reader.reading.segment_reader import SegmentReader

_COLUMNS = ("offset", MILLISECONDS)
_NO_FIELDS = Projection(key=False, value=False, headers=False)


def summarize_split(store: ObjectStore, split: Split, detail: Detail, corrupt_column: str | None = None) -> Totals:
    """Return the totals of a split's rows.

    Args:
        store: of the split's location.
        split: what to read.
        detail: what is wanted; other attributes of the totals are undefined.
        corrupt_column: the column with a row for each corrupt place; None if such places have no row.

    Raises:
        CorruptData, BatchTooLarge, ObjectNotFound, StoreUnavailable, AccessDenied: as
            `ts_reader.query.read_split.read_split`.
    """
    totals = Totals()
    if split.view is View.LATEST or not split.tolerance.fails or split.until is not None:
        names = _COLUMNS if corrupt_column is None else (*_COLUMNS, corrupt_column)
        for rows in read_split(store, split, names):
            totals.add(_of_rows(rows))
        return totals
    summary = BatchSummary(detail >= Detail.HEADERS, detail >= Detail.ALL)
    reader = _reader(store, split, summary)
    for part in split.ranges:
        if len(part.copies) == 1:
            for columns in reader.read(part.copies[0], part.start, part.end, before=part.before):
                summary.add(columns.offsets, columns.timestamps)
        else:
            for rows in read_ranges(
                store, [part], _COLUMNS, split.aborted, way_out=split.way_out, limit=split.limit, scan=split.scan
            ):
                totals.add(_of_rows(rows))
    if summary.rows:
        totals.add(Totals(summary.rows, summary.first, summary.last, summary.least, summary.greatest))
    if detail >= Detail.HEADERS and (base := summary.sparse) is not None and base > totals.last:
        totals.last = _last_of(store, split, base)
    return totals


def _reader(store: ObjectStore, split: Split, summary: BatchSummary | None = None) -> SegmentReader:
    return SegmentReader(
        store, _NO_FIELDS, split.aborted, way_out=split.way_out, limit=split.limit, summary=summary, scan=split.scan
    )


def _last_of(store: ObjectStore, split: Split, base: int) -> int:
    """Return the offset of the last record of a split; the batch with this base offset has it."""
    part: ReadRange = next(part for part in split.ranges if part.start <= base < part.end)
    (copy,) = part.copies
    return max(int(columns.offsets[-1]) for columns in _reader(store, split).read(copy, base, part.end))


def _of_rows(rows: pa.RecordBatch) -> Totals:
    if not rows.num_rows:
        return Totals()
    offsets = rows.column("offset").to_numpy()
    totals = Totals(rows.num_rows, int(offsets.min()), int(offsets.max()))
    timestamps = rows.column(MILLISECONDS).drop_null().to_numpy()
    if len(timestamps):
        totals.least, totals.greatest = int(timestamps.min()), int(timestamps.max())
    return totals
