"""Messages of magic 0 and 1 (Kafka before 0.11): from a segment's bytes to the table that `records` decodes.

Format: `framing.MESSAGE_FIELDS`, then key length int32, key, value length int32, value; a length below 0 is null. A
compressed message wraps a set of others in its value, as in Kafka's `AbstractLegacyRecordBatch` and `LegacyRecord`:

- its offset is that of the last message inside. Messages of magic 0 have absolute offsets. Messages of magic 1 have
  relative offsets, counted from the wrapper's offset minus the last one; compaction leaves holes between them;
- its timestamp type is that of all messages inside, and with LogAppendTime its timestamp too. Magic 0 has neither;
- its key is ignored, and the messages inside are of the same magic and not compressed.

Every message's CRC-32 is checked, the wrapper's and those inside. Bytes with a correct CRC are read as Kafka's brokers
and consumer read them: bytes after a value are ignored, and a part of a message ends its set. No broker writes offsets
that do not ascend or exceed the wrapper's, or another magic inside: they are damage.

A row of the table is a compressed message, or a run of messages that are not compressed. Such a run looks like the set
inside a compressed message, and `_pass_messages` reads both.
"""

import struct
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from ts_common.decode.compiled import Bytes, Int64Rows, inlined, int32_at, int64_at, kernel
from ts_common.decode.kernel_arrays import Column
from ts_common.errors import CorruptData
from ts_common.log_format import framing
from ts_common.log_format.framing import BatchHeader, Trailing, batch_crc, crc_start, parse_header

_HIGHEST_CODEC: Final = 3  # magic 2 introduced zstd
_LENGTH: Final = struct.Struct(">i")
_LENGTH_END, _FIELDS_END = framing.LENGTH_END, framing.MESSAGE_FIELDS_END
_MINIMUM_SIZE_V0, _MINIMUM_SIZE_V1 = framing.MINIMUM_SIZE[0], framing.MINIMUM_SIZE[1]
_AT_LENGTH, _AT_CRC, _AT_MAGIC, _AT_ATTRIBUTES, _AT_TIMESTAMP = (
    framing.message_field_position(name) for name in ("size", "crc", "magic", "attributes", "timestamp")
)
_CODEC_MASK, _TIMESTAMP_TYPE_MASK = framing.CODEC_MASK, framing.TIMESTAMP_TYPE_MASK
_KIND_MASK: Final = _CODEC_MASK | _TIMESTAMP_TYPE_MASK
_NO_TIMESTAMP, _NO_TIMESTAMP_TYPE = framing.NO_TIMESTAMP, -1
_BEYOND: Final = (1 << 63) - 1

_POSITION, _END, _CRC, _CODEC = (int(c) for c in (Column.POSITION, Column.END, Column.CRC, Column.CODEC))
_MAGIC, _DATA_START, _DATA_END = (int(c) for c in (Column.MAGIC, Column.DATA_START, Column.DATA_END))
_BASE_OFFSET, _LAST_OFFSET = int(Column.BASE_OFFSET), int(Column.LAST_OFFSET)
_RECORDS_BASE, _RECORD_COUNT = int(Column.RECORDS_BASE), int(Column.RECORD_COUNT)
_BASE_TIMESTAMP, _MAX_TIMESTAMP = int(Column.BASE_TIMESTAMP), int(Column.MAX_TIMESTAMP)
_HAS_ONE_TIMESTAMP, _TIMESTAMP_TYPE = int(Column.HAS_ONE_TIMESTAMP), int(Column.TIMESTAMP_TYPE)


