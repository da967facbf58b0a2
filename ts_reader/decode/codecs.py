"""Decompression by Kafka's codec ids, into a reused buffer.

Formats: gzip (RFC 1952); snappy in the framing of xerial's snappy-java, as Kafka's clients write it, or without
framing, as some others do; the LZ4 frame (KIP-57); zstd (KIP-110).

Where a stream ends, and which one is rejected, is what Kafka's Java consumer does. Bytes after the end are ignored:

| codec | its class | the end |
| --- | --- | --- |
| gzip | the JDK's `GZIPInputStream` | a member that no valid header of another one follows |
| snappy | snappy-java's `SnappyInputStream` | fewer than four bytes; a stream can follow another one |
| lz4 | `Lz4BlockInputStream` | the end mark of the first frame, or a block without content |
| zstd | zstd-jni's `ZstdInputStreamNoFinalizer` | the last byte, in a frame only if another one ends in the last read |

The usual stream is decompressed at once, by a decoder that accepts less; the others step by step.
"""

import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import lru_cache, partial
from itertools import chain
from typing import Any, Final, cast

import cramjam
import numpy as np
from zlib_ng import zlib_ng

from ts_common.errors import CorruptData
from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit
from ts_common.wording import counted
from ts_reader.decode.checksums import xxh32
from ts_reader.decode.compiled import given
from ts_reader.decode.kernel_source import Bytes
from ts_reader.decode.stream_ends import ends_after_zstd_frame, gzip_body

_INITIAL_BYTES: Final = 1 << 20

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE: Final = 16  # the magic, a version, the lowest compatible version
_XERIAL_BLOCK_SIZE: Final = struct.Struct(">I")
_XERIAL_VERSION: Final = struct.Struct(">i")
_XERIAL_HEAD: Final = int.from_bytes(_XERIAL_MAGIC[:4], "big")
_SNAPPY_MOST_RATIO: Final = 22  # three bytes encode a copy of at most 64, so a preamble with more is wrong
_LZ4_MAGIC: Final = 0x184D2204
_LZ4_HEADER: Final = struct.Struct("<IBB")  # magic, flags, block size id << 4; a header checksum follows
_GZIP_ERROR: Final = cast("type[Exception]", zlib_ng.error)  # its stub has an instance
_GZIP_FORMAT: Final = zlib_ng.MAX_WBITS + 16  # zlib's number for a member with header and trailer
_GZIP_WHOLE: Final = 1 << 20  # bytes of a member, and of its content, that are decompressed at once
_GZIP_BUFFER: Final = 8192  # of Kafka's consumer
_GZIP_INPUT: Final = 4096  # bytes of a member that are decompressed at once
_GZIP_OUTPUT: Final = 1 << 16  # bytes that they become at once
_GZIP_TRAILER: Final = struct.Struct("<II")  # CRC-32, size modulo 2^32
_GZIP_WORTH_A_TRY: Final = 26  # bytes in the buffer from a trailer on: fewer contain no other member
_LZ4_BLOCK_HEADER: Final = struct.Struct("<I")  # size; the highest bit marks a stored block
_LZ4_BLOCK_SIZES: Final = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_LZ4_REQUIRED: Final = 0xE3  # version, block independence, a reserved bit, a dictionary
_LZ4_INDEPENDENT_BLOCKS: Final = 0x60  # version 1
_LZ4_DESCRIPTOR: Final = 4  # position of the flags; the header checksum covers all bytes from here up to its own
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
    """The output needs at least `needed` bytes after the start of the batch.

    Args:
        resume: a decompressor that continues in a larger output with the same content; None to repeat all of it.
    """

    def __init__(self, needed: int, resume: "_Decompress | None" = None) -> None:
        self.needed = needed
        self.resume = resume
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

    def add(self, codec: int, data: memoryview, magic: int = 2) -> bool:
        """Decompress a batch's records after the others; return False if a scratch that is not empty needs more room.

        After False, use its content, `clear` it and repeat: an empty scratch grows to the needed size.

        Args:
            codec: Kafka's id.
            magic: of the batch; with 0 the header checksum of an LZ4 frame is ignored, which Kafka wrote wrongly.

        Raises:
            CorruptData: the bytes are not of the codec, or the codec is unknown.
            BatchTooLarge: the decompressed bytes exceed the limit.
        """
        decompress = _decompressor(codec, magic)
        while True:
            try:
                self.end = decompress(data, self._view, self.end)
            except OutputFull as full:
                if self.end:
                    return False
                if len(self._view) >= self._limit.most or full.needed > self._limit.most:
                    self._limit.refuse(f"its {len(data)} bytes decompress to more than {len(self._view)} bytes")
                before = self._view
                self._allocate(min(max(2 * len(before), full.needed), self._limit.most))
                if full.resume is not None:
                    self._view[: len(before)] = before
                    decompress = full.resume
            except (cramjam.DecompressionError, struct.error, IndexError) as error:
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


