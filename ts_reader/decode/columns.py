"""Records as columns in Arrow's memory layout, and the buffers for them.

The first write to fresh memory costs more than decoding into it. So buffers are used again once no caller holds a
column of them. An array holds its buffer, and so does an Arrow array made of it. No call returns a buffer to the pool.
"""

import re
import sys
from codecs import getincrementaldecoder
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from ts_common.errors import BatchTooLarge
from ts_reader.decode.compiled import all_given
from ts_reader.decode.kernel_arrays import CURSOR_SIZE, CursorField
from ts_reader.decode.kernel_source import Bytes, Int32s, Int64s
from ts_reader.decode.memory import HEAP, Carve, Memory, rounded

POOLED_BUFFERS: Final = 3  # one being filled, one with the caller, one with the consumer of its last one
_ALL_VALID: Final = 0xFF
_ASCII_END: Final = 0x80
_CONTINUATION_MASK: Final = 0xC0  # the bits of a byte inside a UTF-8 character, and their value
_CONTINUATION: Final = 0x80
_PIECE_NAMES: Final = 1 << 14
_PIECE_BYTES: Final = 1 << 20
_SLICE_BYTES: Final = 1 << 16
_LONGEST_CHARACTER: Final = 4
_MOST_NAME_BYTES: Final = (1 << 31) - 1
_POOLED_BYTES: Final = 64 << 20  # larger buffers, grown for one record, are dropped
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


@dataclass(frozen=True, slots=True, eq=False)
class BinaryColumn:
    """Byte strings, as in Arrow's `binary`.

    Attributes:
        offsets: int32[n + 1]; string i is `data[offsets[i]:offsets[i + 1]]`.
        data: uint8.
        validity: uint8, a bit for each string, least significant first; 0 is null.
    """

    offsets: Int32s
    data: Bytes
    validity: Bytes
    null_count: int


@dataclass(frozen=True, slots=True, eq=False)
class HeadersColumn:
    """The headers of each record, in their order, with repeated names.

    Attributes:
        offsets: int32[rows + 1]; record i has headers `offsets[i]` to below `offsets[i + 1]`.
        names: valid UTF-8; malformed bytes are U+FFFD, as Java's consumer reads them.
        values: can be null.
    """

    offsets: Int32s
    names: BinaryColumn
    values: BinaryColumn


@dataclass(frozen=True, slots=True, eq=False)
class RecordColumns:
    """Some records of one partition, offsets ascending.

    Attributes:
        offsets: int64[rows].
        timestamps: int64[rows], ms; -1 for none.
        timestamp_types: int32[rows]; 0 CreateTime, 1 LogAppendTime, -1 none (magic 0), as in Kafka's `TimestampType`.
        keys: None if not in the projection, like the next two.
    """

    row_count: int
    offsets: Int64s
    timestamps: Int64s
    timestamp_types: Int32s
    keys: BinaryColumn | None
    values: BinaryColumn | None
    headers: HeadersColumn | None


@dataclass(frozen=True, slots=True)
class Projection:
    """The fields of a record to decode in addition to offset and timestamp; others are never copied."""

    key: bool = True
    value: bool = True
    headers: bool = True


