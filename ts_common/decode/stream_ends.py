"""Where streams of gzip and zstd end for Kafka's Java consumer, if other bytes follow, or if they are cut off there.

Formats: RFC 1952 for the header of a gzip member; RFC 8878 for the frames of zstd.
"""

import zlib
from typing import Final

_GZIP_START: Final = b"\x1f\x8b\x08"  # magic, deflate
_GZIP_FIXED: Final = 10  # bytes of the header without optional fields
_GZIP_CHECKSUM, _GZIP_EXTRA, _GZIP_NAME, _GZIP_COMMENT = 0x02, 0x04, 0x08, 0x10

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE: Final = b"\x2a\x4d\x18"  # after a byte of 50 to 5f
_ZSTD_READ: Final = (1 << 17) + 3  # bytes that zstd-jni reads at once
_ZSTD_DICTIONARY_SIZES: Final = (0, 1, 2, 4)
_ZSTD_CONTENT_SIZES: Final = (0, 2, 4, 8)
_ZSTD_SINGLE_SEGMENT, _ZSTD_CHECKSUM = 0x20, 0x04
_ZSTD_FLAGS: Final = 4  # their position in a frame
_ZSTD_RESERVED, _ZSTD_DICTIONARY = 0x08, 0x03
_ZSTD_MOST_BLOCK: Final = 1 << 17
_ZSTD_BLOCK_HEADER: Final = 3  # bytes
_ZSTD_MOST_EXPONENT: Final = 17  # of a window of 128 MiB
_ZSTD_EMPTY_LAST_BLOCK: Final = b"\x01\0\0"
_ZSTD_RAW, _ZSTD_RLE, _ZSTD_NO_BLOCK = 0, 1, 3  # types of a block


def gzip_body(data: memoryview, position: int) -> int | None:
    """Return the position after the header of a gzip member; None if no valid header is there (`GZIPInputStream`)."""
    start = position
    if bytes(data[position : position + len(_GZIP_START)]) != _GZIP_START or position + _GZIP_FIXED > len(data):
        return None
    flags = data[position + len(_GZIP_START)]
    position += _GZIP_FIXED
    if flags & _GZIP_EXTRA:
        position += 2 + int.from_bytes(data[position : position + 2], "little")
    for flag in (_GZIP_NAME, _GZIP_COMMENT):
        if flags & flag:
            end = bytes(data[position:]).find(b"\0")
            if end < 0:
                return None
            position += end + 1
    if flags & _GZIP_CHECKSUM:
        expected = (zlib.crc32(data[start:position]) & 0xFFFF).to_bytes(2, "little")
        if bytes(data[position : position + 2]) != expected:
            return None
        position += 2
    return position if position <= len(data) else None


def zstd_until_cut(data: memoryview) -> bytes | None:
    """Return the whole zstd frames, and a frame of what zstd-jni reads of another one, which is cut off.

    Returns:
        None if what follows the whole frames is an error for zstd-jni. If a frame ends in the
        same read, the beginning of another frame is no error.
    """
    end = 0
    while (following := _zstd_frame_end(data, end)) is not None:
        end = following
    if end <= max(len(data) - 1, 0) // _ZSTD_READ * _ZSTD_READ:
        return None
    begun = _begun_zstd_frame(data[end:])
    return None if begun is None else bytes(data[:end]) + begun


