"""Checksums for kernels: CRC-32 (RFC 1952), and XXH32 with seed 0, the one of LZ4 frames.

awscrt has a faster CRC-32, but not with a call for each message.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ts_reader.decode.compiled import kernel
from ts_reader.decode.kernel_source import Bytes, inlined

_1: Final = 2654435761
_2: Final = 2246822519
_3: Final = 3266489917
_4: Final = 668265263
_5: Final = 374761393
_STRIPE: Final = 16
_MASK: Final = 0xFFFFFFFF


@inlined
def _times(value: Any, factor: int) -> Any:
    """Multiply modulo 2^32."""
    return (np.uint64(value) * np.uint64(factor)) & np.uint64(_MASK)


@inlined
def _rotated(value: Any, bits: int) -> Any:
    return ((value << np.uint64(bits)) | (value >> np.uint64(32 - bits))) & np.uint64(_MASK)


@inlined
def _lane(data: Bytes, position: int) -> Any:
    """Return a little-endian uint32."""
    value = np.uint64(0)
    for index in range(4):
        value |= np.uint64(data[position + index]) << np.uint64(8 * index)
    return value


@inlined
def _round(state: Any, lane: Any) -> Any:
    return _times(_rotated((state + _times(lane, _2)) & np.uint64(_MASK), 13), _1)


@kernel
def xxh32(data: Bytes, position: int, end: int) -> int:
    """Return the XXH32 of `data[position:end]`."""
    size = end - position
    if size >= _STRIPE:
        first, second = np.uint64((_1 + _2) & _MASK), np.uint64(_2)
        third, fourth = np.uint64(0), np.uint64((1 << 32) - _1)
        while end - position >= _STRIPE:
            first = _round(first, _lane(data, position))
            second = _round(second, _lane(data, position + 4))
            third = _round(third, _lane(data, position + 8))
            fourth = _round(fourth, _lane(data, position + 12))
            position += _STRIPE
        value = _rotated(first, 1) + _rotated(second, 7) + _rotated(third, 12) + _rotated(fourth, 18)
    else:
        value = np.uint64(_5)
    value = (value + np.uint64(size)) & np.uint64(_MASK)
    while end - position >= 4:
        value = _times(_rotated((value + _times(_lane(data, position), _3)) & np.uint64(_MASK), 17), _4)
        position += 4
    while position < end:
        value = _times(_rotated((value + _times(data[position], _5)) & np.uint64(_MASK), 11), _1)
        position += 1
    value = _times(value ^ (value >> np.uint64(15)), _2)
    value = _times(value ^ (value >> np.uint64(13)), _3)
    return np.int64(value ^ (value >> np.uint64(16)))  # type: ignore[return-value]


def _table() -> npt.NDArray[np.uint32]:
    """Return the CRC-32 of each byte followed by 0 to 7 zero bytes."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, np.uint32(0xEDB88320) ^ (table >> 1), table >> 1).astype(np.uint32)
    rows = [table]
    for _ in range(7):
        rows.append(table[rows[-1] & 0xFF] ^ (rows[-1] >> 8))
    return np.stack(rows)


_TABLE: Final = _table()


@inlined
def crc32_of(data: Bytes, position: int, end: int) -> Any:
    """Return the CRC-32 of `data[position:end]`."""
    crc = np.uint32(0xFFFFFFFF)
    while end - position >= 8:
        low = np.uint32(0)
        for index in range(4):
            low |= np.uint32(data[position + index]) << np.uint32(8 * index)
        low ^= crc
        crc = np.uint32(0)
        for index in range(4):
            crc ^= _TABLE[7 - index, (low >> np.uint32(8 * index)) & np.uint32(0xFF)]
            crc ^= _TABLE[3 - index, data[position + 4 + index]]
        position += 8
    while position < end:
        crc = _TABLE[0, (crc ^ np.uint32(data[position])) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
        position += 1
    return np.int64(crc ^ np.uint32(0xFFFFFFFF))