def _snappy_block(block: memoryview, output: memoryview, start: int) -> int:
    try:
        return start + int(cramjam.snappy.decompress_raw_into(block, output[start:]))
    except cramjam.DecompressionError:
        needed = int(cramjam.snappy.decompress_raw_len(block))  # raises if the preamble has no valid length
        if len(output) - start < needed <= _SNAPPY_MOST_RATIO * len(block):
            raise OutputFull(needed) from None
        raise


def _is_framed(data: memoryview) -> bool:
    return len(data) >= _XERIAL_HEADER_SIZE and bytes(data[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC


def _snappy(data: memoryview, output: memoryview, start: int) -> int:
    if not _is_framed(data):
        return _snappy_block(data, output, start)
    position, end, written = _XERIAL_HEADER_SIZE, len(data), start
    passed = start  # output at the last header that is not valid: the consumer's next read continues after one
    while position + _XERIAL_BLOCK_SIZE.size <= end:
        (size,) = _XERIAL_BLOCK_SIZE.unpack_from(data, position)
        if size == _XERIAL_HEAD:  # another stream
            header = data[position : position + _XERIAL_HEADER_SIZE]
            position += _XERIAL_HEADER_SIZE
            if position > end:
                raise CorruptData("snappy: the header of another stream is cut off")
            if bytes(header[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
                if written == passed:
                    break
                passed = written
                continue
            (version,) = _XERIAL_VERSION.unpack_from(header, len(_XERIAL_MAGIC))
            if version < 1:
                raise CorruptData(f"snappy: version {version} of another stream, at least 1 expected")
            continue
        position += 4
        if size > end - position:
            raise CorruptData(f"snappy: a block of {counted(size, 'byte')} where {end - position} remain")
        try:
            written = _snappy_block(data[position : position + size], output, written)
        except OutputFull as full:
            raise OutputFull(written - start + full.needed) from None
        position += size
    return written


def _gzip(data: memoryview, output: memoryview, start: int) -> int:
    content = _whole_gzip(data, len(output) - start)
    pieces = _gzip_pieces(data) if content is None else iter((content,))
    return _fill(pieces, start, data, output, start)


def _whole_gzip(data: memoryview, room: int) -> bytes | None:
    """Return the content of one small member that the data is, by one call; None if the data is anything else.

    cramjam's decoder is slower, and reads zeros from a distance before the member's begin.
    """
    if len(data) > _GZIP_WHOLE or bytes(data[3:4]) != b"\0":  # a header without optional fields
        return None
    inflate = zlib_ng.decompressobj(_GZIP_FORMAT)
    try:
        content = inflate.decompress(data, min(room, _GZIP_WHOLE) + 1)  # 0 is no limit
    except _GZIP_ERROR:
        return None
    return content if inflate.eof and not inflate.unused_data else None


def _fill(pieces: Iterator[bytes], written: int, _: memoryview, output: memoryview, start: int) -> int:
    """Write pieces to the output; return their end. The next call for a larger output continues."""
    for piece in pieces:
        end = written + len(piece)
        if end > len(output):
            raise OutputFull(end - start, partial(_fill, chain((piece,), pieces), written))
        output[written:end] = piece
        written = end
    return written


def _gzip_pieces(data: memoryview) -> Iterator[bytes]:
    """Yield the content of all members.

    zlib copies what a member leaves of its input, so it gets a small part of the data at a time.
    """
    body = gzip_body(data, 0)
    if body is None:
        raise CorruptData("gzip: no header")
    edge = body  # up to here the consumer has read into its buffer
    while True:
        inflate, checksum, size = zlib_ng.decompressobj(-zlib_ng.MAX_WBITS), 0, 0
        end, rest = body, b""
        while not inflate.eof:
            if not rest:
                rest = bytes(data[end : end + _GZIP_INPUT])
                end += len(rest)
            try:
                piece = inflate.decompress(rest, _GZIP_OUTPUT)
            except _GZIP_ERROR as error:
                raise CorruptData(f"gzip: {error}") from error
            if not piece and not rest and not inflate.eof:
                raise CorruptData("gzip: the stream ends inside a member")
            yield piece
            size, checksum, rest = size + len(piece), zlib_ng.crc32(piece, checksum), inflate.unconsumed_tail
        end -= len(inflate.unused_data)
        edge = min(edge + -(-max(end - edge, 0) // _GZIP_BUFFER) * _GZIP_BUFFER, len(data))
        if _GZIP_TRAILER.unpack_from(data, end) != (checksum, size & 0xFFFFFFFF):
            raise CorruptData("gzip: the trailer does not fit the content")
        following = gzip_body(data, end + _GZIP_TRAILER.size)
        if following is None or (edge == len(data) and edge - end <= _GZIP_WORTH_A_TRY):
            return
        body, edge = following, max(edge, following)


def _zstd(data: memoryview, output: memoryview, start: int) -> int:
    room = cramjam.Buffer(output[start:], copy=False)
    try:
        cramjam.zstd.decompress_into(data, room)
    except cramjam.DecompressionError as error:
        if "Too much to write" in str(error):
            raise OutputFull(len(output) - start + 1) from None
        if "incomplete frame" not in str(error) or not ends_after_zstd_frame(data):
            raise
    return start + int(room.tell())


def _lz4(data: memoryview, output: memoryview, start: int, *, is_checked: bool = True) -> int:
    flags, block_size, position = _lz4_header(data, is_checked=is_checked)
    checksum = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    end, written, capacity = len(data), start, len(output)
    while True:
        (size,) = _LZ4_BLOCK_HEADER.unpack_from(data, position)
        position += 4
        stored, size = size & _LZ4_STORED, size & ~_LZ4_STORED
        if not size:
            break
        if size > block_size:
            raise CorruptData(f"lz4: a block of {size} bytes, at most {block_size} expected")
        if size > end - position - checksum:
            raise CorruptData(f"lz4: a block of {counted(size, 'byte')} where {end - position} remain")
        begun = written
        limit = min(written + block_size, capacity)
        if not stored:
            try:
                block = output[written:limit]
                written += cramjam.lz4.decompress_block_into(data[position : position + size], block, len(block))
            except cramjam.DecompressionError:
                if limit == written + block_size:
                    raise
                raise OutputFull(limit - start + 1) from None  # the last block may be short, so it was tried
        elif size > capacity - written:
            raise OutputFull(written + size - start)
        else:
            output[written : written + size] = data[position : position + size]
            written += size
        position += size
        if checksum:
            (stated,) = _LZ4_BLOCK_HEADER.unpack_from(data, position)
            if xxh32(np.frombuffer(data, np.uint8), position - size, position) != stated:
                raise CorruptData("lz4: the checksum of a block does not fit its bytes")
            position += checksum
        if written == begun:
            return written
    if flags & _LZ4_CONTENT_CHECKSUM and position + 4 > end:
        raise CorruptData("lz4: the content checksum is cut off")
    return written


def _lz4_of_magic_0(data: memoryview, output: memoryview, start: int) -> int:
    return _lz4(data, output, start, is_checked=False)


def _lz4_header(data: memoryview, *, is_checked: bool) -> tuple[int, int, int]:
    """Return the flags, the greatest size of a block, and the position after the header.

    Raises:
        CorruptData: Kafka's consumer rejects it. struct.error, IndexError: it is cut off.
    """
    magic, flags, descriptor = _LZ4_HEADER.unpack_from(data)
    if magic != _LZ4_MAGIC:
        raise CorruptData("lz4: no frame")
    block_size = None if descriptor & 0x0F else _LZ4_BLOCK_SIZES.get(descriptor >> 4)
    if flags & _LZ4_REQUIRED != _LZ4_INDEPENDENT_BLOCKS or block_size is None:
        raise CorruptData(f"lz4: flags {flags:02x} and block size {descriptor:02x} of a frame that no consumer reads")
    position = _LZ4_HEADER.size + (8 if flags & _LZ4_CONTENT_SIZE else 0)
    if data[position] != _lz4_header_checksum(bytes(data[_LZ4_DESCRIPTOR:position])) and is_checked:
        raise CorruptData("lz4: the checksum of the header does not fit its bytes")
    return flags, block_size, position + 1


@lru_cache(256)
def _lz4_header_checksum(descriptor: bytes) -> int:
    return xxh32(np.frombuffer(descriptor, np.uint8), 0, len(descriptor)) >> 8 & 0xFF


def check_begin(codec: int, data: memoryview) -> None:
    """Check what Kafka's consumer reads of the stream of a batch without records.

    Raises:
        CorruptData: the codec is unknown, or it rejects the beginning.
    """
    _decompressor(codec, 2)
    try:
        if codec == Codec.GZIP and gzip_body(data, 0) is None:
            raise CorruptData("gzip: no header")
        if codec == Codec.SNAPPY:
            if not _is_framed(data):
                if int(cramjam.snappy.decompress_raw_len(data)) > _SNAPPY_MOST_RATIO * len(data):
                    raise CorruptData("snappy: its preamble has a length beyond its bytes")  # it would be allocated
                cramjam.snappy.decompress_raw(data)
        elif codec == Codec.LZ4:
            _lz4_header(data, is_checked=True)
    except (cramjam.DecompressionError, struct.error, IndexError) as error:
        raise CorruptData(f"{Codec(codec).name.lower()}: {error}") from error


def _decompressor(codec: int, magic: int) -> _Decompress:
    """Return the function of a codec.

    Raises:
        CorruptData: the codec is unknown.
    """
    if codec not in _DECOMPRESSORS:
        raise CorruptData(f"codec {codec}, 0 to 4 expected")
    return _lz4_of_magic_0 if codec == Codec.LZ4 and magic == 0 else _DECOMPRESSORS[codec]


_DECOMPRESSORS: Final[dict[int, _Decompress]] = {
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
