"""Compression by Kafka's codec ids, as Kafka's Java clients write their streams.

gzip with level 6; snappy in xerial's framing; LZ4 frames of independent blocks of 64 KiB without checksums; zstd with
level 3. `codecs` reads them.
"""

from typing import Final

import cramjam

from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit
from ts_reader.decode.codecs import Codec, Scratch

_XERIAL_HEADER: Final = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK: Final = 32 << 10
_LZ4_HEADER: Final = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_BLOCK: Final = 64 << 10
_LZ4_STORED: Final = 1 << 31


def compress(codec: Codec, data: bytes) -> bytes:
    """Return a stream of a codec other than `NONE`."""
    if codec is Codec.GZIP:
        return bytes(cramjam.gzip.compress(data, 6))
    if codec is Codec.ZSTD:
        return bytes(cramjam.zstd.compress(data, 3))
    if codec is Codec.SNAPPY:
        framed = bytearray(_XERIAL_HEADER)
        for start in range(0, len(data), _XERIAL_BLOCK):
            block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
            framed += len(block).to_bytes(4, "big") + block
        return bytes(framed)
    framed = bytearray(_LZ4_HEADER)
    for start in range(0, len(data), _LZ4_BLOCK):
        plain = data[start : start + _LZ4_BLOCK]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        stored = len(block) >= len(plain)  # a larger block than the frame's is damage
        framed += (len(plain) | _LZ4_STORED if stored else len(block)).to_bytes(4, "little")
        framed += plain if stored else block
    return bytes(framed + bytes(4))


class ReusedCodecs:
    """The codecs for `ts_common.log_format.batch_rewriting`; not thread-safe."""

    def __init__(self, limit: BatchLimit = DEFAULT_LIMIT) -> None:
        self._scratch = Scratch(limit)

    def unpack(self, codec: int, data: memoryview) -> bytes:
        """Return decompressed records; raise as `Scratch.add`."""
        self._scratch.clear()
        self._scratch.add(codec, data)
        return self._scratch.array[: self._scratch.end].tobytes()

    def pack(self, codec: int, data: bytes) -> bytes:
        """Return compressed records."""
        return compress(Codec(codec), data)
