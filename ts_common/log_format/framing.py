"""The boundaries and headers of the batches in a segment, read without decompression.

Format: Kafka's protocol guide, "Record Batch" (KIP-98) and "Message set" (KIP-31, KIP-32); in Kafka's sources
`DefaultRecordBatch`, `LegacyRecord` and `AbstractLegacyRecordBatch`. All integers are big-endian.

A segment ends in one of three ways (`Trailing`): at its last batch, with zero bytes (a preallocated file), or with a
torn batch, which has fewer bytes than its length field gives.
"""

import struct
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from awscrt.checksums import crc32, crc32c

from ts_common.errors import CorruptData
from ts_common.wording import counted

# The header of a v2 record batch; its records follow.
BATCH_FIELDS: Final = (
    ("base_offset", "q"),
    ("length", "i"),  # bytes after this field
    ("leader_epoch", "i"),
    ("magic", "b"),
    ("crc", "I"),  # CRC-32C of the bytes after this field
    ("attributes", "h"),
    ("last_offset_delta", "i"),
    ("base_timestamp", "q"),
    ("max_timestamp", "q"),
    ("producer_id", "q"),
    ("producer_epoch", "h"),
    ("base_sequence", "i"),
    ("record_count", "i"),
)
# A message of magic 0 and 1, up to its key; magic 0 has no timestamp. A compressed one wraps others in its value.
MESSAGE_FIELDS: Final = (
    ("offset", "q"),
    ("size", "i"),  # bytes after this field
    ("crc", "I"),  # CRC-32 of the bytes after this field
    ("magic", "b"),
    ("attributes", "b"),
    ("timestamp", "q"),
)


def _offset_of(fields: tuple[tuple[str, str], ...], name: str) -> int:
    names = [field for field, _ in fields]
    return struct.calcsize(">" + "".join(code for _, code in fields[: names.index(name)]))


def _struct_of(fields: tuple[tuple[str, str], ...]) -> struct.Struct:
    return struct.Struct(">" + "".join(code for _, code in fields))


_BATCH: Final = _struct_of(BATCH_FIELDS)
_MESSAGE: Final = _struct_of(MESSAGE_FIELDS)
_MESSAGE_V0: Final = _struct_of(MESSAGE_FIELDS[:-1])
_BEFORE_CRC: Final = _struct_of(BATCH_FIELDS[:4])
_CRC: Final = struct.Struct(">I")
_AFTER_CRC: Final = _struct_of(BATCH_FIELDS[5:])
_LENGTH: Final = struct.Struct(">i")
_KEY_AND_VALUE_LENGTHS: Final = 8  # two int32 that every message has

LENGTH_POSITION: Final = _offset_of(BATCH_FIELDS, "length")
LENGTH_END: Final = _offset_of(BATCH_FIELDS, "leader_epoch")  # `length` counts from here, in every magic
MAGIC_POSITION: Final = _offset_of(BATCH_FIELDS, "magic")  # the same in every magic
HEADER_SIZE: Final = _BATCH.size  # bytes of a v2 header; `parse_header` reads no more
ATTRIBUTES_POSITION: Final = _offset_of(BATCH_FIELDS, "attributes")  # the CRC-32C begins here
LEGACY_MAGIC_POSITION: Final = _offset_of(MESSAGE_FIELDS, "magic")  # the CRC-32 begins here
MESSAGE_FIELDS_END: Final = {0: _MESSAGE_V0.size, 1: _MESSAGE.size}  # key length, key, value length, value follow
MINIMUM_SIZE: Final = {
    0: _MESSAGE_V0.size + _KEY_AND_VALUE_LENGTHS,
    1: _MESSAGE.size + _KEY_AND_VALUE_LENGTHS,
    2: HEADER_SIZE,
}

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_MASK: Final = 0x08
TRANSACTIONAL_MASK: Final = 0x10
CONTROL_MASK: Final = 0x20
DELETE_HORIZON_MASK: Final = 0x40

NO_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1
NO_PRODUCER: Final = -1

Buffer = bytes | bytearray | memoryview


class Trailing(StrEnum):
    """The bytes after the last whole batch of a segment."""

    NONE = "none"
    ZEROS = "zeros"
    TORN = "torn"


