"""Record batches of the rows that a reader returns for a range of a plan.

The bytes of one copy do not have these rows if several copies are merged, if a batch reaches beyond the living part of
its copy, or if another copy replaces a damaged one. Then the rows are read and encoded.

The batches are contiguous. The last offset of each covers the offsets without a record before the next batch, so a
client's position always advances. A batch has one leader epoch, and covers no offset of a later epoch. Otherwise a
client that validates its position (KIP-320) would find a truncated log.
"""

from bisect import bisect_right
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from ts_common.archive.epoch_history import NO_EPOCH, EpochHistory
from ts_common.archive.erased_offsets import ErasedOffsets
from ts_common.archive.plan import ReadRange
from ts_common.errors import BatchTooLarge, CorruptData
from ts_common.log_format.framing import HEADER_SIZE
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.log_format.limits import BatchLimit
from ts_common.store.contract import ObjectStore
from ts_endpoint.records.encoding import MOST_DELTA, Batch, Row, empty_batch
from ts_reader.decode.arrow_schema import HEADERS, MILLISECONDS
from ts_reader.reading.damage_map import Corruption
from ts_reader.reading.rows import read_intact_rows, read_ranges

BATCH_BYTES: Final = 1 << 20
_LOT_ROWS: Final = 4096  # of one decoded lot: a client may want few of them
_MOST_DECODED_BYTES: Final = 16 << 20  # of one batch; a copy of each record is made for each step
_COLUMNS: Final = ("offset", MILLISECONDS, "timestampType", "key", "value", HEADERS)


class _Limit(BatchLimit):
    """The largest batch that is decoded, in bytes; 2 KB of zstd can contain 60 MB."""

    def refuse(self, what: str) -> NoReturn:
        """Raise the error for a larger batch."""
        raise BatchTooLarge(f"{what}, and the endpoint decodes at most {self.most}: read it with `tsctl cat` or Spark")


