"""From a segment's bytes, as they stream in, to columns of records.

`SegmentDecoder` is one pass over one segment or a range of it: chunks with any boundaries in, `RecordColumns` out.
A kernel lists whole batches, some dozens at a time. Then each CRC is checked, the records are decompressed, and one
call of a kernel decodes all of them into columns. Another kernel (`legacy`) lists messages of magic 0 and 1; the next
steps are the same. For bytes that are not listed, `framing.parse_header` distinguishes a part of a batch, the end, and
damage.

Traces of compaction are not damage: missing offsets, batches without records, and batches whose last offset is above
their last record's. Control batches are checked and not returned. Records of aborted transactions, which the caller
passes, are not returned either.

Bytes with a correct CRC are read as Kafka's Java consumer reads them in one fetch from the range's first offset on
(`records`, `legacy`, `codecs`); what that consumer rejects is damage. A CRC does not cover offsets of batches and of
messages that are not inside another one: these must ascend (`framing.follows`). Where records do not have the offsets
that their header promises, a producer was wrong: `contradicted` counts such batches.
"""

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
from awscrt.checksums import crc32, crc32c

from ts_common.errors import BatchTooLarge, CorruptData
from ts_common.log_format.framing import (
    ATTRIBUTES_POSITION,
    HEADER_SIZE,
    LEGACY_MAGIC_POSITION,
    MAGIC_POSITION,
    BatchHeader,
    Buffer,
    Trailing,
    batch_crc,
    crc_start,
    follows,
    parse_header,
)
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.log_format.limits import DEFAULT_LIMIT, HEADER_BYTES, BatchLimit
from ts_reader.decode.batch_index import index_batches
from ts_reader.decode.batch_summary import BatchObserver, BatchSummary
from ts_reader.decode.codecs import Scratch, check_begin
from ts_reader.decode.columns import BufferPool, ColumnBuffers, Projection, RecordColumns, new_state
from ts_reader.decode.compiled import given
from ts_reader.decode.kernel_arrays import TABLE_WIDTH, Column, CursorField, DecodeStatus
from ts_reader.decode.kernel_source import Bytes, Int64Rows
from ts_reader.decode.legacy import damage, index_messages, open_set, wrapped
from ts_reader.decode.records import decode_records, mark_erased

MAX_ROWS: Final = 32_768  # the fastest size for Spark (docs: Arrow batches)
MAX_BYTES: Final = 16 << 20  # of keys, values and headers in one RecordColumns; a larger record is alone in one
MAX_OFFSET: Final = (1 << 63) - 1
GROUP_BATCHES: Final = 64  # a call of a kernel costs microseconds, so it gets many batches ...
GROUP_BYTES: Final = 1 << 18  # ... but no more than stay in the cache between decompression and copy
_UNBOUNDED: Final = 1 << 62
_LOWEST: Final = -(1 << 63)
_DATA_START, _DATA_END, _RECORD_COUNT = (int(c) for c in (Column.DATA_START, Column.DATA_END, Column.RECORD_COUNT))

_NEEDS: Final = (CursorField.NEED_KEY_BYTES, CursorField.NEED_VALUE_BYTES, CursorField.NEED_HEADER_BYTES)

_DAMAGE: Final = {
    DecodeStatus.BAD_LENGTH: "a record's length exceeds the batch",
    DecodeStatus.BAD_FIELD: "a field's length exceeds its record",
    DecodeStatus.BAD_HEADERS: "a record's headers do not fit its length",
    DecodeStatus.BAD_MESSAGE: "a message inside it is compressed, has a wrong CRC, or its lengths do not fit its size",
    DecodeStatus.BYTES_LEFT: "bytes are left after the last record",
}


@dataclass(slots=True)
class _Passing:
    """A batch above the limit that is being skipped: its header, the bytes left, the CRC so far."""

    header: BatchHeader
    missing: int
    crc: int