class ColumnBuffers:
    """Room for one `RecordColumns`, owned by the decoder that fills it.

    Memory is committed at its first write, so large sizes cost only address space.

    Attributes:
        given: the arrays that `decode_records` fills, as its arguments.
    """

    def __init__(self, projection: Projection, max_rows: int, max_bytes: int, memory: Memory = HEAP) -> None:
        self._projection = projection
        key_bytes, value_bytes = max_bytes * projection.key, max_bytes * projection.value
        header_bytes, headers = max_bytes * projection.headers, 4 * max_rows * projection.headers
        rows_of_lists = max_rows * projection.headers + 1
        rooms = (
            (max_rows * projection.key, key_bytes),
            (max_rows * projection.value, value_bytes),
            (headers, header_bytes),
            (headers, header_bytes),
        )
        carve = memory.room(
            2 * rounded(8 * max_rows)
            + rounded(4 * max_rows)
            + rounded(4 * rows_of_lists)
            + sum(_Room.size_of(count, size) for count, size in rooms)
        )
        self.offsets = carve(np.int64, max_rows)
        self.timestamps = carve(np.int64, max_rows)
        self.timestamp_types = carve(np.int32, max_rows)
        self.header_lists = carve(np.int32, rows_of_lists)
        self.keys, self.values, self.names, self.header_values = (_Room(count, size, carve) for count, size in rooms)
        self._first_bytes = key_bytes + value_bytes + 2 * header_bytes
        self._hold()

    @property
    def is_idle(self) -> bool:
        """Return whether no caller holds a part of it."""
        return self._references() == self._idle_references

    @property
    def is_large(self) -> bool:
        """Return whether it grew for one large record."""
        rooms = (self.keys, self.values, self.names, self.header_values)
        return sum(len(room.data) + 4 * len(room.offsets) for room in rooms) > _POOLED_BYTES + self._first_bytes

    def clear(self) -> None:
        """Set all validity bits, as the kernel requires."""
        for room in (self.keys, self.values, self.names, self.header_values):
            room.validity.fill(_ALL_VALID)

    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """Return the arrays that `decode_records` fills, in the order of its arguments."""
        keys, values, names, headers = self.keys, self.values, self.names, self.header_values
        return (
            *(self.offsets, self.timestamps, self.timestamp_types),
            *(keys.offsets, keys.data, keys.validity),
            *(values.offsets, values.data, values.validity),
            *(self.header_lists, names.offsets, names.data),
            *(headers.offsets, headers.data, headers.validity),
        )

    def _hold(self) -> None:
        self.given = all_given(self.arrays())
        self._idle_references = 0
        self._idle_references = self._references()

    def make_room(self, state: Int64s) -> None:
        """Grow for one record that did not fit into empty columns, to the sizes in the cursor."""
        self.keys.grow(0, int(state[CursorField.NEED_KEY_BYTES]))
        self.values.grow(0, int(state[CursorField.NEED_VALUE_BYTES]))
        for room in (self.names, self.header_values):
            room.grow(int(state[CursorField.NEED_HEADERS]), int(state[CursorField.NEED_HEADER_BYTES]))
        self._hold()

    def columns(self, state: Int64s) -> RecordColumns:
        """Return the decoded columns, without a copy."""
        rows, headers = int(state[CursorField.ROWS]), int(state[CursorField.HEADERS])
        projection = self._projection
        return RecordColumns(
            row_count=rows,
            offsets=self.offsets[:rows],
            timestamps=self.timestamps[:rows],
            timestamp_types=self.timestamp_types[:rows],
            keys=self.keys.column(rows, state[CursorField.KEY_BYTES], state[CursorField.KEY_NULLS])
            if projection.key
            else None,
            values=(
                self.values.column(rows, state[CursorField.VALUE_BYTES], state[CursorField.VALUE_NULLS])
                if projection.value
                else None
            ),
            headers=HeadersColumn(
                offsets=self.header_lists[: rows + 1],
                names=valid_names(self.names.column(headers, state[CursorField.NAME_BYTES], 0)),
                values=self.header_values.column(
                    headers, state[CursorField.HEADER_BYTES], state[CursorField.HEADER_NULLS]
                ),
            )
            if projection.headers
            else None,
        )

    def _references(self) -> int:
        rooms = (self.keys, self.values, self.names, self.header_values)
        count = sum(sys.getrefcount(array) for room in rooms for array in (room.offsets, room.data, room.validity))
        for array in (self.offsets, self.timestamps, self.timestamp_types, self.header_lists):
            count += sys.getrefcount(array)
        return count