class BatchHeader(NamedTuple):  # one is made for each batch, and a frozen dataclass needs three times as long
    """The header of one batch, or of one message of magic 0 or 1.

    Attributes:
        base_offset: the first offset that the batch covers. A compressed wrapper of magic 0 or 1 lacks it; there it is
            `last_offset`.
        length: bytes after the length field.
        leader_epoch: leader epoch of the append; -1 for magic 0 and 1.
        magic: 0, 1 or 2.
        crc: as stored; `batch_crc` computes the one to compare with.
        attributes: as stored; the properties decode it.
        last_offset: the last offset that the batch covers; after compaction it can be above that of its last record.
        base_timestamp: ms; the base of the records' deltas. It is not the smallest timestamp, and with
            `has_delete_horizon` (KIP-534) not the timestamp of any record.
        max_timestamp: ms, or -1.
        producer_id: -1 without one.
        record_count: None for a compressed wrapper of magic 0 or 1. 0 is normal in a compacted segment.
        producer_epoch: -1 without one. A marker has the epoch of its transaction's batches, and with
            `transaction.version` 2 (KIP-890) the next one.
        base_sequence: sequence number of the first record, from 0 in each producer epoch; -1 without one.
    """

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    record_count: int | None
    producer_epoch: int = NO_PRODUCER
    base_sequence: int = NO_PRODUCER

    @property
    def size_in_bytes(self) -> int:
        """Bytes of the whole batch, header included."""
        return LENGTH_END + self.length

    @property
    def codec(self) -> int:
        """Kafka's codec id: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether every record has the timestamp `max_timestamp` (for magic 1, the wrapper's)."""
        return self.magic > 0 and bool(self.attributes & TIMESTAMP_TYPE_MASK)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction: records or a marker."""
        return self.magic >= 2 and bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        """Whether the batch contains control records (transaction markers), which readers never return."""
        return self.magic >= 2 and bool(self.attributes & CONTROL_MASK)

    @property
    def is_as_written(self) -> bool:
        """Whether the batch has all its records and no delete horizon, so that the log cleaner never rewrote it."""
        return self.record_count == self.last_offset - self.base_offset + 1 and not self.has_delete_horizon

    @property
    def contradicts_itself(self) -> bool:
        """Whether the batch counts more records than its header has offsets, which only a producer's mistake causes."""
        count = self.record_count or 0
        return count > 0 and count > self.last_offset - self.base_offset + 1

    @property
    def has_delete_horizon(self) -> bool:
        """Whether the log cleaner replaced the base timestamp by a delete horizon (KIP-534)."""
        return self.magic >= 2 and bool(self.attributes & DELETE_HORIZON_MASK)


def encode_batch(base_offset: int, leader_epoch: int, fields: Sequence[int], records: bytes) -> bytes:
    """Return the bytes of a v2 batch.

    Args:
        fields: the values of `BATCH_FIELDS` after the CRC, in their order.
        records: the bytes after the header.
    """
    checked = _AFTER_CRC.pack(*fields) + records
    length = ATTRIBUTES_POSITION - LENGTH_END + len(checked)
    return b"".join((_BEFORE_CRC.pack(base_offset, length, leader_epoch, 2), _CRC.pack(crc32c(checked)), checked))


def batch_field_position(name: str) -> int:
    """Return the position of a field of `BATCH_FIELDS` in a v2 batch, in bytes."""
    return _offset_of(BATCH_FIELDS, name)


def message_field_position(name: str) -> int:
    """Return the position of a field of `MESSAGE_FIELDS` in a message of magic 0 or 1, in bytes."""
    return _offset_of(MESSAGE_FIELDS, name)


def frame_size(buffer: Buffer, position: int, remaining: int) -> int | None:
    """Return the size of the batch at `position` by its length field alone; None if no batch can have that length.

    Args:
        buffer: contains at least `min(remaining, HEADER_SIZE)` bytes from `position` on.
        position: position of the batch in `buffer`.
        remaining: bytes of the segment from this position on.
    """
    if remaining < LENGTH_END:
        return None
    size = LENGTH_END + int(_LENGTH.unpack_from(buffer, position + LENGTH_POSITION)[0])
    return size if MINIMUM_SIZE[0] <= size <= remaining else None


def parse_header(
    buffer: Buffer, position: int, remaining: int, file_position: int | None = None
) -> BatchHeader | Trailing:
    """Return the header at a batch boundary, or the end of the segment there; allocate no memory by a length field.

    Args:
        buffer: contains at least `min(remaining, HEADER_SIZE)` bytes from `position` on.
        position: position of the batch in `buffer`.
        remaining: bytes of the segment from this position on, also beyond the buffer; no batch is longer.
        file_position: the batch's position for messages if `buffer` is a window; by default `position`.

    Returns:
        the header; `Trailing.NONE` if no bytes remain; `ZEROS` if the header's bytes, or those that remain of them, are
        zero (the caller checks the rest); `TORN` if fewer bytes remain than the length field gives.

    Raises:
        CorruptData: the length is below that of an empty batch, the magic is unknown, the count or a message's offset
        is negative. ValueError: the buffer ends inside the header, but the segment does not.
    """
    # Nearly every batch is whole and of magic 2. Each reader of a log calls this for each batch, so it has few steps.
    if len(buffer) - position >= HEADER_SIZE:
        (
            base_offset,
            length,
            epoch,
            magic,
            crc,
            attributes,
            delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        ) = _BATCH.unpack_from(buffer, position)
        if magic == 2 and HEADER_SIZE <= LENGTH_END + length <= remaining and count >= 0:
            return tuple.__new__(
                BatchHeader,
                (
                    base_offset,
                    length,
                    epoch,
                    magic,
                    crc,
                    attributes,
                    base_offset + delta,
                    base_timestamp,
                    max_timestamp,
                    producer_id,
                    count,
                    producer_epoch,
                    base_sequence,
                ),
            )
    return _other(buffer, position, remaining, position if file_position is None else file_position)


