"""Decompression by Kafka's codec ids, into a reused buffer.

Formats: gzip (RFC 1952); snappy in the framing of xerial's snappy-java, as Kafka's clients write it, or without
framing, as some others do; the LZ4 frame (KIP-57); zstd (KIP-110). LZ4's blocks are decoded one by one, which is twice
as fast as a frame decoder and ignores the header checksum, which is wrong in magic 0.
"""

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, cast

import cramjam
import numpy as np

from ts_common.decode.compiled import Bytes, given
from ts_common.errors import CorruptData
from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit

_INITIAL_BYTES: Final = 1 << 20

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE: Final = 16  # the magic, a version, the lowest compatible version
_XERIAL_BLOCK_SIZE: Final = struct.Struct(">I")
_SNAPPY_MOST_RATIO: Final = 22  # three bytes encode a copy of at most 64, so a preamble with more is wrong
_LZ4_MAGIC: Final = 0x184D2204
_LZ4_HEADER: Final = struct.Struct("<IBB")  # magic, flags, block size id << 4; a header checksum follows
_LZ4_HEADER_SIZE: Final = _LZ4_HEADER.size + 1
_LZ4_BLOCK_HEADER: Final = struct.Struct("<I")  # size; the highest bit marks a stored block
_LZ4_BLOCK_SIZES: Final = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_LZ4_UNUSUAL: Final = 0xE3  # version, block independence, a reserved bit, a dictionary
_LZ4_INDEPENDENT_BLOCKS: Final = 0x60  # version 1
_LZ4_BLOCK_CHECKSUM: Final = 0x10
_LZ4_CONTENT_SIZE: Final = 0x08
_LZ4_CONTENT_CHECKSUM: Final = 0x04
_LZ4_STORED: Final = 1 << 31


class Codec(IntEnum):
    """Kafka's `CompressionType` ids."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class OutputFull(Exception):  # how a decompressor requests more room; not an error of the project
    """The output needs at least `needed` bytes after the start of the batch."""

    def __init__(self, needed: int) -> None:
        self.needed = needed
        super().__init__(needed)


class Scratch:
    """The buffer for decompressed batches, one after the other.

    Attributes:
        array: uint8, read-only; `[0, end)` has the bytes decompressed since `clear`.
        given: the same, as an argument of kernels.
        end: bytes in use.
    """

    def __init__(self, limit: BatchLimit = DEFAULT_LIMIT) -> None:
        self._limit = limit
        self.end = 0
        self._allocate(min(_INITIAL_BYTES, limit.most))

    def clear(self) -> None:
        """Drop the decompressed bytes."""
        self.end = 0

    def add(self, codec: int, data: memoryview) -> bool:
        """Decompress a batch's records after the others; return False if a scratch that is not empty needs more room.

        After False, use its content, `clear` it and repeat: an empty scratch grows to the needed size.

        Raises:
            CorruptData: the bytes are not of the codec, or the codec is unknown.
            BatchTooLarge: the decompressed bytes exceed the limit.
        """
        decompress = _DECOMPRESSORS.get(codec)
        if decompress is None:
            raise CorruptData(f"codec {codec}, 0 to 4 expected")
        while True:
            try:
                self.end = decompress(data, self._view, self.end)
            except OutputFull as full:
                if self.end:
                    return False
                if len(self._view) >= self._limit.most or full.needed > self._limit.most:
                    self._limit.refuse(f"its {len(data)} bytes decompress to more than {len(self._view)} bytes")
                self._allocate(min(max(2 * len(self._view), full.needed), self._limit.most))
            except (cramjam.DecompressionError, struct.error) as error:
                raise CorruptData(f"{Codec(codec).name.lower()}: {error}") from error
            else:
                return True

    def _allocate(self, size: int) -> None:
        array = np.empty(size, np.uint8)
        self._view = memoryview(cast("Any", array)).cast("B")
        self.array: Bytes = array.view()
        self.array.flags.writeable = False
        self.given: Bytes = given(self.array)


# A function of the compressed bytes, the output and the start in it; returns the end in it.
_Decompress = Callable[[memoryview, memoryview, int], int]


def _stream(into: Callable[[memoryview, memoryview], int]) -> _Decompress:
    """Return a decompressor for a format without a size in advance."""

    def decompress(data: memoryview, output: memoryview, start: int) -> int:
        try:
            return start + into(data, output[start:])
        except cramjam.DecompressionError as error:
            if "whole buffer" in str(error):
                raise OutputFull(len(output) - start + 1) from None
            raise

    return decompress


def _snappy_block(block: memoryview, output: memoryview, start: int) -> int:
    try:
        return start + int(cramjam.snappy.decompress_raw_into(block, output[start:]))
    except cramjam.DecompressionError:
        needed = int(cramjam.snappy.decompress_raw_len(block))  # raises if the preamble has no valid length
        if len(output) - start < needed <= _SNAPPY_MOST_RATIO * len(block):
            raise OutputFull(needed) from None
        raise


def _snappy(data: memoryview, output: memoryview, start: int) -> int:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(data, output, start)
    position, end, written = _XERIAL_HEADER_SIZE, len(data), start
    while position < end:
        (size,) = _XERIAL_BLOCK_SIZE.unpack_from(data, position)
        position += 4
        if size > end - position:
            raise CorruptData(f"snappy: a block of {size} bytes where {end - position} remain")
        try:
            written = _snappy_block(data[position : position + size], output, written)
        except OutputFull as full:
            raise OutputFull(written - start + full.needed) from None
        position += size
    return written


def _lz4(data: memoryview, output: memoryview, start: int) -> int:
    magic, flags, block_size_id = _LZ4_HEADER.unpack_from(data)
    if magic != _LZ4_MAGIC:
        raise CorruptData("lz4: no frame")
    block_size = _LZ4_BLOCK_SIZES.get(block_size_id >> 4)
    if flags & _LZ4_UNUSUAL != _LZ4_INDEPENDENT_BLOCKS or block_size is None:
        return _lz4_frame(data, output, start)
    position = _LZ4_HEADER_SIZE + (8 if flags & _LZ4_CONTENT_SIZE else 0)
    checksum = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    end, written, capacity = len(data), start, len(output)
    while True:
        (size,) = _LZ4_BLOCK_HEADER.unpack_from(data, position)
        position += 4
        if not size:
            break
        stored, size = size & _LZ4_STORED, size & ~_LZ4_STORED
        if size > end - position - checksum:
            raise CorruptData(f"lz4: a block of {size} bytes where {end - position} remain")
        limit = min(written + block_size, capacity)
        if not stored:
            try:
                block = output[written:limit]
                written += cramjam.lz4.decompress_block_into(data[position : position + size], block, len(block))
            except cramjam.DecompressionError:
                if limit == written + block_size:
                    raise
                raise OutputFull(limit - start + 1) from None  # the last block may be short, so it was tried
        elif size > block_size:
            raise CorruptData(f"lz4: a stored block of {size} bytes, at most {block_size} expected")
        elif size > capacity - written:
            raise OutputFull(written + size - start)
        else:
            output[written : written + size] = data[position : position + size]
            written += size
        position += size + checksum
    if position + (4 if flags & _LZ4_CONTENT_CHECKSUM else 0) != end:
        return _lz4_frame(data, output, start)
    return written


_lz4_frame: Final = _stream(cramjam.lz4.decompress_into)
_DECOMPRESSORS: Final[dict[int, _Decompress]] = {
    Codec.GZIP: _stream(cramjam.gzip.decompress_into),
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _stream(cramjam.zstd.decompress_into),
}
