"""Compressed frames as clients write them."""

import struct

import cramjam


def lz4_frame(data: bytes, *, flags: int = 0x60, block: int = 1 << 16, stored: bool = False) -> bytes:
    out = bytearray(struct.pack("<IBB", 0x184D2204, flags, 0x40))
    if flags & 0x08:
        out += struct.pack("<Q", len(data))
    out += b"\xaa"  # a header checksum that is wrong, as Kafka wrote it in magic 0
    for start in range(0, len(data), block):
        piece = data[start : start + block]
        packed = piece if stored else bytes(cramjam.lz4.compress_block(piece, store_size=False))
        out += struct.pack("<I", len(packed) | (0x80000000 if stored else 0)) + packed
        out += b"sum!" if flags & 0x10 else b""
    return bytes(out + bytes(4) + (b"sum!" if flags & 0x04 else b""))


def xerial(data: bytes) -> bytes:
    out = b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
    for start in range(0, len(data), 32 << 10):
        packed = bytes(cramjam.snappy.compress_raw(data[start : start + (32 << 10)]))
        out += struct.pack(">I", len(packed)) + packed
    return out
