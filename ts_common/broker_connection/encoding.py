"""The primitive types of Kafka's protocol, as bytes (`https://kafka.apache.org/protocol#protocol_types`).

Why no library: importing kio's messages for one request costs an agent 13 MB of memory and two seconds of CPU. Few
messages are needed, and each has a handful of fields.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from ts_common.errors import CorruptData
from ts_common.log_format.varints import unsigned_varint

_T = TypeVar("_T")
_LONGEST_VARINT: Final = 5  # bytes of an unsigned 32-bit number


def string(text: str | None) -> bytes:
    """Encode STRING, or NULLABLE_STRING."""
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def compact_string(text: str) -> bytes:
    """Encode COMPACT_STRING."""
    data = text.encode()
    return unsigned_varint(len(data) + 1) + data


def sized_bytes(data: bytes) -> bytes:
    """Encode BYTES."""
    return struct.pack(">i", len(data)) + data


class Reader:
    """Reads the values of one response in order. Another program can send any bytes: each length is checked first.

    Args:
        what: its name, for messages.

    Each method raises CorruptData if the value is not complete or not valid.
    """

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._at = 0
        self._what = what

    @property
    def unread(self) -> bytes:
        """The bytes that follow what was read."""
        return self._data[self._at :]

    def boolean(self) -> bool:
        """Read BOOLEAN."""
        return bool(self._unpacked(">b"))

    def int8(self) -> int:
        """Read INT8."""
        return int(self._unpacked(">b"))

    def int16(self) -> int:
        """Read INT16."""
        return int(self._unpacked(">h"))

    def int32(self) -> int:
        """Read INT32."""
        return int(self._unpacked(">i"))

    def int64(self) -> int:
        """Read INT64."""
        return int(self._unpacked(">q"))

    def float64(self) -> float:
        """Read FLOAT64."""
        return float(self._unpacked(">d"))

    def uuid(self) -> bytes:
        """Read UUID, as its 16 bytes."""
        return self._take(16)

    def unsigned_varint(self) -> int:
        """Read UNSIGNED_VARINT."""
        number = 0
        for place in range(_LONGEST_VARINT):
            (byte,) = self._take(1)
            number |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return number
        raise self._corrupt("a number of more than 32 bits")

    def string(self) -> str | None:
        """Read STRING or NULLABLE_STRING."""
        return self._text(self.int16())

    def compact_string(self) -> str | None:
        """Read COMPACT_STRING or COMPACT_NULLABLE_STRING."""
        return self._text(self.unsigned_varint() - 1)

    def sized_bytes(self) -> bytes:
        """Read BYTES."""
        return self._take(self.int32())

    def array(self, read: Callable[[], _T]) -> list[_T]:
        """Read ARRAY, an absent one as empty; `read` reads one element."""
        return self._elements(self.int32(), read)

    def structs(self, form: struct.Struct) -> Iterator[tuple[Any, ...]]:
        """Read ARRAY of elements that have no text: each is the values of `form`."""
        data = self._take(max(self.int32(), 0) * form.size)
        return form.iter_unpack(data)

    def values(self, form: struct.Struct) -> tuple[Any, ...]:
        """Read the values of `form`, fields without text that follow each other."""
        return form.unpack(self._take(form.size))

    def compact_int32s(self) -> tuple[int, ...]:
        """Read COMPACT_ARRAY of INT32, an absent one as empty."""
        count = max(self.unsigned_varint() - 1, 0)
        return struct.unpack(f">{count}i", self._take(4 * count))

    def compact_array(self, read: Callable[[], _T]) -> list[_T]:
        """Read COMPACT_ARRAY, an absent one as empty; `read` reads one element."""
        return self._elements(self.unsigned_varint() - 1, read)

    def tagged_fields(self, wanted: int | None = None) -> "Reader | None":
        """Read the tagged fields of a structure; return the one with a tag, and None without it.

        No other is kept: two bytes of a hostile response would become more than a hundred in memory.
        """
        found = None
        for _ in range(self.unsigned_varint()):
            tag, value = self.unsigned_varint(), self._take(self.unsigned_varint())
            if tag == wanted:
                found = Reader(value, f"{self._what}, tagged field {tag}")
        return found

    def _elements(self, count: int, read: Callable[[], _T]) -> list[_T]:
        if count > len(self._data) - self._at:  # no element has less than a byte
            raise self._corrupt(f"a list of {count} in {len(self._data)} bytes")
        return [read() for _ in range(count)]

    def _text(self, size: int) -> str | None:
        if size == -1:
            return None
        try:
            return self._take(size).decode()
        except UnicodeDecodeError:
            raise self._corrupt("a text that is not UTF-8") from None

    def _unpacked(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self._at:
            raise self._corrupt(f"{size} bytes are announced and {len(self._data) - self._at} remain")
        self._at += size
        return self._data[self._at - size : self._at]

    def _corrupt(self, why: str) -> CorruptData:
        return CorruptData(f"{self._what} is malformed at byte {self._at}: {why}")
