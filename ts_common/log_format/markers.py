"""Transaction markers: the control records of a batch, read without a compiled kernel.

Format: Kafka's `ControlRecordType` and `EndTransactionMarker`; records as in KIP-98. Kafka never compresses them.
"""

import struct
from collections.abc import Iterator
from typing import Final

from ts_common.errors import CorruptData
from ts_common.log_format.framing import BatchHeader
from ts_common.wording import counted

ABORT: Final = 0
COMMIT: Final = 1
_CONTROL_KEY: Final = struct.Struct(">hh")  # version, type
# Lengths, attributes, both deltas, the key, the lengths of value and headers: each at least a byte, the key four.
_LEAST_RECORD: Final = 11


def read_markers(header: BatchHeader, records: bytes) -> Iterator[tuple[int, int]]:
    """Yield (offset, type) of each control record; types other than `ABORT` and `COMMIT` end no transaction.

    Args:
        records: the bytes after the header.

    Raises:
        CorruptData: the records are compressed or truncated, their count is wrong, or one has no control key.
    """
    named = f"control batch of base offset {header.base_offset}"
    count = header.record_count or 0
    if header.codec:
        raise CorruptData(f"{named}: compressed with codec {header.codec}")
    if count * _LEAST_RECORD > len(records):
        raise CorruptData(f"{named}: {counted(count, 'record')} in {counted(len(records), 'byte')}")
    position = 0
    try:
        for _ in range(count):
            length, body = read_varint(records, position)
            position = body + length
            if length < _LEAST_RECORD - 1 or position > len(records):
                raise CorruptData(f"{named}: a record of {counted(length, 'byte')} where {len(records) - body} remain")
            _, after_timestamp = read_varint(records, body + 1)  # after one byte of attributes
            offset_delta, after_offset = read_varint(records, after_timestamp)
            key_length, key = read_varint(records, after_offset)
            if key_length < _CONTROL_KEY.size or key + key_length > position:
                raise CorruptData(f"{named}: a record without a control key")
            yield header.base_offset + offset_delta, _CONTROL_KEY.unpack_from(records, key)[1]
    except (IndexError, struct.error) as error:
        raise CorruptData(f"{named}: its records are truncated") from error
    if position != len(records):
        raise CorruptData(
            f"{named}: {counted(len(records) - position, 'byte')} after the last record; expected: no byte"
        )


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a zigzag varint (as Kafka's `ByteUtils.readVarint`) and the position after it."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise IndexError
