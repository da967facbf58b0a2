"""Compressed frames as clients write them."""

import struct

import cramjam
import numpy as np

from ts_reader.decode.checksums import xxh32


def lz4_frame(
    data: bytes, *, flags: int = 0x60, block: int = 1 << 16, stored: bool = False, header_checksum: int | None = None
) -> bytes:
    """Return a frame; by default its checksums are right, but for that of the content, which no consumer reads."""
    descriptor = struct.pack("<BB", flags, 0x40) + (struct.pack("<Q", len(data)) if flags & 0x08 else b"")
    out = bytearray(struct.pack("<I", 0x184D2204) + descriptor)
    out.append(checksum(descriptor) >> 8 & 0xFF if header_checksum is None else header_checksum)
    for start in range(0, len(data), block):
        piece = data[start : start + block]
        packed = piece if stored else bytes(cramjam.lz4.compress_block(piece, store_size=False))
        out += struct.pack("<I", len(packed) | (0x80000000 if stored else 0)) + packed
        out += struct.pack("<I", checksum(packed)) if flags & 0x10 else b""
    return bytes(out + bytes(4) + (b"sum!" if flags & 0x04 else b""))


def xerial(data: bytes) -> bytes:
    out = b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
    for start in range(0, len(data), 32 << 10):
        packed = bytes(cramjam.snappy.compress_raw(data[start : start + (32 << 10)]))
        out += struct.pack(">I", len(packed)) + packed
    return out


def checksum(data: bytes) -> int:
    return xxh32(np.frombuffer(data, np.uint8), 0, len(data))