class SegmentDecoder:
    """Decodes one segment once.

    Attributes:
        position: the offset after all batches that were yielded or skipped. At the end it is below `end_offset` if the
            segment ends there.
        trailing: how the segment ended; None before that, and if `end_offset` was reached first.
        valid_bytes: position in the segment after the last whole batch; after `CorruptData`, of the damaged batch.
    """

    def __init__(
        self,
        projection: Projection = Projection(),  # noqa: B008  (frozen)
        start_offset: int = 0,
        end_offset: int = MAX_OFFSET,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
        *,
        size: int | None = None,
        first_position: int = 0,
        limit: BatchLimit = DEFAULT_LIMIT,
        pool: BufferPool | None = None,
        aborted: Iterable[AbortedTransaction] = (),
        erased: Iterable[tuple[int, int, int]] = (),
        summary: BatchObserver | None = None,
        contradicted: bool = False,
    ) -> None:
        """Create a decoder for a range of offsets.

        Args:
            end_offset: the offset after the last. No byte after the batch that reaches it is read.
            max_rows: of one `RecordColumns`.
            max_bytes: of the keys, values and headers of one `RecordColumns`. A larger record is alone in one.
            size: bytes of all chunks together, if known: no batch is longer.
            first_position: position of the first chunk in the segment: a batch boundary.
            limit: of the memory that one batch may use.
            pool: buffers of the same projection, `max_rows` and `max_bytes`, to share among decoders in one thread.
            aborted: transactions whose records are left out.
            erased: runs (first offset, offset after the last, leader epoch), ascending: their records are left out,
                except those of batches with a higher leader epoch.
            summary: receives the batches that headers describe; their records are not yielded.
            contradicted: whether records can have other offsets than their headers. Then no header lets a batch
                be skipped or describes it, and batches of magic 2 are read to the last.
        """
        self.position = start_offset
        self.trailing: Trailing | None = None
        self.valid_bytes = first_position
        self._end_offset = end_offset
        self._start_offset = start_offset
        self._end_of_stream = _UNBOUNDED if size is None else first_position + size
        rows = sorted((entry.producer_id, entry.first_offset, entry.last_offset) for entry in aborted)
        self._aborted: Int64Rows = given(np.array(rows, np.int64).reshape(-1, 3))
        runs = np.array([*erased], np.int64).reshape(-1, 3)
        self._erased: Int64Rows = given(runs)
        self._has_erased = bool(len(runs))
        self._summary = None if contradicted and isinstance(summary, BatchSummary) else summary
        self._wanted_from = _LOWEST if contradicted else start_offset
        self._wanted_until = MAX_OFFSET if contradicted else end_offset
        self._limit = limit
        self._scratch = Scratch(limit)
        self._table = np.zeros((GROUP_BATCHES, TABLE_WIDTH), np.int64)
        self._given_table: Int64Rows = given(self._table)
        self._cells = memoryview(cast("Any", self._table.reshape(-1)))  # faster to set one by one
        self._pool = pool or BufferPool(projection, max_rows, max_bytes)
        self._buffers: ColumnBuffers | None = None
        self._last_offset = -1  # of the last batch so far
        self._finished = False
        self._passing: _Passing | None = None
        self._state = new_state()
        self._given_state = given(self._state)
        self._state[CursorField.NEXT_OFFSET], self._state[CursorField.END_OFFSET] = start_offset, end_offset
        self._state[CursorField.MAX_ROWS], self._state[CursorField.MAX_BYTES] = max_rows, max_bytes
        self._state[CursorField.WANT_KEY] = projection.key
        self._state[CursorField.WANT_VALUE] = projection.value
        self._state[CursorField.WANT_HEADERS] = projection.headers

    @property
    def contradicted(self) -> int:
        """The number of batches so far whose records do not have the offsets of their headers."""
        return int(self._state[CursorField.CONTRADICTED])

    @property
    def next_offset(self) -> int:
        """The least offset that a record after those so far is shown with."""
        return int(self._state[CursorField.NEXT_OFFSET])

    def decode(self, chunks: Iterable[Buffer]) -> Iterator[RecordColumns]:
        """Yield the records of the chunks in `[start_offset, end_offset)`.

        A `RecordColumns` does not change while the caller holds it or an array made of it.

        Raises:
            CorruptData: naming the batch's base offset and its position in the segment. All rows before that batch were
                yielded, and of the batch only rows of bytes with a correct CRC.
            BatchTooLarge: naming the same, after the same rows.
        """
        try:
            yield from self._decode(chunks)
        except (CorruptData, BatchTooLarge):
            yield from self._flush()
            raise
        yield from self._flush()

    def _decode(self, chunks: Iterable[Buffer]) -> Iterator[RecordColumns]:
        """Yield all columns of `decode` except the pending rows at its end."""
        carry = bytearray()  # a batch without its end so far
        for chunk in chunks:
            view = memoryview(chunk).cast("B")
            start = 0
            while (carry or self._passing is not None) and start < len(view) and not self._finished:
                if self._passing is not None:
                    start += self._pass(self._passing, view[start:])
                    continue
                if self._begin_passing(carry):
                    carry.clear()
                    continue
                taken = view[start : start + self._missing(carry)]
                carry += taken
                start += len(taken)
                if not self._missing(carry):
                    rest = yield from self._batches(memoryview(carry))
                    carry = bytearray(rest)  # old messages can be shorter than the bytes that `_missing` requires
                    if len(rest) <= len(taken):
                        start -= len(rest)
                        carry.clear()
            if not self._finished and start < len(view):
                rest = yield from self._batches(view[start:])
                carry += rest
            if self._finished:
                break
        if self._passing is not None:  # the segment ends inside it
            self.trailing, self._finished = Trailing.TORN, True
        if not self._finished:
            yield from self._decode_end(carry)

    def _decode_end(self, carry: bytearray) -> Iterator[RecordColumns]:
        """Decode the bytes behind the last whole batch of the chunks."""
        self._end_of_stream = self.valid_bytes + len(carry)
        rest = yield from self._batches(memoryview(carry))
        if not self._finished:
            self._look(rest)

    def _batches(self, view: memoryview) -> Generator[RecordColumns, None, memoryview]:
        """Decode the whole batches at the beginning of `view`; return the rest."""
        data: Bytes = given(np.frombuffer(view, np.uint8))
        origin, position = self.valid_bytes, 0
        while not self._finished:
            count, position, self._finished = self._index(data, view, position)
            if not count:
                break
            yield from self._group(data, view, count, origin)
            self.valid_bytes = origin + position
        rest = view[position:]
        if not self._finished and len(rest) >= min(HEADER_SIZE, max(self._end_of_stream - self.valid_bytes, 1)):
            header = self._look(rest)
            if header and header.size_in_bytes <= len(rest):
                raise CorruptData(f"{_named(header.base_offset, self.valid_bytes)}: {damage(rest, header)}")
        return rest

    def _index(self, data: Bytes, view: memoryview, position: int) -> tuple[int, int, bool]:
        """List batches from `position` on, or messages of magic 0 and 1, depending on the first one."""
        end, start, last = len(view), self._wanted_from, self._last_offset
        found: tuple[int, int, bool]
        if position + MAGIC_POSITION < end and view[position + MAGIC_POSITION] < 2:
            if self._state[CursorField.NEXT_OFFSET] >= self._end_offset:
                return 0, position, True
            found = index_messages(data, position, end, start, self._end_offset, last, self._given_table)
        else:
            found = index_batches(
                data, position, end, start, self._wanted_until, last, self._aborted, self._given_table
            )
        return found

    def _missing(self, carry: bytearray) -> int:
        """Return how many more bytes the carried batch needs."""
        held = len(carry)
        if held < HEADER_SIZE:
            return HEADER_SIZE - held
        header = self._look(memoryview(carry))
        return max(header.size_in_bytes - held, 0) if header else 0

    def _begin_passing(self, carry: bytearray) -> bool:
        """Return whether the carried bytes begin a batch above the limit; if so, no more of it is kept."""
        header = self._look(memoryview(carry)) if len(carry) >= HEADER_SIZE else None
        if header is None or header.size_in_bytes <= self._limit.most:
            return False
        if header.base_offset >= self._end_offset:
            self._finished = True
            return False
        crc = batch_crc(header.magic, memoryview(carry)[crc_start(header.magic) :])
        self._passing = _Passing(header, header.size_in_bytes - len(carry), crc)
        return True

    def _pass(self, passing: "_Passing", view: memoryview) -> int:
        """Read the bytes in `view` of a batch that is skipped; return their number.

        At its end, an unwanted batch with a correct CRC is skipped. A wanted batch is an error that names the option.
        """
        piece, header = view[: passing.missing], passing.header
        passing.crc = batch_crc(header.magic, piece, passing.crc)
        passing.missing -= len(piece)
        if passing.missing:
            return len(piece)
        named = _named(header.base_offset, self.valid_bytes)
        if passing.crc != header.crc:
            raise CorruptData(f"{named}: CRC {passing.crc:08x}; its header has {header.crc:08x}")
        if header.last_offset >= self._start_offset and not header.is_control:
            self._limit.refuse(f"{named}: it has {header.size_in_bytes} bytes")
        self._passing = None
        self._last_offset = header.last_offset
        self.valid_bytes += header.size_in_bytes
        if not self._state[CursorField.ROWS]:
            self._advance()
        return len(piece)

    def _look(self, rest: memoryview) -> BatchHeader | None:
        """Return the header after the last batch, or None at the end."""
        place = self.valid_bytes
        header = parse_header(rest, 0, self._end_of_stream - place, place)
        if isinstance(header, Trailing):
            self.trailing = header
            self._finished = True
            return None
        if not follows(header, self._last_offset):
            named = _named(header.base_offset, place)
            raise CorruptData(f"{named}: the batches before it end at {self._last_offset}")
        return header

    def _group(self, data: Bytes, view: memoryview, count: int, origin: int) -> Iterator[RecordColumns]:
        """Check, decompress and decode the batches of the table."""
        scratch, cells, most = self._scratch, self._cells, self._limit.most
        if self._summary is not None:
            if self._has_erased:
                mark_erased(self._table[:count], self._erased)
            following = int(self._state[CursorField.NEXT_OFFSET])
            self._summary.take(self._table[:count], self._start_offset, self._end_offset, following)
        scratch.clear()
        self._state[CursorField.BATCH] = self._state[CursorField.RECORD] = 0
        for index, (position, end, crc, codec, magic) in enumerate(self._table[:count, : Column.DATA_START].tolist()):
            if magic < 2 and not codec:
                continue  # `index_messages` has checked them
            try:
                if magic < 2:
                    actual = crc32(view[position + LEGACY_MAGIC_POSITION : end])
                else:
                    actual = crc32c(view[position + ATTRIBUTES_POSITION : end])
                if actual != crc:
                    raise CorruptData(f"CRC {actual:08x}; its header has {crc:08x}")
                if end - position > most and self._table[index, Column.LAST_OFFSET] >= self._start_offset:
                    self._limit.refuse(f"it has {end - position} bytes")
                if codec > 0:
                    body = view[position + HEADER_SIZE : end] if magic >= 2 else wrapped(view[position:end])
                    if not cells[index * TABLE_WIDTH + _RECORD_COUNT] and magic >= 2:
                        check_begin(codec, body)
                        continue
                    start = scratch.end
                    while not scratch.add(codec, body, magic):
                        yield from self._records(data, index, origin)
                        scratch.clear()
                        start = 0
                    cells[index * TABLE_WIDTH + _DATA_START] = start
                    cells[index * TABLE_WIDTH + _DATA_END] = scratch.end
                    if magic < 2:
                        self._open_set(index, start, magic)
            except (CorruptData, BatchTooLarge) as error:
                yield from self._records(data, index, origin)
                self.valid_bytes = origin + position
                raise type(error)(f"{self._name(index, origin)}: {error}") from error
            if scratch.end >= GROUP_BYTES:
                yield from self._records(data, index + 1, origin)
                scratch.clear()
        yield from self._records(data, count, origin)

    def _open_set(self, index: int, start: int, magic: int) -> None:
        """Find the messages inside a compressed one, and complete its row."""
        row = self._table[index]
        wrapper_offset = int(row[Column.LAST_OFFSET])
        base, count, end = open_set(self._scratch.array, start, self._scratch.end, magic, wrapper_offset)
        row[Column.RECORDS_BASE], row[Column.RECORD_COUNT], row[Column.DATA_END] = base, count, end

    def _records(self, data: Bytes, stop: int, origin: int) -> Iterator[RecordColumns]:
        """Decode the records of the table's batches up to `stop` into columns; yield those that are full."""
        state = self._state
        while state[CursorField.BATCH] < stop:
            buffers = self._buffers = self._buffers or self._pool.take()
            status = decode_records(
                data, self._scratch.given, self._given_table, self._erased, stop, self._given_state, *buffers.given
            )
            if status == DecodeStatus.NO_ROOM:
                index = int(state[CursorField.BATCH])
                needed = sum(int(state[each]) for each in _NEEDS) + HEADER_BYTES * int(state[CursorField.NEED_HEADERS])
                if needed > self._limit.most:
                    self.valid_bytes = origin + int(self._table[index, Column.POSITION])
                    self._limit.refuse(f"{self._name(index, origin)}: one of its records needs {needed} bytes")
                buffers.make_room(state)
            elif status < 0:
                index = int(state[CursorField.BATCH])
                self.valid_bytes = origin + int(self._table[index, Column.POSITION])
                if index:
                    self._last_offset = int(self._table[index - 1, Column.LAST_OFFSET])
                raise CorruptData(f"{self._name(index, origin)}: {_DAMAGE[DecodeStatus(status)]}")
            elif status == DecodeStatus.FULL:
                yield self._emit(buffers)
        if stop:
            self._last_offset = int(self._table[stop - 1, Column.LAST_OFFSET])
        if not state[CursorField.ROWS]:
            self._advance()

    def _flush(self) -> Iterator[RecordColumns]:
        if self._buffers and self._state[CursorField.ROWS]:
            yield self._emit(self._buffers)
        self._advance()

    def _emit(self, buffers: ColumnBuffers) -> RecordColumns:
        """Return the pending rows, which the caller may hold, and move `position` after them."""
        self._buffers = None
        columns = buffers.columns(self._state)
        self._state[CursorField.ROWS : CursorField.NEXT_OFFSET] = 0
        self.position = int(columns.offsets[-1]) + 1
        return columns

    def _advance(self) -> None:
        """Move `position` after all batches so far; called without pending rows."""
        self.position = max(self.position, min(self._last_offset + 1, self._end_offset))

    def _name(self, index: int, origin: int) -> str:
        row = self._table[index]
        return _named(int(row[Column.BASE_OFFSET]), origin + int(row[Column.POSITION]))


def _named(base_offset: int, position: int) -> str:
    return f"batch of base offset {base_offset} at position {position}"
