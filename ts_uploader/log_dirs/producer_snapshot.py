"""Parses the producer snapshot `<offset>.snapshot`: which transactions were open at that offset.

Format: Kafka's `ProducerStateManager` and `ProducerSnapshot.json`, version 1, big-endian.
"""

import struct
from typing import Final

from awscrt.checksums import crc32c

from ts_common.errors import CorruptData
from ts_common.wording import counted

_VERSION: Final = struct.Struct(">h")
_CRC: Final = struct.Struct(">I")  # CRC-32C of what follows it
_COUNT: Final = struct.Struct(">i")
# producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch,
# first offset of the open transaction or -1
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_CRC_POSITION: Final = _VERSION.size
_COUNT_POSITION: Final = _CRC_POSITION + _CRC.size
_ENTRIES_POSITION: Final = _COUNT_POSITION + _COUNT.size
_SUPPORTED_VERSION: Final = 1


def first_unstable_offset(data: bytes) -> int | None:
    """Return the first offset of the earliest transaction that was open at the snapshot; None without one.

    With None, the last stable offset there is the snapshot's own offset.

    Raises:
        CorruptData: as `open_transactions`.
    """
    return min(open_transactions(data).values(), default=None)


def open_transactions(data: bytes) -> dict[int, int]:
    """Return the first offset of each transaction that was open at the snapshot, by producer id.

    Raises:
        CorruptData: another version, a wrong CRC, or a count that does not fit the size.
    """
    if len(data) < _ENTRIES_POSITION:
        raise CorruptData(f"producer snapshot: {counted(len(data), 'byte')}, at least {_ENTRIES_POSITION} expected")
    (version,) = _VERSION.unpack_from(data)
    if version != _SUPPORTED_VERSION:
        raise CorruptData(f"producer snapshot: version {version}, {_SUPPORTED_VERSION} expected")
    (stored,) = _CRC.unpack_from(data, _CRC_POSITION)
    crc = crc32c(data[_COUNT_POSITION:])
    if crc != stored:
        raise CorruptData(f"producer snapshot: CRC {crc:08x}, {stored:08x} expected by its header")
    (count,) = _COUNT.unpack_from(data, _COUNT_POSITION)
    if count < 0 or _ENTRIES_POSITION + count * _ENTRY.size != len(data):
        raise CorruptData(
            f"producer snapshot: its count of {counted(count, 'entry')} does not fit {counted(len(data), 'byte')}"
        )
    return {entry[0]: entry[-1] for entry in _ENTRY.iter_unpack(data[_ENTRIES_POSITION:]) if entry[-1] >= 0}
