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


def zstd_frames_end(data: memoryview) -> int | None:
    """Return the position after the last whole zstd frame; None if what follows it is an error for zstd-jni.

    The beginning of another frame without content does not count if a frame ends in the same read.
    """
    end = 0
    while (following := _zstd_frame_end(data, end)) is not None:
        end = following
    last_read = max(len(data) - 1, 0) // _ZSTD_READ * _ZSTD_READ
    return end if end > last_read and _begins_zstd_frame(data[end:]) else None


def _begins_zstd_frame(rest: memoryview) -> bool:
    """Return whether bytes begin a frame, and are cut off before any of its content."""
    head = bytes(rest[:4])
    if 0x50 <= (head[:1] or b"\x50")[0] <= 0x5F:
        return _ZSTD_SKIPPABLE.startswith(head[1:])
    if not _ZSTD_MAGIC.startswith(head):
        return False
    if len(rest) > _ZSTD_FLAGS and rest[_ZSTD_FLAGS] & _ZSTD_RESERVED:
        return False
    block = _zstd_first_block(rest)
    if block is None:
        return True
    if rest[_ZSTD_FLAGS] & _ZSTD_DICTIONARY or _zstd_block_end(rest, block) is not None:
        return False
    if block + 3 > len(rest):
        return True
    header = int.from_bytes(rest[block : block + 3], "little")
    kind, size = header >> 1 & 3, header >> 3
    has_content = kind == _ZSTD_RAW and block + 3 < len(rest)  # it is decompressed byte by byte
    return not has_content and kind != _ZSTD_NO_BLOCK and size <= _zstd_block_limit(rest)


def _zstd_block_limit(frame: memoryview) -> int:
    """Return the greatest size of a block, by a whole header without a dictionary."""
    flags, place = frame[_ZSTD_FLAGS], _ZSTD_FLAGS + 1
    if not flags & _ZSTD_SINGLE_SEGMENT:
        exponent, mantissa = frame[place] >> 3, frame[place] & 7
        return min((1 << 10 + exponent) + (1 << 7 + exponent) * mantissa, _ZSTD_MOST_BLOCK)
    size = _ZSTD_CONTENT_SIZES[flags >> 6] or 1
    return min(int.from_bytes(frame[place : place + size], "little") + (256 if size == 2 else 0), _ZSTD_MOST_BLOCK)


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
