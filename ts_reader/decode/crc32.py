"""CRC-32 (RFC 1952) for kernels. awscrt is faster, but not with a call for each message."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ts_reader.decode.compiled import Bytes, inlined


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
