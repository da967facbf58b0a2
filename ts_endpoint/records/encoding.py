"""An encoder of uncompressed v2 record batches.

Format: Kafka's protocol guide, "Record Batch" and "Record" (KIP-98); in Kafka's sources `DefaultRecordBatch` and
`DefaultRecord`. The batches belong to no producer and to no transaction, as those of a producer without idempotence.

A record without a timestamp (magic 0) has the create time -1, as after Kafka's own conversion to magic 2
(`LogValidator`). Clients then show the timestamp -1 and the type CreateTime.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from ts_common.log_format.framing import (
    HEADER_SIZE,
    NO_PRODUCER,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    encode_batch,
)
from ts_common.log_format.varints import varint

LOG_APPEND_TIME: Final = 1  # Kafka's id of the timestamp type
MOST_DELTA: Final = (1 << 31) - 1  # of offsets in one batch: an int32
_NULL: Final = b"\x01"  # the length -1
_NO_ATTRIBUTES: Final = b"\0"
_INT64_MOST: Final = (1 << 63) - 1


class Row(NamedTuple):
    """One record.

    Attributes:
        milliseconds: its timestamp; -1 for none.
        timestamp_type: Kafka's id: 0 CreateTime, 1 LogAppendTime, -1 none.
        key: can be null.
        value: can be null.
        headers: names in UTF-8 and values, in order; names can repeat, values can be null.
    """

    offset: int
    milliseconds: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[bytes, bytes | None]] = ()


class Batch:
    """Records of one batch, which are added in the order of offsets.

    Args:
        base: first offset that the batch covers.
        epoch: leader epoch of its records; -1 if unknown.
        most_bytes: size of the batch, with its header. Its first record can exceed it.
    """

    def __init__(self, base: int, epoch: int, most_bytes: int) -> None:
        self.base = base
        self.epoch = epoch
        self._most_bytes = most_bytes
        self._records: list[bytes] = []
        self.size = HEADER_SIZE
        self._first = self._greatest = NO_TIMESTAMP
        self._appended = False

    def add(self, row: Row) -> bool:
        """Add a record; return False if it belongs in another batch: it does not fit, or has another append time.

        Args:
            row: its offset is above those of earlier records, and at most `MOST_DELTA` above `base` if it is the first.
        """
        appended = row.timestamp_type == LOG_APPEND_TIME
        if not self._records:
            self._first = self._greatest = row.milliseconds
            self._appended = appended
        elif appended != self._appended or (appended and row.milliseconds != self._first):
            return False
        since = row.milliseconds - self._first
        offset_delta = row.offset - self.base
        if offset_delta > MOST_DELTA or not -_INT64_MOST <= since <= _INT64_MOST:
            return False
        data = _record(row, since, offset_delta)
        if self._records and self.size + len(data) > self._most_bytes:
            return False
        self._records.append(data)
        self.size += len(data)
        self._greatest = max(self._greatest, row.milliseconds)
        return True

    def encode(self, end: int) -> bytes:
        """Return the bytes of the batch, which covers the offsets from `base` to below `end`."""
        attributes = TIMESTAMP_TYPE_MASK if self._appended else 0
        fields = (attributes, end - 1 - self.base, self._first, self._greatest, *[NO_PRODUCER] * 3, len(self._records))
        return encode_batch(self.base, self.epoch, fields, b"".join(self._records))


def empty_batch(base: int, end: int, epoch: int) -> bytes:
    """Return a batch without records, as the log cleaner leaves them (`DefaultRecordBatch.writeEmptyHeader`).

    Args:
        base: first offset that it covers.
        end: the offset after the last; at most `MOST_DELTA + 1` above `base`.
        epoch: leader epoch; -1 if unknown.
    """
    return Batch(base, epoch, HEADER_SIZE).encode(end)


def _record(row: Row, timestamp_delta: int, offset_delta: int) -> bytes:
    _, _, _, key, value, headers = row
    parts = [_NO_ATTRIBUTES, varint(timestamp_delta), varint(offset_delta)]
    for field in (key, value):
        parts += (_NULL,) if field is None else (varint(len(field)), field)
    parts.append(varint(len(headers)))
    for name, data in headers:
        parts += (varint(len(name)), name)
        parts += (_NULL,) if data is None else (varint(len(data)), data)
    body = b"".join(parts)
    return varint(len(body)) + body
