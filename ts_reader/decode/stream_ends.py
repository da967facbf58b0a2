"""Where streams of gzip and zstd end for Kafka's Java consumer, if other bytes follow a member or frame.

Formats: RFC 1952 for the header of a gzip member; RFC 8878 for the frames of zstd.
"""

import zlib
from typing import Final

_GZIP_START: Final = b"\x1f\x8b\x08"  # magic, deflate
_GZIP_FIXED: Final = 10  # bytes of the header without optional fields
_GZIP_SEARCHED: Final = 512  # bytes that are searched at once for the end of a name
_GZIP_CHECKSUM, _GZIP_EXTRA, _GZIP_NAME, _GZIP_COMMENT = 0x02, 0x04, 0x08, 0x10

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE: Final = b"\x2a\x4d\x18"  # after a byte of 50 to 5f
_ZSTD_READ: Final = (1 << 17) + 3  # bytes that zstd-jni reads at once
_ZSTD_DICTIONARY_SIZES: Final = (0, 1, 2, 4)
_ZSTD_CONTENT_SIZES: Final = (0, 2, 4, 8)
_ZSTD_SINGLE_SEGMENT, _ZSTD_CHECKSUM = 0x20, 0x04
_ZSTD_FLAGS: Final = 4  # their position in a frame
_ZSTD_RLE: Final = 1  # a block that is one byte


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
            while (end := bytes(data[position : position + _GZIP_SEARCHED]).find(b"\0")) < 0:
                if position >= len(data):
                    return None
                position += _GZIP_SEARCHED
            position += end + 1
    if flags & _GZIP_CHECKSUM:
        expected = (zlib.crc32(data[start:position]) & 0xFFFF).to_bytes(2, "little")
        if bytes(data[position : position + 2]) != expected:
            return None
        position += 2
    return position if position <= len(data) else None


def ends_after_zstd_frame(data: memoryview) -> bool:
    """Return whether a zstd frame ends in the last read of zstd-jni; if so, it accepts a frame that is cut off."""
    last_read = (len(data) - 1) // _ZSTD_READ * _ZSTD_READ
    end = 0
    while (following := _zstd_frame_end(data, end)) is not None:
        end = following
    return end > max(last_read, 0)


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
