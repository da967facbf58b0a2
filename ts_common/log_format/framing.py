"""Where a batch begins and ends in a segment, and what its header says, without decompressing it.

Format: Kafka's protocol guide, "Record Batch" (KIP-98) and "Message set" (KIP-31, KIP-32); in Kafka's sources
`DefaultRecordBatch`, `LegacyRecord` and `AbstractLegacyRecordBatch`. All integers are big-endian.

A segment ends in one of three ways (`Trailing`): at its last batch, with zero bytes (a preallocated file), or with a
torn batch, which has fewer bytes than its length says.
"""

import struct
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from awscrt.checksums import crc32, crc32c

from ts_common.errors import CorruptData

# The header of a v2 record batch; its records follow.
BATCH_FIELDS: Final = (
    ("base_offset", "q"),
    ("length", "i"),  # of what follows this field
    ("leader_epoch", "i"),
    ("magic", "b"),
    ("crc", "I"),  # CRC-32C of what follows this field
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
    ("size", "i"),  # of what follows this field
    ("crc", "I"),  # CRC-32 of what follows this field
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
_LENGTH: Final = struct.Struct(">i")
_KEY_AND_VALUE_LENGTHS: Final = 8  # two int32 that every message has

LENGTH_POSITION: Final = _offset_of(BATCH_FIELDS, "length")
LENGTH_END: Final = _offset_of(BATCH_FIELDS, "leader_epoch")  # `length` counts from here, in every magic
MAGIC_POSITION: Final = _offset_of(BATCH_FIELDS, "magic")  # the same in every magic
HEADER_SIZE: Final = _BATCH.size  # bytes of a v2 header, and all that `parse_header` ever looks at
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
    """What stands behind the last whole batch of a segment."""

    NONE = "none"
    ZEROS = "zeros"
    TORN = "torn"


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """The header of one batch, or of one message of magic 0 or 1.

    Attributes:
        base_offset: the first offset that the batch answers for. A compressed wrapper of magic 0 or 1 does not say it;
            there it is the same as `last_offset`.
        length: bytes after the length field.
        leader_epoch: the leadership that the batch was appended in; -1 for magic 0 and 1.
        magic: 0, 1 or 2.
        crc: as stored; `batch_crc` computes the one to compare with.
        attributes: as stored; the properties take it apart.
        last_offset: the last offset that the batch answers for, which can be above its last record's (compaction).
        base_timestamp: ms; what the records' deltas count from. Not the smallest timestamp, and with
            `has_delete_horizon` (KIP-534) not a record's at all.
        max_timestamp: ms, or -1.
        producer_id: -1 without one.
        record_count: None for a compressed wrapper of magic 0 or 1. 0 is normal in a compacted segment.
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
        """Every record has the timestamp `max_timestamp` (for magic 1, the wrapper's)."""
        return self.magic > 0 and bool(self.attributes & TIMESTAMP_TYPE_MASK)

    @property
    def is_transactional(self) -> bool:
        """Part of a transaction: data or marker."""
        return self.magic >= 2 and bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        """Holds control records (transaction markers), which no reader is shown."""
        return self.magic >= 2 and bool(self.attributes & CONTROL_MASK)

    @property
    def is_as_written(self) -> bool:
        """Whether it has all its records and no delete horizon: then the cleaner never rewrote it."""
        return self.record_count == self.last_offset - self.base_offset + 1 and not self.has_delete_horizon

    @property
    def has_delete_horizon(self) -> bool:
        """The cleaner stored a delete horizon in place of the base timestamp (KIP-534)."""
        return self.magic >= 2 and bool(self.attributes & DELETE_HORIZON_MASK)


def batch_field_position(name: str) -> int:
    """Where a field of `BATCH_FIELDS` begins in a v2 batch."""
    return _offset_of(BATCH_FIELDS, name)


def message_field_position(name: str) -> int:
    """Where a field of `MESSAGE_FIELDS` begins in a message of magic 0 or 1."""
    return _offset_of(MESSAGE_FIELDS, name)


def frame_size(buffer: Buffer, position: int, remaining: int) -> int | None:
    """Bytes of the batch at `position` by its length field alone, or None where that can be no batch's.

    Args:
        buffer: holds at least `min(remaining, HEADER_SIZE)` bytes from `position` on.
        position: of the batch in `buffer`.
        remaining: bytes of the segment from there on.
    """
    if remaining < LENGTH_END:
        return None
    size = LENGTH_END + int(_LENGTH.unpack_from(buffer, position + LENGTH_POSITION)[0])
    return size if MINIMUM_SIZE[0] <= size <= remaining else None


def parse_header(
    buffer: Buffer, position: int, remaining: int, file_position: int | None = None
) -> BatchHeader | Trailing:
    """The header at a batch boundary, or how the segment ends there. Allocates nothing that a length asks for.

    Args:
        buffer: holds at least `min(remaining, HEADER_SIZE)` bytes from `position` on.
        position: of the batch in `buffer`.
        remaining: bytes of the segment from there on, in the buffer or not; a batch is never longer.
        file_position: what messages name as the place, where `buffer` is a window; `position` without it.

    Returns:
        the header; `Trailing.NONE` where nothing remains; `ZEROS` where the header's bytes (or what is there of them)
        are zero: that all the rest is, is for the caller to see; `TORN` where fewer bytes remain than the length says.

    Raises:
        CorruptData: a length below that of an empty batch, an unknown magic, or a negative offset or count.
        ValueError: the buffer ends inside the header although the segment does not.
    """
    place = position if file_position is None else file_position
    held = len(buffer) - position
    if held < HEADER_SIZE and held < remaining:
        raise ValueError(f"{held} bytes of a header in the buffer, {min(remaining, HEADER_SIZE)} needed")
    trailing = _check_frame(buffer, position, remaining, place)
    if trailing is not None:
        return trailing
    if buffer[position + MAGIC_POSITION] < 2:
        return _parse_message(buffer, position, place)
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
        _,
        _,
        count,
    ) = _BATCH.unpack_from(buffer, position)
    if base_offset < 0 or delta < 0 or count < 0:
        raise CorruptData(
            f"batch at position {place}: base offset {base_offset}, last offset delta {delta}, record count {count}, "
            "none of which can be negative"
        )
    return BatchHeader(
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
    )


def _check_frame(buffer: Buffer, position: int, remaining: int, place: int) -> Trailing | None:
    """How the segment ends here, or None where a whole batch of a known magic stands."""
    if remaining <= 0:
        return Trailing.NONE
    magic = buffer[position + MAGIC_POSITION] if remaining > MAGIC_POSITION else 0
    if magic == 0 and not any(buffer[position : position + min(remaining, HEADER_SIZE)]):
        return Trailing.ZEROS
    if remaining <= MAGIC_POSITION:
        return Trailing.TORN
    if magic not in MINIMUM_SIZE:
        raise CorruptData(f"batch at position {place}: magic {magic}, 0, 1 or 2 expected")
    size = LENGTH_END + int(_LENGTH.unpack_from(buffer, position + LENGTH_POSITION)[0])
    if size < MINIMUM_SIZE[magic]:
        raise CorruptData(
            f"batch of magic {magic} at position {place}: {size} bytes by its length, at least {MINIMUM_SIZE[magic]} "
            "expected"
        )
    return Trailing.TORN if size > remaining else None


def _parse_message(buffer: Buffer, position: int, place: int) -> BatchHeader:
    """The header of a message of magic 0 or 1, plain or wrapping others."""
    timestamp = NO_TIMESTAMP
    if buffer[position + MAGIC_POSITION] == 0:
        offset, size, crc, magic, attributes = _MESSAGE_V0.unpack_from(buffer, position)
    else:
        offset, size, crc, magic, attributes, timestamp = _MESSAGE.unpack_from(buffer, position)
    if offset < 0:
        raise CorruptData(f"message at position {place}: offset {offset}, which cannot be negative")
    count = None if attributes & CODEC_MASK else 1
    return BatchHeader(offset, size, NO_EPOCH, magic, crc, attributes, offset, timestamp, timestamp, NO_PRODUCER, count)


def crc_start(magic: int) -> int:
    """Where the checksummed bytes begin in a batch of that magic; they end with the batch."""
    return ATTRIBUTES_POSITION if magic >= 2 else LEGACY_MAGIC_POSITION


def batch_crc(magic: int, data: Buffer, previous: int = 0) -> int:
    """The CRC of a batch's bytes from `crc_start` on, continuing `previous`: CRC-32C for v2 (KIP-98), CRC-32 before."""
    return int(crc32c(data, previous) if magic >= 2 else crc32(data, previous))