MOST_DECODED: Final = _Limit(_MOST_DECODED_BYTES)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Record batches, and the offsets that they cover.

    Attributes:
        data: whole batches of magic 2.
        end: the offset after the last one that they cover.
    """

    data: bytes
    end: int


def rewrite(
    store: ObjectStore,
    part: ReadRange,
    start: int,
    end: int,
    epochs: EpochHistory,
    *,
    erased: ErasedOffsets,
    aborted: Sequence[AbortedTransaction] = (),
    max_bytes: int,
    tolerant: bool = False,
) -> Rewritten:
    """Return record batches of the rows of a range from an offset on.

    Args:
        part: the range; with `tolerant` with its spares (`ts_common.archive.plan.with_spares`).
        start: the first offset that the batches cover; in the range.
        end: the offset after the last; above `start`, and at most the end of the range.
        epochs: the epochs of the view; they give each batch its leader epoch.
        erased: offsets whose records are left out.
        aborted: transactions whose records are left out.
        max_bytes: of the batches; the first record can exceed it.
        tolerant: whether intact copies are read where a copy is damaged. The batches then end before the first offset
            that no copy holds intact.

    Returns:
        the batches. Their end is below `end` only after `max_bytes`, or before damage.

    Raises:
        CorruptData: a copy is damaged; with `tolerant` only if no copy holds `start` intact.
        BatchTooLarge: a stored batch has, or decompresses to, more than 16 MiB.
        ObjectNotFound: retention deleted an object since the range was planned.
        StoreUnavailable, AccessDenied: from the store.
    """
    part = replace(part, start=start, end=end)
    written = _Writer(start, epochs, max_bytes)
    with closing(_lots(store, part, aborted, erased, tolerant=tolerant)) as lots:
        for lot in lots:
            if isinstance(lot, Corruption):
                if lot.start <= start:
                    raise CorruptData(
                        f"{lot.copy.keys.partition}: {lot.copy.key} in {store.location}: no copy holds offsets "
                        f"{lot.start} to {lot.end - 1} intact: {lot.reason}"
                    )
                written.cover(lot.start)
                break
            if not all(map(written.add, _rows(lot))):
                break
        else:
            written.cover(end)
    return written.result()


def _lots(
    store: ObjectStore,
    part: ReadRange,
    aborted: Sequence[AbortedTransaction],
    erased: ErasedOffsets,
    *,
    tolerant: bool,
) -> Generator[pa.RecordBatch | Corruption, None, None]:
    """Yield the rows of a range in small lots, and with `tolerant` what no copy holds intact."""
    if tolerant:
        yield from read_intact_rows(
            store, [part], _COLUMNS, aborted, erased=erased, max_rows=_LOT_ROWS, limit=MOST_DECODED
        )
    else:
        yield from read_ranges(store, [part], _COLUMNS, aborted, erased=erased, max_rows=_LOT_ROWS, limit=MOST_DECODED)


def _rows(lot: pa.RecordBatch) -> Iterable[Row]:
    """Return the rows of a decoded lot, which has `_COLUMNS`."""
    offsets, milliseconds, types, keys, values = (lot.column(name).to_pylist() for name in _COLUMNS[:-1])
    return map(Row, offsets, milliseconds, types, keys, values, _headers(lot.column(HEADERS)))


def _headers(column: pa.ListArray) -> Iterable[Sequence[tuple[bytes, bytes | None]]]:
    """Return the headers of each row."""
    if column.null_count == len(column):
        return [()] * len(column)
    names, values = column.flatten().flatten()
    pairs = list(zip(names.cast(pa.binary()).to_pylist(), values.to_pylist(), strict=True))
    counts = pc.fill_null(pc.list_value_length(column), 0).to_pylist()
    headers, begin = [], 0
    for count in counts:
        headers.append(pairs[begin : begin + count])
        begin += count
    return headers


class _Writer:
    """Encodes rows as contiguous batches from an offset on."""

    def __init__(self, start: int, epochs: EpochHistory, max_bytes: int) -> None:
        self._epochs = epochs
        self._max_bytes = max_bytes
        self._data: list[bytes] = []
        self._size = 0
        self._position = start  # the end of the encoded batches
        self._batch: Batch | None = None
        self._epoch_end: int | None = None  # of the open batch

    def add(self, row: Row) -> bool:
        """Add a row; return False if no more rows are wanted."""
        if self._batch is not None:
            if (self._epoch_end is None or row.offset < self._epoch_end) and self._batch.add(row):
                return True
            self._close(row.offset)
        while row.offset - self._position > MOST_DELTA:
            if self._is_full:
                return False
            self._skip_to(row.offset)
        room = self._max_bytes - self._size
        epoch, epoch_end = self._epoch(row.offset)
        batch = Batch(self._position, epoch, min(BATCH_BYTES, room))
        batch.add(row)
        if self._size and batch.size > room:
            return False
        self._batch, self._epoch_end = batch, epoch_end
        return True

    def cover(self, end: int) -> None:
        """Cover the offsets below `end`, which have no further row; not those for which `max_bytes` has no room."""
        if self._batch is not None:
            self._close(end)
        while self._position < end and not self._is_full:
            self._skip_to(end)

    def result(self) -> Rewritten:
        """Return the encoded batches."""
        return Rewritten(b"".join(self._data), self._position)

    @property
    def _is_full(self) -> bool:
        return self._size > 0 and self._size + HEADER_SIZE > self._max_bytes

    def _close(self, end: int) -> None:
        """Encode the open batch; it covers the offsets below `end`, as far as its epoch and an int32 allow."""
        batch = self._batch
        if batch is None:
            raise ValueError("no batch is open")
        ends = [end, batch.base + MOST_DELTA + 1]
        if self._epoch_end is not None:
            ends.append(self._epoch_end)
        self._append(batch.encode(min(ends)), min(ends))
        self._batch = None

    def _skip_to(self, offset: int) -> None:
        """Append a batch without records, which covers offsets below `offset`."""
        end = min(offset, self._position + MOST_DELTA + 1)
        self._append(empty_batch(self._position, end, self._epoch(end - 1)[0]), end)

    def _append(self, data: bytes, end: int) -> None:
        self._data.append(data)
        self._size += len(data)
        self._position = end

    def _epoch(self, offset: int) -> tuple[int, int | None]:
        """Return the leader epoch of an offset, -1 if unknown, and its end; None if it has no end."""
        pairs = self._epochs.pairs
        index = bisect_right(pairs, offset, key=itemgetter(1))
        end = pairs[index][1] if index < len(pairs) else None
        return pairs[index - 1][0] if index else NO_EPOCH, end
