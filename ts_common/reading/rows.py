"""From ranges of a plan to Arrow batches.

Copies of the same offsets, none of them whole, are merged: as far as all of them have come, rows are put in order and
each offset is taken once. What one copy has and another lacks (compaction) is so in the union.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ts_common.archive.catalog import SegmentCopy
from ts_common.archive.plan import ReadRange
from ts_common.decode.arrow import projection_of, to_arrow
from ts_common.decode.segment_decoder import MAX_ROWS
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit
from ts_common.reading.segment_reader import SegmentReader
from ts_common.store.contract import ObjectStore

_OFFSET = "offset"


def read_ranges(
    store: ObjectStore,
    ranges: Iterable[ReadRange],
    names: Sequence[str],
    aborted: Sequence[AbortedTransaction] = (),
    *,
    max_rows: int = MAX_ROWS,
    way_out: str = "",
    limit: BatchLimit = DEFAULT_LIMIT,
) -> Iterator[pa.RecordBatch]:
    """The rows of ranges of one partition, range by range, in the order of offsets, with the named columns.

    Args:
        store: where the segments lie.
        ranges: in order.
        names: of columns, as `ts_common.decode.arrow` has them.
        aborted: transactions whose records are not shown.
        max_rows: of one batch; fewer than a scan wants, where the caller may stop early.
        way_out: as of `SegmentReader`.
        limit: how much memory one record batch may take.

    Raises:
        CorruptData, BatchTooLarge: naming the object and the place.
        ObjectNotFound: retention took an object since the ranges were planned.
        StoreUnavailable, AccessDenied: the store's.
    """
    reader = SegmentReader(store, projection_of(names), aborted, max_rows=max_rows, way_out=way_out, limit=limit)
    for part in ranges:
        if len(part.copies) == 1:
            yield from _rows(reader, part, part.copies[0], names)
        else:
            yield from _merged(reader, part, names)


def _merged(reader: SegmentReader, part: ReadRange, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The union of a range's copies."""
    read = list(names) if _OFFSET in names else [*names, _OFFSET]
    yield from union([_rows(reader, part, copy, read) for copy in part.copies], names)


def union(copies: Sequence[Iterator[pa.RecordBatch]], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Rows of several copies of the same offsets, each offset once, in order.

    Args:
        copies: the rows of each, with the column `offset`.
        names: the columns of the union.
    """
    sources = [_Source(batches) for batches in copies]
    while sources := [source for source in sources if source.fill()]:
        bound = min(source.last_offset for source in sources)
        pieces = [source.take_to(bound) for source in sources]
        rows = pa.concat_batches(pieces)
        _, first = np.unique(rows.column(_OFFSET).to_numpy(), return_index=True)
        rows = rows.take(pa.array(first)).select(list(names))
        for begin in range(0, rows.num_rows, MAX_ROWS):
            yield rows.slice(begin, MAX_ROWS)


def _rows(reader: SegmentReader, part: ReadRange, copy: SegmentCopy, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """One copy's rows in a range."""
    partition = copy.keys.partition
    for columns in reader.read(copy, part.start, part.end):
        yield to_arrow(columns, partition.topic, partition.partition, names)


class _Source:
    """One copy's rows, of which the first ones are taken."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rows = pa.RecordBatch.from_pylist([])

    def fill(self) -> bool:
        """Hold at least one row; False at the end."""
        while not self._rows.num_rows:
            rows = next(self._batches, None)
            if rows is None:
                return False
            self._rows = rows
        return True

    @property
    def last_offset(self) -> int:
        """Of the rows held; the copy has come this far."""
        return int(self._rows.column(_OFFSET)[-1].as_py())

    def take_to(self, bound: int) -> pa.RecordBatch:
        """The rows up to an offset, which are then gone from here."""
        rows = self._rows
        offsets: npt.NDArray[np.int64] = rows.column(_OFFSET).to_numpy()
        count = int(np.searchsorted(offsets, bound, side="right"))
        self._rows = rows.slice(count)
        return rows.slice(0, count)
