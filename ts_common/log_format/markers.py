"""Transaction markers: the control records of a batch, read without a compiled kernel.

Format: Kafka's `ControlRecordType` and `EndTransactionMarker`; records as in KIP-98. Kafka never compresses them.
"""

import struct
from collections.abc import Iterator
from typing import Final

from ts_common.errors import CorruptData
from ts_common.log_format.framing import CONTROL_MASK, TRANSACTIONAL_MASK, BatchHeader, encode_batch
from ts_common.log_format.varints import read_varint, varint
from ts_common.wording import counted

ABORT: Final = 0
COMMIT: Final = 1
_CONTROL_KEY: Final = struct.Struct(">hh")  # version, type
_VALUE: Final = struct.Struct(">hi")  # version, coordinator epoch
_COORDINATOR_EPOCH: Final = 0  # of a new cluster; later coordinators have higher ones
_NO_SEQUENCE: Final = -1
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


def encode_marker(offset: int, producer_id: int, producer_epoch: int, kind: int, time: int) -> bytes:
    """Return a control batch with one marker, as a coordinator of a new cluster writes it, of leader epoch 0.

    Args:
        kind: `ABORT` or `COMMIT`.
        time: ms since the epoch.
    """
    key, value = _CONTROL_KEY.pack(0, kind), _VALUE.pack(0, _COORDINATOR_EPOCH)
    # Attributes, both deltas, key, value, number of headers.
    body = b"".join((bytes(3), varint(len(key)), key, varint(len(value)), value, varint(0)))
    fields = (TRANSACTIONAL_MASK | CONTROL_MASK, 0, time, time, producer_id, producer_epoch, _NO_SEQUENCE, 1)
    return encode_batch(offset, 0, fields, varint(len(body)) + body)