def _begun_zstd_frame(rest: memoryview) -> bytes | None:
    """Return a frame with the content of the whole blocks of one that is cut off; None for what does not begin a frame.

    Neither checksum nor size are checked in a frame that does not end, so the result has neither.
    """
    head = bytes(rest[:4])
    if 0x50 <= (head[:1] or b"\x50")[0] <= 0x5F:
        return b"" if _ZSTD_SKIPPABLE.startswith(head[1:]) else None
    if not _ZSTD_MAGIC.startswith(head):
        return None
    if len(rest) > _ZSTD_FLAGS and rest[_ZSTD_FLAGS] & _ZSTD_RESERVED:
        return None
    place = _zstd_first_block(rest)
    if place is None:
        return b""
    if rest[_ZSTD_FLAGS] & _ZSTD_DICTIONARY:
        return None
    blocks, is_last = bytearray(), False
    while place + _ZSTD_BLOCK_HEADER <= len(rest) and not is_last:
        body = place + _ZSTD_BLOCK_HEADER
        header = int.from_bytes(rest[place:body], "little")
        kind, size, is_last = header >> 1 & 3, header >> 3, bool(header & 1)
        if kind == _ZSTD_NO_BLOCK or size > _zstd_block_limit(rest):
            return None
        end = _zstd_block_end(rest, place)
        if end is None:
            if kind != _ZSTD_RAW:
                break
            end, header = len(rest), len(rest) - body << 3  # it is decompressed byte by byte
        blocks += (header & ~1).to_bytes(_ZSTD_BLOCK_HEADER, "little") + rest[body:end]
        place = end
    if not blocks:
        return b""
    return _ZSTD_MAGIC + b"\0" + bytes((_zstd_window(rest),)) + bytes(blocks) + _ZSTD_EMPTY_LAST_BLOCK


def _zstd_window(frame: memoryview) -> int:
    """Return the descriptor of a window that is large enough for a frame."""
    flags = frame[_ZSTD_FLAGS]
    if not flags & _ZSTD_SINGLE_SEGMENT:
        return frame[_ZSTD_FLAGS + 1]
    exponent = max((_zstd_content_size(frame) - 1).bit_length() - 10, 0)
    return min(exponent, _ZSTD_MOST_EXPONENT) << 3


def _zstd_content_size(frame: memoryview) -> int:
    """Return the size of the content of a single segment, by a whole header without a dictionary."""
    size = _ZSTD_CONTENT_SIZES[frame[_ZSTD_FLAGS] >> 6] or 1
    place = _ZSTD_FLAGS + 1
    return int.from_bytes(frame[place : place + size], "little") + (256 if size == 2 else 0)


def _zstd_block_limit(frame: memoryview) -> int:
    """Return the greatest size of a block, by a whole header without a dictionary."""
    flags, place = frame[_ZSTD_FLAGS], _ZSTD_FLAGS + 1
    if not flags & _ZSTD_SINGLE_SEGMENT:
        exponent, mantissa = frame[place] >> 3, frame[place] & 7
        return min((1 << 10 + exponent) + (1 << 7 + exponent) * mantissa, _ZSTD_MOST_BLOCK)
    return min(_zstd_content_size(frame), _ZSTD_MOST_BLOCK)


def _zstd_frame_end(data: memoryview, position: int) -> int | None:
    """Return the position after the whole frame at a position; None if there is no whole frame."""
    head = bytes(data[position : position + 4])
    if len(head) == 4 and 0x50 <= head[0] <= 0x5F and head[1:] == _ZSTD_SKIPPABLE:
        end = position + 8 + int.from_bytes(data[position + 4 : position + 8], "little")
        return end if position + 8 <= len(data) and end <= len(data) else None
    if head != _ZSTD_MAGIC:
        return None
    place = _zstd_first_block(data[position:])
    if place is None:
        return None
    place += position
    while (block_end := _zstd_block_end(data, place)) is not None:
        if data[place] & 1:  # the last one
            block_end += 4 if data[position + _ZSTD_FLAGS] & _ZSTD_CHECKSUM else 0
            return block_end if block_end <= len(data) else None
        place = block_end
    return None


def _zstd_first_block(frame: memoryview) -> int | None:
    """Return the size of a frame's header; None if it is cut off."""
    if len(frame) < 5:
        return None
    flags = frame[_ZSTD_FLAGS]
    size = 5 + _ZSTD_DICTIONARY_SIZES[flags & 3] + _ZSTD_CONTENT_SIZES[flags >> 6]
    size += int(flags < 0x40) if flags & _ZSTD_SINGLE_SEGMENT else 1
    return size if size <= len(frame) else None


def _zstd_block_end(data: memoryview, position: int) -> int | None:
    """Return the position after a block; None if it is cut off."""
    if position + 3 > len(data):
        return None
    header = int.from_bytes(data[position : position + 3], "little")
    end = position + 3 + (1 if header >> 1 & 3 == _ZSTD_RLE else header >> 3)
    return end if end <= len(data) else None