def _other(buffer: Buffer, position: int, remaining: int, place: int) -> BatchHeader | Trailing:
    """Return a message of magic 0 or 1, or the end of the segment; raise what `parse_header` raises."""
    held = len(buffer) - position
    if held < HEADER_SIZE and held < remaining:
        raise ValueError(
            f"the buffer has {counted(held, 'byte')} of a header; {min(remaining, HEADER_SIZE)} are expected"
        )
    trailing = _check_frame(buffer, position, remaining, place)
    if trailing is not None:
        return trailing
    if buffer[position + MAGIC_POSITION] < 2:
        return _parse_message(buffer, position, place)
    count = _BATCH.unpack_from(buffer, position)[-1]
    raise CorruptData(f"batch at position {place}: record count {count}; at least 0 is expected")


def _check_frame(buffer: Buffer, position: int, remaining: int, place: int) -> Trailing | None:
    """Return the end of the segment here, or None for a whole batch of a known magic."""
    if remaining <= 0:
        return Trailing.NONE
    magic = buffer[position + MAGIC_POSITION] if remaining > MAGIC_POSITION else 0
    if magic == 0 and not any(buffer[position : position + min(remaining, HEADER_SIZE)]):
        return Trailing.ZEROS
    if remaining <= MAGIC_POSITION:
        return Trailing.TORN
    if magic not in MINIMUM_SIZE:
        raise CorruptData(f"batch at position {place}: magic {magic}; 0, 1 or 2 is expected")
    size = LENGTH_END + int(_LENGTH.unpack_from(buffer, position + LENGTH_POSITION)[0])
    if size < MINIMUM_SIZE[magic]:
        raise CorruptData(
            f"batch of magic {magic} at position {place}: {counted(size, 'byte')} by its length field; at least "
            f"{MINIMUM_SIZE[magic]} are expected"
        )
    return Trailing.TORN if size > remaining else None


def _parse_message(buffer: Buffer, position: int, place: int) -> BatchHeader:
    """Return the header of a message of magic 0 or 1, with or without messages inside."""
    timestamp = NO_TIMESTAMP
    if buffer[position + MAGIC_POSITION] == 0:
        offset, size, crc, magic, attributes = _MESSAGE_V0.unpack_from(buffer, position)
    else:
        offset, size, crc, magic, attributes, timestamp = _MESSAGE.unpack_from(buffer, position)
    if offset < 0:
        raise CorruptData(f"message at position {place}: offset {offset}; an offset of at least 0 is expected")
    count = None if attributes & CODEC_MASK else 1
    return BatchHeader(offset, size, NO_EPOCH, magic, crc, attributes, offset, timestamp, timestamp, NO_PRODUCER, count)


def follows(header: BatchHeader, last_offset: int) -> bool:
    """Return whether a batch can be the next one in a segment after batches up to `last_offset`.

    Its base offset is above. Or its last offset is the one that a broker of 0.11 to 1.1 assigned: that broker counted
    the records, and computed the base offset from the last offset delta, which a producer wrote wrongly. A CRC covers
    the delta and the count, and neither offset.
    """
    count = header.record_count or 0
    return header.base_offset > last_offset or (count > 0 and header.last_offset == last_offset + count)


def crc_start(magic: int) -> int:
    """Return the position of the first checksummed byte in a batch of that magic; the last is the batch's last."""
    return ATTRIBUTES_POSITION if magic >= 2 else LEGACY_MAGIC_POSITION


def batch_crc(magic: int, data: Buffer, previous: int = 0) -> int:
    """Return the CRC of a batch's bytes from `crc_start` on: CRC-32C for v2 (KIP-98), CRC-32 for magic 0 and 1.

    Args:
        data: the next bytes.
        previous: the CRC of the bytes before them.
    """
    return int(crc32c(data, previous) if magic >= 2 else crc32(data, previous))
