"""Compressed objects and columns of numbers, read with a limit: a small object can unpack to terabytes."""

import struct
import sys
import zlib
from array import array
from collections.abc import Sequence
from typing import Final

from ts_common.errors import CorruptData

_GZIP: Final = 16 + zlib.MAX_WBITS


def pack(data: bytes) -> bytes:
    """Return the bytes of an object with this content."""
    packer = zlib.compressobj(wbits=_GZIP)
    return packer.compress(data) + packer.flush()


def unpack(packed: bytes, key: str, most: int) -> bytes:
    """Return the content of an object.

    Args:
        key: for messages.
        most: largest content in bytes.

    Raises:
        CorruptData: it is not one whole stream of gzip, or unpacks to more than `most` bytes.
    """
    unpacker = zlib.decompressobj(_GZIP)
    try:
        data = unpacker.decompress(packed, most + 1)
    except zlib.error as error:
        raise CorruptData(f"{key}: not compressed by gzip: {error}") from error
    if len(data) > most:
        raise CorruptData(f"{key}: it unpacks to more than {most} bytes")
    if not unpacker.eof or unpacker.unused_data:
        raise CorruptData(f"{key}: {'bytes follow the end of gzip' if unpacker.eof else 'it ends within gzip'}")
    return data


def unpack_exactly(data: bytes, size: int) -> bytes:
    """Return what a stream of zlib unpacks to.

    Raises:
        ValueError: it is not one whole stream of exactly `size` bytes.
    """
    unpacking = zlib.decompressobj()
    try:
        found = unpacking.decompress(data, size + 1)
    except zlib.error as error:
        raise ValueError(f"{error}") from error
    if len(found) != size or not unpacking.eof or unpacking.unused_data:
        raise ValueError(f"it does not unpack to {size} bytes")
    return found


def column_of(code: str, data: bytes) -> Sequence[int]:
    """Return the numbers of a column; `code` is their type as of `array`, little-endian."""
    column = array(code)
    column.frombytes(data)
    if sys.byteorder == "big":
        column.byteswap()
    return column


def column_bytes(code: str, values: Sequence[int]) -> bytes:
    """Return the bytes of a column, as `column_of` reads them."""
    return struct.pack(f"<{len(values)}{code}", *values)
