"""Streams of each codec with any settings of their writer, and with each kind of end that a stream can have."""

import random
import struct
import zlib
from collections.abc import Callable
from typing import Any, Final

import lz4.frame
import pyarrow
import zstandard

from tests.fuzz.mutate import mutate_bytes

XERIAL: Final = b"\x82SNAPPY\0"
_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4
_SKIPPABLE: Final = {_LZ4: 0x184D2A50, _ZSTD: 0x184D2A53}
_GOOGLES_SNAPPY: Any = pyarrow.Codec("snappy")
_BLOCK_SIZES: Final = (
    lz4.frame.BLOCKSIZE_MAX64KB,
    lz4.frame.BLOCKSIZE_MAX256KB,
    lz4.frame.BLOCKSIZE_MAX1MB,
    lz4.frame.BLOCKSIZE_MAX4MB,
)


def compressed(chance: random.Random, codec: int, data: bytes, *, magic: int = 2) -> bytes:
    """Return a stream of a codec with the data, or one whose end, checksums or parts are odd.

    Args:
        chance: that decides.
        codec: Kafka's id; others than those of gzip, snappy, lz4 and zstd leave the data as they are.
        data: what is compressed.
        magic: of the batch. In magic 0 the checksum of an LZ4 frame's header is mostly wrong, as of old clients.
    """
    write = _WRITERS.get(codec)
    if write is None:
        return data
    if chance.random() < 0.7:
        return _one(chance, codec, data, magic)
    cut = chance.randrange(len(data) + 1)
    first, rest = _one(chance, codec, data[:cut], magic), _one(chance, codec, data[cut:], magic)
    whole = _one(chance, codec, data, magic)
    match chance.randrange(9):
        case 0 | 1:
            return first + rest
        case 2:
            return whole + chance.choice((b"\0", bytes(9), bytes(40), chance.randbytes(12), b"\x1f\x8b\x08", XERIAL))
        case 3:
            return whole + _one(chance, codec, b"more", magic)
        case 4:
            return whole + rest[: chance.randrange(len(rest) + 1)]
        case 5:
            return whole[: -chance.randrange(1, 13)]
        case 6:
            end = bytearray(whole)
            end[-chance.randrange(1, min(9, len(end) + 1))] ^= 1 << chance.randrange(8)
            return bytes(end)
        case 7:
            skippable = struct.pack("<II", _SKIPPABLE.get(codec, 0), 3) + b"abc"
            return chance.choice((skippable + whole, whole + skippable, first + skippable + rest))
        case _:
            return mutate_bytes(chance, whole)


def _one(chance: random.Random, codec: int, data: bytes, magic: int) -> bytes:
    stream = _WRITERS[codec](chance, data)
    if codec == _LZ4 and magic == 0 and chance.random() < 0.7:
        return _with_old_header_checksum(stream)
    return stream


def _gzip(chance: random.Random, data: bytes) -> bytes:
    """A member with any of the fields that its header may have."""
    flags, fields = 0, b""
    if chance.random() < 0.1:
        flags, fields = flags | 4, fields + struct.pack("<H", 3) + b"abc"
    if chance.random() < 0.1:
        flags, fields = flags | 8, fields + b"name\0"
    if chance.random() < 0.1:
        flags, fields = flags | 16, fields + b"comment\0"
    head = b"\x1f\x8b\x08" + bytes((flags,)) + bytes(6) + fields
    if chance.random() < 0.1:
        head = head[:3] + bytes((flags | 2,)) + head[4:]
        head += struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    deflate = zlib.compressobj(chance.randrange(10), wbits=-15)
    trailer = struct.pack("<II", zlib.crc32(data), len(data))
    return head + deflate.compress(data) + deflate.flush() + trailer


def _snappy(chance: random.Random, data: bytes) -> bytes:
    if chance.random() < 0.3:
        return bytes(_GOOGLES_SNAPPY.compress(data, asbytes=True))
    size = chance.choice((1, 7, 100, 32 << 10, 32 << 10))
    blocks = [data[at : at + size] for at in range(0, len(data), size)][:200]
    if chance.random() < 0.05:
        blocks.insert(chance.randrange(len(blocks) + 1), b"")
    packed = [bytes(_GOOGLES_SNAPPY.compress(block, asbytes=True)) for block in blocks]
    versions = chance.choice(((1, 1), (1, 1), (1, 1), (1 << 24, 1 << 24), (7, 1), (7, 7), (0, 0)))
    sizes = [struct.pack(">i", len(each)) for each in packed]
    if chance.random() < 0.04 and sizes:
        sizes[chance.randrange(len(sizes))] = struct.pack(">i", chance.choice((0, -1, 5, (1 << 31) - 1)))
    return XERIAL + struct.pack(">ii", *versions) + b"".join(map(bytes.__add__, sizes, packed))


def _lz4(chance: random.Random, data: bytes) -> bytes:
    frame: bytes = lz4.frame.compress(
        data,
        compression_level=chance.choice((-5, 0, 3, 9)),
        block_size=chance.choice(_BLOCK_SIZES),
        block_linked=chance.random() < 0.15,
        content_checksum=chance.random() < 0.4,
        block_checksum=chance.random() < 0.3,
        store_size=chance.random() < 0.2,
    )
    return frame


def _with_old_header_checksum(frame: bytes) -> bytes:
    """With a checksum of the header that is wrong, as Kafka's clients of magic 0 computed it."""
    at = 6 + (8 if len(frame) > 4 and frame[4] & 8 else 0)
    return frame[:at] + bytes((frame[at] ^ 1,)) + frame[at + 1 :] if len(frame) > at else frame


def _zstd(chance: random.Random, data: bytes) -> bytes:
    writer = zstandard.ZstdCompressor(
        level=chance.choice((-5, 1, 3, 9)),
        write_checksum=chance.random() < 0.4,
        write_content_size=chance.random() < 0.5,
    )
    return writer.compress(data)


_WRITERS: Final[dict[int, Callable[[random.Random, bytes], bytes]]] = {
    _GZIP: _gzip,
    _SNAPPY: _snappy,
    _LZ4: _lz4,
    _ZSTD: _zstd,
}
