"""Varints, as Kafka's `ByteUtils` reads and writes them: zigzag ones in records of magic 2."""

from collections.abc import Iterator
from typing import Final

_INT64_MASK: Final = (1 << 64) - 1


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a varint and the position after it (`readVarint`, `readVarlong`).

    Raises:
        IndexError: the bytes end inside it, or it is longer than an int64.
    """
    value, position = read_unsigned_varint(data, position)
    return (value >> 1) ^ -(value & 1), position


def read_unsigned_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a varint without a sign and the position after it (`readUnsignedVarint`).

    Raises:
        IndexError: as `read_varint`.
    """
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise IndexError


def varint(value: int) -> bytes:
    """Return a varint (`writeVarlong`; of an int32 it has the same bytes).

    Args:
        value: an int64.
    """
    zigzag = (value << 1) ^ (value >> 63)
    return _SMALL[zigzag] if zigzag < len(_SMALL) else bytes(_groups(zigzag & _INT64_MASK))


def unsigned_varint(value: int) -> bytes:
    """Return a varint without a sign (`writeUnsignedVarint`)."""
    return bytes(_groups(value))


def _groups(value: int) -> Iterator[int]:
    """Yield groups of seven bits, the least significant first."""
    while value >= 0x80:
        yield value & 0x7F | 0x80
        value >>= 7
    yield value


_SMALL: Final = tuple(bytes(_groups(zigzag)) for zigzag in range(1 << 14))
