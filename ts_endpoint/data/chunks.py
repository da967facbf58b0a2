"""Chunks: whole record batches of a segment, as they are in the store, with their boundaries and checked CRCs.

A chunk is read from an object once, into memory of its own, and is never copied again: a reply has views of it. Batches
of magic 2 are listed by the decoder's kernel, messages of magic 0 and 1 by their headers.

Checked are each batch's CRC, that offsets rise inside the coverage, that leader epochs are those of the metadata, and
that a copy with every offset has no gap: base offset, length and leader epoch are outside of a batch's CRC.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from awscrt.checksums import crc32c

from ts_common.archive.copies import SegmentCopy
from ts_common.errors import BatchTooLarge, CorruptData
from ts_common.log_format.framing import (
    ATTRIBUTES_POSITION,
    HEADER_SIZE,
    BatchHeader,
    Trailing,
    batch_crc,
    batch_field_position,
    crc_start,
    frame_size,
    parse_header,
)
from ts_common.store.contract import ObjectStore
from ts_reader.decode.batch_index import index_batches
from ts_reader.decode.kernel_arrays import TABLE_WIDTH, Column
from ts_reader.decode.memory import HEAP, Memory

CHUNK_BYTES: Final = 2 << 20
FIRST_BYTES: Final = 256 << 10  # of a read that begins inside a segment, and may end there
# The first request of such a read ends here; a reader that continues gets one request to the segment's end.
FIRST_REQUEST_BYTES: Final = 2 << 20
_EPOCH_BYTES: Final = np.arange(4) + batch_field_position("leader_epoch")
_ROWS: Final = 512
_NONE_ABORTED: Final = np.empty((0, 3), np.int64)
_LOWEST: Final = -(1 << 62)
_HIGHEST: Final = 1 << 62

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Consecutive batches of a copy.

    Attributes:
        covers_from: the first offset that no earlier batch of the copy can have.
        covers_to: the offset after the last one of the last batch; at the segment's end, the end of the coverage.
        starts: position of each batch in `data`.
        ends: position after each batch in `data`.
        bases: base offset of each batch; of a compressed message of magic 0 or 1, its last offset.
        lasts: last offset of each batch.
        position: in the object, after the last batch.
        held: bytes of memory that the chunk keeps, of its batches and of what was read with them.
    """

    data: memoryview
    covers_from: int
    covers_to: int
    starts: Offsets
    ends: Offsets
    bases: Offsets
    lasts: Offsets
    position: int
    held: int


