"""Streams of every codec, valid and damaged: `codecs.Scratch` against other implementations (`independent`).

An input is a line with the codec (`gzip`, `snappy`, `lz4`, `zstd`), and the stream. Both must return the same
bytes and reject the same streams, except for the differences in `_is_known`.
"""

import random
import struct
import zlib
from typing import Any

import lz4.frame
import pyarrow
import zstandard

from tests.fuzz.independent import XERIAL, Bad, TooLarge, as_blocks, decompressed
from tests.fuzz.mutate import mutate_bytes
from tests.fuzz.target import Mismatch, Target, split_input
from ts_common.decode.codecs import Codec, Scratch
from ts_common.errors import BatchTooLarge, CorruptData
from ts_common.log_format.limits import BatchLimit

_MOST = 4 << 20
_SKIPPABLE = b"\x50\x2a\x4d\x18"  # the first of sixteen
_SNAPPY: Any = pyarrow.Codec("snappy")
_BLOCK_SIZES = (
    lz4.frame.BLOCKSIZE_MAX64KB,
    lz4.frame.BLOCKSIZE_MAX256KB,
    lz4.frame.BLOCKSIZE_MAX1MB,
    lz4.frame.BLOCKSIZE_MAX4MB,
)


class Decompression(Target):
    """One stream after the other, into a scratch of its own."""

    def draw(self, chance: random.Random) -> bytes:
        """A stream with any settings of its writer, half of them damaged."""
        codec = chance.choice([each for each in Codec if each])
        stream = b"".join(_compressed(chance, codec) for _ in range(chance.choice((1, 1, 1, 2, 3))))
        if chance.random() < 0.5:
            stream = mutate_bytes(chance, stream)
        return codec.name.lower().encode() + b"\n" + stream

    def run(self, data: bytes) -> None:
        """Decompress it in both ways."""
        (name, *_), stream = split_input(data)
        codec = Codec[name.upper()] if name.upper() in Codec.__members__ else Codec.GZIP
        scratch = Scratch(BatchLimit(_MOST))
        ours: bytes | str
        theirs: bytes | str
        try:
            scratch.add(codec, memoryview(stream))
            ours = bytes(scratch.array[: scratch.end])
        except (BatchTooLarge, CorruptData) as error:
            if isinstance(error, BatchTooLarge):
                return
            ours = str(error)
        try:
            theirs = decompressed(codec, stream, _MOST)
        except TooLarge:
            return
        except Bad as error:
            theirs = str(error)
        if isinstance(ours, bytes) and isinstance(theirs, bytes):
            if ours != theirs:
                raise Mismatch(f"{len(ours)} bytes, and {len(theirs)} bytes by the other")
        elif isinstance(ours, bytes) != isinstance(theirs, bytes) and not _is_known(codec, stream, ours, theirs):
            raise Mismatch(f"ours: {_shown(ours)}; the other: {_shown(theirs)}")


def _is_known(codec: Codec, stream: bytes, ours: bytes | str, theirs: bytes | str) -> bool:
    """Return whether a difference is a known one.

    - LZ4: the checksums and the content size of a frame of independent blocks are ignored. The batch has a checksum.
    - LZ4: a skippable frame is read only after another frame. Kafka's own reader accepts no skippable frame
      (KafkaLZ4BlockInputStream).
    - gzip: if a match goes back beyond the first byte, cramjam reads zeros (miniz_oxide's window), and computes the
      checksum with them; zlib rejects it.
    """
    if codec is Codec.GZIP:
        return isinstance(ours, bytes) and "too far back" in str(theirs)
    if codec is not Codec.LZ4:
        return False
    if isinstance(ours, str):
        return stream[1:4] == _SKIPPABLE[1:] and stream[0] & 0xF0 == _SKIPPABLE[0]
    try:
        return as_blocks(stream, _MOST) == ours
    except (Bad, TooLarge):
        return False


def _compressed(chance: random.Random, codec: Codec) -> bytes:
    data = _content(chance)
    match codec:
        case Codec.GZIP:
            return _gzip(chance, data)
        case Codec.SNAPPY:
            if chance.random() < 0.4:
                return bytes(_SNAPPY.compress(data, asbytes=True))
            size = chance.choice((1, 100, 32 << 10, 1 << 20))
            blocks = [data[at : at + size] for at in range(0, len(data), size)][:200]
            packed = [bytes(_SNAPPY.compress(block, asbytes=True)) for block in blocks]
            return XERIAL + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">I", len(each)) + each for each in packed)
        case Codec.LZ4:
            frame: bytes = lz4.frame.compress(
                data,
                compression_level=chance.choice((-5, 0, 3, 9, 12)),
                block_size=chance.choice(_BLOCK_SIZES),
                block_linked=chance.random() < 0.5,
                content_checksum=chance.random() < 0.5,
                block_checksum=chance.random() < 0.5,
                store_size=chance.random() < 0.5,
            )
            return _skippable(chance, 0x184D2A50) + frame
        case _:
            writer = zstandard.ZstdCompressor(
                level=chance.choice((-5, 1, 3, 9, 19)),
                write_checksum=chance.random() < 0.5,
                write_content_size=chance.random() < 0.5,
            )
            return _skippable(chance, 0x184D2A53) + writer.compress(data)


def _content(chance: random.Random) -> bytes:
    size = chance.choice((0, 1, 10, 1000, 70_000, 200_000))
    match chance.randrange(3):
        case 0:
            return bytes(size)
        case 1:
            return chance.randbytes(size)
        case _:
            return b"".join(b"line %d\n" % chance.randrange(1000) for _ in range(size // 8))


def _gzip(chance: random.Random, data: bytes) -> bytes:
    """A member with any of the fields that its header may have."""
    flags, fields = 0, b""
    if chance.random() < 0.2:
        flags, fields = flags | 4, fields + struct.pack("<H", 3) + b"abc"
    if chance.random() < 0.2:
        flags, fields = flags | 8, fields + b"name\0"
    if chance.random() < 0.2:
        flags, fields = flags | 16, fields + b"comment\0"
    head = b"\x1f\x8b\x08" + bytes((flags,)) + bytes(6) + fields
    if chance.random() < 0.2:
        head = head[:3] + bytes((flags | 2,)) + head[4:]
        head += struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    deflate = zlib.compressobj(chance.randrange(10), wbits=-15)
    return head + deflate.compress(data) + deflate.flush() + struct.pack("<II", zlib.crc32(data), len(data))


def _skippable(chance: random.Random, magic: int) -> bytes:
    return struct.pack("<II", magic, 3) + b"abc" if chance.random() < 0.1 else b""


def _shown(said: bytes | str) -> str:
    return f"{len(said)} bytes" if isinstance(said, bytes) else said[:100]