def _crc_table() -> npt.NDArray[np.uint32]:
    """Return the CRC-32 (RFC 1952) of each byte followed by 0 to 7 zero bytes."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, np.uint32(0xEDB88320) ^ (table >> 1), table >> 1).astype(np.uint32)
    rows = [table]
    for _ in range(7):
        rows.append(table[rows[-1] & 0xFF] ^ (rows[-1] >> 8))
    return np.stack(rows)


_TABLE: Final = _crc_table()


@inlined
def _crc32(data: Bytes, position: int, end: int) -> Any:
    """Return the CRC-32 of `data[position:end]`; awscrt is faster, but not with a call for each message."""
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


@kernel
def _pass_messages(
    data: Bytes, position: int, end: int, magic: int, mask: int, attributes: int, last_offset: int, end_offset: int
) -> tuple[int, int, int]:
    """Skip valid messages of one magic whose attributes under `mask` are the same, until another message follows.

    A valid message is whole, its lengths fit, its CRC is correct, and its offset is above the one before and below
    `end_offset`.

    Returns:
        (position after them, their number, offset of the last one).
    """
    minimum = _MINIMUM_SIZE_V1 if magic == 1 else _MINIMUM_SIZE_V0
    count = 0
    while position + minimum <= end:
        size = _LENGTH_END + int32_at(data, position + _AT_LENGTH)
        if size < minimum or size > end - position:
            break
        offset, after = int64_at(data, position), position + size
        if data[position + _AT_MAGIC] != magic or data[position + _AT_ATTRIBUTES] & mask != attributes:
            break
        if offset <= last_offset or offset >= end_offset:
            break
        key = position + minimum - 4
        key_length = int32_at(data, key - 4)
        if key_length > after - key - 4:
            break
        value = key + max(key_length, 0) + 4
        value_length = int32_at(data, value - 4)
        if value_length > after - value:
            break
        if _crc32(data, position + _AT_MAGIC, after) != int32_at(data, position + _AT_CRC) & 0xFFFFFFFF:
            break
        count, last_offset, position = count + 1, offset, after
    return position, count, last_offset


@kernel
def index_messages(
    data: Bytes, position: int, end: int, start_offset: int, end_offset: int, last_offset: int, table: Int64Rows
) -> tuple[int, int, bool]:
    """List whole messages of `data[position:end]` with offsets above `last_offset`, until `table` is full.

    Messages that are not compressed are checked, and listed as runs. Compressed messages are not checked or opened yet;
    one above `end_offset` may contain messages below it.

    Returns:
        as `batch_index.index_batches`. A whole message at that position is damaged: `damage` describes it.
    """
    count = 0
    reached = False
    while count < len(table) and position + _MINIMUM_SIZE_V0 <= end:
        magic, attributes = data[position + _AT_MAGIC], data[position + _AT_ATTRIBUTES]
        size = _LENGTH_END + int32_at(data, position + _AT_LENGTH)
        minimum = _MINIMUM_SIZE_V1 if magic == 1 else _MINIMUM_SIZE_V0
        offset = int64_at(data, position)
        if magic > 1 or size < minimum or size > end - position or offset <= last_offset:
            break
        codec = attributes & _CODEC_MASK
        row = table[count]
        row[_POSITION] = row[_DATA_START] = position
        if codec:
            row[_RECORD_COUNT] = 0
            row[_CODEC] = codec if offset >= start_offset else -1
            last_offset = offset
            position += size
        else:
            if offset >= end_offset:
                reached = True
                break
            behind, messages, last_offset = _pass_messages(
                data, position, end, magic, _KIND_MASK, attributes & _KIND_MASK, last_offset, end_offset
            )
            if not messages:
                break
            row[_RECORD_COUNT] = messages
            row[_CODEC] = 0
            position = behind
        start = row[_POSITION]
        row[_END] = row[_DATA_END] = position
        row[_CRC] = int32_at(data, start + _AT_CRC) & 0xFFFFFFFF
        row[_MAGIC] = magic
        row[_BASE_OFFSET] = offset
        row[_LAST_OFFSET] = last_offset
        row[_RECORDS_BASE] = row[_BASE_TIMESTAMP] = 0
        row[_MAX_TIMESTAMP] = int64_at(data, start + _AT_TIMESTAMP) if magic == 1 else _NO_TIMESTAMP
        is_append_time = 1 if magic == 1 and attributes & _TIMESTAMP_TYPE_MASK else 0
        row[_HAS_ONE_TIMESTAMP] = is_append_time if codec else 0
        row[_TIMESTAMP_TYPE] = is_append_time if magic == 1 else _NO_TIMESTAMP_TYPE
        count += 1
        if last_offset >= end_offset - 1:
            reached = True
            break
    return count, position, reached


def wrapped(message: memoryview) -> memoryview:
    """Return the compressed set of a compressed message with a correct CRC.

    Raises:
        CorruptData: the value is missing, its lengths do not fit, or the codec does not exist in its magic.
    """
    magic, codec = message[_AT_MAGIC], message[_AT_ATTRIBUTES] & _CODEC_MASK
    if codec > _HIGHEST_CODEC:
        raise CorruptData(f"codec {codec} in a message of magic {magic}, 0 to {_HIGHEST_CODEC} expected")
    key_at = _FIELDS_END[magic]
    (key_length,) = _LENGTH.unpack_from(message, key_at)
    value_at = key_at + _LENGTH.size + max(key_length, 0)
    if value_at + _LENGTH.size > len(message):
        raise CorruptData(_BAD_FIELDS)
    (value_length,) = _LENGTH.unpack_from(message, value_at)
    if value_length < 0:
        raise CorruptData("a compressed message without a value")
    value = message[value_at + _LENGTH.size :]
    if value_length > len(value):
        raise CorruptData(_BAD_FIELDS)
    return value[:value_length]


def open_set(data: Bytes, start: int, end: int, magic: int, wrapper_offset: int, floor: int) -> tuple[int, int, int]:
    """Check the decompressed set `data[start:end]`.

    Args:
        data: the bytes.
        start: of the set.
        end: of the set.
        magic: of the wrapper.
        wrapper_offset: of the wrapper.
        floor: all offsets must be above this one.

    Returns:
        (the base of the offsets inside, the number of messages, the end of the last one).

    Raises:
        CorruptData: a message is damaged, the set is empty, or its offsets do not fit the wrapper's.
    """
    position, count, last = _pass_messages(data, start, end, magic, _CODEC_MASK, 0, -1, _BEYOND)
    if not _is_end(bytes(data[position : min(position + _LENGTH_END, end)]), end - position):
        raise CorruptData(
            f"inside it: {_damage_inside(memoryview(cast('Any', data))[start:end], position - start, magic, last)}"
        )
    if not count:
        raise CorruptData("a compressed message without a message inside")
    if last > wrapper_offset:
        raise CorruptData(f"the last offset inside is {last}, beyond its own")
    base = wrapper_offset - last if magic == 1 else 0
    first = base + int.from_bytes(bytes(data[start : start + 8]), "big")
    if first <= floor:
        raise CorruptData(f"the first offset inside is {first}, the messages before it end at {floor}")
    return base, count, position


def _is_end(begin: bytes, remaining: int) -> bool:
    """Return whether a set ends at these bytes: with no bytes, or with a part of a message."""
    if remaining < _LENGTH_END:
        return True
    size = _LENGTH_END + int(_LENGTH.unpack_from(begin, _AT_LENGTH)[0])
    return size >= _MINIMUM_SIZE_V0 and size > remaining


def damage(message: memoryview | bytes, header: BatchHeader) -> str:
    """Return what is wrong with a whole, uncompressed message with a valid offset."""
    actual = batch_crc(header.magic, message[crc_start(header.magic) : header.size_in_bytes])
    if actual != header.crc:
        return f"CRC {actual:08x}; its header has {header.crc:08x}"
    return _BAD_FIELDS


_BAD_FIELDS: Final = "the lengths of its key and value do not fit its size"


def _damage_inside(messages: memoryview, position: int, magic: int, last_offset: int) -> str:
    """Return what is wrong at the position in a set where `_pass_messages` stopped."""
    try:
        header = parse_header(messages, position, len(messages) - position)
    except CorruptData as error:
        return str(error)
    if isinstance(header, Trailing):
        return f"{len(messages) - position} bytes at position {position} are no whole message"
    named = f"message of offset {header.base_offset} at position {position}"
    if header.magic != magic:
        return f"{named}: magic {header.magic} in a message of magic {magic}"
    if header.codec:
        return f"{named}: compressed (codec {header.codec}), in a compressed one"
    if header.base_offset <= last_offset:
        return f"{named}: the messages before it end at {last_offset}"
    return f"{named}: {damage(messages[position : position + header.size_in_bytes], header)}"