class ChunkReader:
    """Reads the chunks of a copy in order, on one thread at a time.

    Args:
        position: of a batch in the object, by the `.index`; it is checked when the first chunk is read.
        offset: that the read begins with.
        most_bytes: of one batch.
    """

    def __init__(
        self,
        store: ObjectStore,
        copy: SegmentCopy,
        position: int,
        offset: int,
        most_bytes: int,
        memory: Memory = HEAP,
    ) -> None:
        self._memory = memory
        self._store = store
        self._copy = copy
        self._most_bytes = most_bytes
        self._offset = offset
        self._table = np.empty((_ROWS, TABLE_WIDTH), np.int64)
        epochs = copy.metadata.epochs
        self._epochs = np.array([epoch for epoch, _ in epochs], np.int64) if epochs else None
        self._epoch_starts = np.array([first for _, first in epochs or ()], np.int64)
        self._begin(position)

    def _begin(self, position: int) -> None:
        self._position = position  # of the first byte that no chunk has
        self._carry = b""  # bytes from there on that were read
        self._last = self._copy.base - 1 if position == 0 else _LOWEST  # last offset so far
        self._is_first = True
        end = position + FIRST_REQUEST_BYTES if position else None
        self._limit = end if end is not None and end < self._copy.segment.size else None
        self._object = self._copy.reader(self._store, position, self._limit)

    def read(self) -> Chunk | None:
        """Return the next chunk; None at the end of the segment.

        Raises:
            CorruptData: the object is damaged from here on.
            BatchTooLarge: a batch is larger than the limit.
            ObjectNotFound, StoreUnavailable, AccessDenied: from the store.
        """
        try:
            return self._read()
        except CorruptData:
            if not (self._is_first and self._position):
                raise
        self.close()  # the `.index` is wrong: it costs time, never records
        self._begin(0)
        return self._read()

    def close(self) -> None:
        """Release the connection."""
        self._object.close()

    def _read(self) -> Chunk | None:
        size = self._copy.segment.size
        wanted = FIRST_BYTES if self._is_first and self._position else CHUNK_BYTES
        while True:
            remaining = size - self._position
            if remaining <= 0:
                self._check_end(Trailing.NONE)
                return None
            buffer = self._buffer(min(max(wanted, len(self._carry)), remaining))
            self._fill(buffer.data, remaining)
            rows, used = self._index(buffer, remaining)
            if len(rows):
                return self._chunk(buffer, rows, used)
            view = buffer.data
            found = parse_header(view, 0, remaining, self._position)
            if isinstance(found, Trailing):
                self._check_end(found)
                return None
            needed = found.size_in_bytes
            if needed > self._most_bytes:
                raise BatchTooLarge(f"the batch at position {self._position} has {needed} bytes")
            if needed <= len(buffer):
                raise CorruptData(f"the batch at position {self._position} does not follow offset {self._last}")
            self._carry, wanted = bytes(view), needed

    def _buffer(self, size: int) -> npt.NDArray[np.uint8]:
        """Return memory for a chunk. That of a usual one is used again after the last reply with it was sent."""
        if size != CHUNK_BYTES:
            return np.empty(size, np.uint8)
        buffer: npt.NDArray[np.uint8] = self._memory.room(size)(np.uint8, size)
        return buffer

    def _fill(self, view: memoryview, remaining: int) -> None:
        """Fill a buffer: first with what was read already."""
        carried = len(self._carry)
        view[:carried] = self._carry
        filled = carried + self._object.readinto(view[carried:])
        if filled < len(view) and self._limit is not None:
            self._object.close()
            self._limit = None
            self._object = self._copy.reader(self._store, self._position + filled)
            filled += self._object.readinto(view[filled:])
        if filled < len(view):
            raise CorruptData(
                f"the object ends at byte {self._position + filled}; its listed size is {self._position + remaining}"
            )
        self._carry = b""

    def _index(self, buffer: npt.NDArray[np.uint8], remaining: int) -> tuple[Offsets, int]:
        """Return the rows (start, end, base, last) of the whole batches in a buffer, and the position after them."""
        parts: list[Offsets] = []
        table, view = self._table, buffer.data
        used, last = 0, self._last
        while True:
            count, behind, _ = index_batches(
                buffer, used, len(buffer), _LOWEST, _HIGHEST, max(last, -1), _NONE_ABORTED, table
            )
            if count:
                found = table[:count, [Column.POSITION, Column.END, Column.BASE_OFFSET, Column.LAST_OFFSET]]
                self._check(buffer, found, table[:count, [Column.CRC, Column.RECORD_COUNT]], last)
                parts.append(found)
                used, last = behind, int(found[-1, 3])
                if count == _ROWS:
                    continue
            legacy = self._legacy(view, used, remaining, last)
            if legacy is None:
                break
            parts.append(legacy)
            used, last = int(legacy[-1, 1]), int(legacy[-1, 3])
        return (np.concatenate(parts) if parts else np.empty((0, 4), np.int64)), used

    def _check(self, buffer: npt.NDArray[np.uint8], rows: Offsets, headers: Offsets, last: int) -> None:
        """Check consecutive batches, given as rows, and the CRC and the number of records in the header of each."""
        view = buffer.data
        for (start, end), expected in zip(rows[:, :2].tolist(), headers[:, 0].tolist(), strict=True):
            if crc32c(view[start + ATTRIBUTES_POSITION : end]) != expected:
                raise CorruptData(f"wrong CRC in the batch at position {self._position + start}")
        base, end = int(rows[0, 2]), int(rows[-1, 3])
        if int(rows[0, 3]) < self._copy.base or end >= self._copy.end:
            raise CorruptData(
                f"offsets {base} to {end} after position {self._position}; the segment has {self._copy.base} to "
                f"{self._copy.end - 1}"
            )
        if self._epochs is not None:
            found = buffer[rows[:, :1] + _EPOCH_BYTES].view(">i4")[:, 0]
            expected = self._epochs[np.searchsorted(self._epoch_starts, rows[:, 2], side="right") - 1]
            if not (found == expected).all():
                raise CorruptData(f"after position {self._position} a batch has a leader epoch that its metadata lacks")
        if self._copy.dense:
            before = np.concatenate(([base - 1 if last == _LOWEST else last], rows[:-1, 3]))
            # The other case is a producer's wrong last offset delta: see `framing.follows`.
            is_next = (rows[:, 2] == before + 1) | (rows[:, 3] == before + headers[:, 1])
            if not is_next.all():
                raise CorruptData(f"offsets are missing after position {self._position}, although each has its record")

    def _legacy(self, view: memoryview, used: int, remaining: int, last: int) -> Offsets | None:
        """Return the rows of consecutive messages of magic 0 and 1; None if there is no such message."""
        rows = []
        while len(view) - used >= HEADER_SIZE or used + len(view) - used == remaining:
            left = remaining - used
            if left <= 0 or frame_size(view, used, len(view) - used) is None:
                break
            header = parse_header(view, used, left, self._position + used)
            if not isinstance(header, BatchHeader) or header.magic > 1:
                break
            end = used + header.size_in_bytes
            if batch_crc(header.magic, view[used + crc_start(header.magic) : end]) != header.crc:
                raise CorruptData(f"wrong CRC in the message at position {self._position + used}")
            if not last < header.last_offset < self._copy.end:
                raise CorruptData(f"offset {header.last_offset} at position {self._position + used}, after {last}")
            last = header.last_offset
            rows.append((used, end, header.base_offset, last))
            used = end
        return np.array(rows, np.int64) if rows else None

    def _chunk(self, buffer: npt.NDArray[np.uint8], rows: Offsets, used: int) -> Chunk:
        if self._is_first and self._position and int(rows[0, 2]) > self._offset:
            raise CorruptData(f"the index leads to offset {int(rows[0, 2])}, and offset {self._offset} is wanted")
        view = buffer.data
        self._carry = bytes(view[used:])
        covers_from = int(rows[0, 2]) if self._last == _LOWEST else self._last + 1
        self._last = int(rows[-1, 3])
        self._position += used
        self._is_first = False
        at_end = self._position == self._copy.segment.size
        starts, ends, bases, lasts = (np.ascontiguousarray(rows[:, column]) for column in range(4))
        covers_to = self._copy.end if at_end and not self._copy.dense else self._last + 1
        return Chunk(view[:used], covers_from, covers_to, starts, ends, bases, lasts, self._position, len(buffer))

    def _check_end(self, how: Trailing) -> None:
        """Check how the segment ends.

        Raises:
            CorruptData: batches are missing.
        """
        if how is Trailing.TORN and self._last + 1 < self._copy.end:
            raise CorruptData(f"torn batch at position {self._position}, offset {self._last + 1}")
        if self._copy.dense and self._last + 1 < self._copy.end:
            raise CorruptData(f"its batches end at offset {self._last + 1}; it covers offsets up to {self._copy.end}")
