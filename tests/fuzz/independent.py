"""Decompression by other implementations than the project's: zlib, Google's snappy (in pyarrow), liblz4, libzstd.

The project decompresses with cramjam. These implementations decide, except for `as_blocks`, which is as lenient with
LZ4's frame as the project: it checks no checksum of the frame, because the batch has one.
"""

import struct
import zlib
from typing import Any

import lz4.block
import lz4.frame
import pyarrow
import zstandard

XERIAL = b"\x82SNAPPY\0"
_BLOCK_SIZES = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_LITTLE = 64
_SNAPPY: Any = pyarrow.Codec("snappy")


class Bad(Exception):
    """The bytes are not what the codec writes."""


class TooLarge(Exception):
    """The decompressed bytes exceed the limit."""


def decompressed(codec: int, data: bytes, most: int) -> bytes:
    """Return the decompressed bytes of a codec.

    Args:
        codec: Kafka's id.
        data: all of the bytes.
        most: the maximum of decompressed bytes.

    Raises:
        Bad: the bytes are not of the codec.
        TooLarge: more than `most` bytes.
    """
    match codec:
        case 1:
            return _gzip(data, most)
        case 2:
            return _snappy(data, most)
        case 3:
            return _whole(lz4.frame.LZ4FrameDecompressor, data, most)
        case 4:
            return _whole(zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj, data, most)
    raise Bad(f"codec {codec}")


def as_blocks(data: bytes, most: int) -> bytes:
    """Return the content of one LZ4 frame of independent blocks; checksums and content size are ignored.

    Raises:
        Bad: it is not such a frame.
        TooLarge: more than `most` bytes.
    """
    try:
        magic, flags, descriptor = struct.unpack_from("<IBB", data)
        block_size = _BLOCK_SIZES.get(descriptor >> 4)
        if magic != 0x184D2204 or flags & 0xE3 != 0x60 or block_size is None:
            raise Bad("no frame of independent blocks")
        at, out = 7 + (8 if flags & 8 else 0), b""
        while True:
            (size,) = struct.unpack_from("<I", data, at)
            at += 4
            if not size:
                break
            stored, size = size >> 31, size & 0x7FFFFFFF
            block = data[at : at + size]
            if len(block) != size:
                raise Bad("cut off")
            if stored and size > block_size:
                raise Bad("a stored block that is too large")
            out += block if stored else lz4.block.decompress(block, uncompressed_size=block_size)
            if len(out) > most:
                raise TooLarge
            at += size + (4 if flags & 0x10 else 0)
        if at > len(data) or at + (4 if flags & 4 else 0) != len(data):
            raise Bad("cut off, or more behind it")
    except (struct.error, lz4.block.LZ4BlockError) as error:
        raise Bad(str(error)) from error
    return out


def _gzip(data: bytes, most: int) -> bytes:
    out = b""
    while True:
        member = zlib.decompressobj(31)
        try:
            out += member.decompress(data, most - len(out) + 1)
        except zlib.error as error:
            raise Bad(str(error)) from error
        if len(out) > most:
            raise TooLarge
        if not member.eof:
            raise Bad("cut off")
        data = member.unused_data
        if not data:
            return out


def _snappy(data: bytes, most: int) -> bytes:
    if data[: len(XERIAL)] != XERIAL:
        return _snappy_block(data, most)
    at, out = 16, b""
    while at < len(data):
        if at + 4 > len(data):
            raise Bad("cut off")
        (size,) = struct.unpack_from(">I", data, at)
        at += 4
        if size > len(data) - at:
            raise Bad("a block beyond the end")
        out += _snappy_block(data[at : at + size], most - len(out))
        at += size
    return out


def _snappy_block(data: bytes, most: int) -> bytes:
    length = shift = 0
    for byte in data[:5]:
        length |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    else:
        raise Bad("no length")
    if length >= 1 << 32 or length > 64 * len(data):
        raise Bad(f"{length} bytes in {len(data)}")
    if length > most:
        raise TooLarge
    try:
        return bytes(_SNAPPY.decompress(data, decompressed_size=length, asbytes=True))
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise Bad(str(error)) from error


def _whole(make: Any, data: bytes, most: int) -> bytes:
    """Frame after frame, each to its end; a little at a time, since a little may become much."""
    out = bytearray()
    while True:
        one = make()
        at = 0
        while not one.eof:
            if at >= len(data):
                raise Bad("cut off")
            try:
                out += one.decompress(data[at : at + _LITTLE])
            except (RuntimeError, zstandard.ZstdError, EOFError, ValueError, MemoryError) as error:
                raise Bad(str(error)) from error
            if len(out) > most:
                raise TooLarge
            at += _LITTLE
        data = (one.unused_data or b"") + data[at:]
        if not data:
            return bytes(out)