class _Room:
    """Room for one `BinaryColumn`."""

    __slots__ = ("data", "offsets", "validity")

    def __init__(self, count: int, size: int, carve: Carve) -> None:
        self.offsets = carve(np.int32, count + 1)
        self.data = carve(np.uint8, size)
        self.validity = carve(np.uint8, (count + 7) // 8)

    @staticmethod
    def size_of(count: int, size: int) -> int:
        """Return the bytes of the three arrays."""
        return rounded(4 * (count + 1)) + rounded(size) + rounded((count + 7) // 8)

    def grow(self, count: int, size: int) -> None:
        if count >= len(self.offsets):
            self.offsets = np.zeros(count + 2, np.int32)
            self.validity = np.full((count + 8) // 8, _ALL_VALID, np.uint8)
        if size > len(self.data):
            self.data = np.empty(size, np.uint8)

    def column(self, count: int, size: int, null_count: int) -> BinaryColumn:
        return BinaryColumn(
            self.offsets[: count + 1], self.data[:size], self.validity[: (count + 7) // 8], int(null_count)
        )


class BufferPool:
    """Buffers of one shape, used again when they are idle."""

    def __init__(self, projection: Projection, max_rows: int, max_bytes: int, memory: Memory = HEAP) -> None:
        self._shape = (projection, max_rows, max_bytes, memory)
        self._buffers: list[ColumnBuffers] = []

    def take(self) -> ColumnBuffers:
        """Return an idle buffer, or a new one."""
        self._buffers = [buffers for buffers in self._buffers if not buffers.is_large]
        found = next((buffers for buffers in self._buffers if buffers.is_idle), None)
        if found is None:
            found = ColumnBuffers(*self._shape)
            self._buffers = [*self._buffers[-POOLED_BUFFERS + 1 :], found]
        found.clear()
        return found


def new_state() -> Int64s:
    """Return a cursor at the beginning of empty columns."""
    return np.zeros(CURSOR_SIZE, np.int64)


def valid_names(names: BinaryColumn) -> BinaryColumn:
    """Return header names as Java's consumer reads them: malformed UTF-8 becomes U+FFFD.

    Names are checked in pieces, because one record may have millions.

    Raises:
        BatchTooLarge: as valid UTF-8 they are longer than an Arrow array's offsets can address.
    """
    if not len(names.data) or int(names.data.max()) < _ASCII_END:
        return names
    begins = range(0, len(names.offsets) - 1, _PIECE_NAMES)
    pieces = [_piece(names, begin) for begin in begins]
    valid = [_are_valid(*piece) for piece in pieces]
    if all(valid):
        return names
    data, lengths = bytearray(), np.zeros(len(names.offsets) - 1, np.int64)
    for begin, (piece, bounds), is_valid in zip(begins, pieces, valid, strict=True):
        if is_valid:
            data += memoryview(cast("Any", piece))
            lengths[begin : begin + _PIECE_NAMES] = np.diff(bounds)
            continue
        for number, (start, end) in enumerate(pairwise(bounds.tolist()), begin):
            before = len(data)
            _add_java_utf8(data, memoryview(cast("Any", piece))[start:end])
            lengths[number] = len(data) - before
    offsets = np.zeros(len(names.offsets), np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] > _MOST_NAME_BYTES:
        raise BatchTooLarge(f"header names of {offsets[-1]} bytes as valid UTF-8, at most {_MOST_NAME_BYTES} are read")
    return BinaryColumn(offsets.astype(np.int32), np.frombuffer(data, np.uint8), names.validity, 0)


def _piece(names: BinaryColumn, begin: int) -> tuple[Bytes, npt.NDArray[np.integer[Any]]]:
    """Return the bytes of some names, and the bounds of each in them."""
    bounds = names.offsets[begin : begin + _PIECE_NAMES + 1]
    return names.data[bounds[0] : bounds[-1]], bounds - bounds[0]


def _add_java_utf8(to: bytearray, data: memoryview) -> None:
    """Add a string as `java_utf8` reads it, in slices that do not cut a UTF-8 character."""
    start = 0
    while start < len(data):
        end = min(start + _SLICE_BYTES, len(data))
        back = 0  # a character has four bytes at most
        while back < _LONGEST_CHARACTER and end < len(data) and data[end - back] & _CONTINUATION_MASK == _CONTINUATION:
            back += 1
        end -= back if back < _LONGEST_CHARACTER else 0
        to += java_utf8(bytes(data[start:end])).encode()
        start = end


def _are_valid(data: Bytes, bounds: npt.NDArray[np.integer[Any]]) -> bool:
    """Return whether each string is UTF-8: all together are, and no string begins inside a character."""
    begins = bounds[1:-1]
    begins = begins[begins < len(data)]
    if np.any(data[begins] & _CONTINUATION_MASK == _CONTINUATION):
        return False
    decoder = getincrementaldecoder("utf-8")()
    try:
        for begin in range(0, len(data), _PIECE_BYTES):
            decoder.decode(data[begin : begin + _PIECE_BYTES].tobytes())
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def java_utf8(data: bytes) -> str:
    """Return Java's `new String(data, UTF_8)`: an encoded surrogate is one U+FFFD, in Python's decoder one per byte."""
    return _SURROGATE.sub(b"\xff", data).decode("utf-8", "replace")
