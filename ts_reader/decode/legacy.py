"""Messages of magic 0 and 1 (Kafka before 0.11): from a segment's bytes to the table that `records` decodes.

Format: `framing.MESSAGE_FIELDS`, then key length int32, key, value length int32, value; a length below 0 is null. A
compressed message wraps a set of others in its value. It is read as Kafka's Java consumer reads it
(`AbstractLegacyRecordBatch.DeepRecordsIterator` and `LegacyRecord`):

- the wrapper's magic determines the offsets inside. In one of magic 0 they are absolute. In one of magic 1 they are
  relative, counted from the wrapper's offset minus the last one inside, or from 0 if the wrapper's offset is 0;
- the wrapper has the timestamp type of all messages inside: none with magic 0;
- a message inside has a layout and a timestamp by its own magic: magic 0 has no timestamp. With LogAppendTime, one of
  magic 1 has the wrapper's timestamp. Both magics can be in one set: the log cleaner of 0.10.0 wrote magic 0 into
  magic 1 (KAFKA-4298);
- the wrapper's key is ignored, and the messages inside are not compressed;
- bytes after a value are ignored, and a part of a message ends its set.

A message's CRC-32 does not cover its offset and size. So offsets of messages that are not inside another one must
ascend. Offsets inside are covered by the wrapper's CRC, and can have any order (`records`).

A row of the table is a compressed message, or a run of messages that are not compressed. Such a run looks like the set
inside a compressed message, and `_pass_messages` reads both.
"""

import struct
from typing import Final

from ts_common.errors import CorruptData
from ts_common.log_format import framing
from ts_common.log_format.framing import BatchHeader, batch_crc, crc_start
from ts_reader.decode.checksums import crc32_of
from ts_reader.decode.compiled import kernel
from ts_reader.decode.kernel_arrays import UNWANTED as _UNWANTED
from ts_reader.decode.kernel_arrays import Column
from ts_reader.decode.kernel_source import Bytes, Int64Rows, int32_at, int64_at

_HIGHEST_CODEC: Final = 3  # magic 2 introduced zstd
_LENGTH: Final = struct.Struct(">i")
_LENGTH_END, _FIELDS_END = framing.LENGTH_END, framing.MESSAGE_FIELDS_END
_MINIMUM_SIZE_V0, _MINIMUM_SIZE_V1 = framing.MINIMUM_SIZE[0], framing.MINIMUM_SIZE[1]
_AT_LENGTH, _AT_CRC, _AT_MAGIC, _AT_ATTRIBUTES, _AT_TIMESTAMP = (
    framing.message_field_position(name) for name in ("size", "crc", "magic", "attributes", "timestamp")
)
_CODEC_MASK, _TIMESTAMP_TYPE_MASK = framing.CODEC_MASK, framing.TIMESTAMP_TYPE_MASK
_KIND_MASK: Final = _CODEC_MASK | _TIMESTAMP_TYPE_MASK
_NO_TIMESTAMP, _NO_TIMESTAMP_TYPE, _NO_EPOCH = framing.NO_TIMESTAMP, -1, framing.NO_EPOCH
_INT64_MASK: Final = (1 << 64) - 1

_POSITION, _END, _CRC, _CODEC = (int(c) for c in (Column.POSITION, Column.END, Column.CRC, Column.CODEC))
_MAGIC, _DATA_START, _DATA_END = (int(c) for c in (Column.MAGIC, Column.DATA_START, Column.DATA_END))
_BASE_OFFSET, _LAST_OFFSET = int(Column.BASE_OFFSET), int(Column.LAST_OFFSET)
_RECORDS_BASE, _RECORD_COUNT = int(Column.RECORDS_BASE), int(Column.RECORD_COUNT)
_BASE_TIMESTAMP, _MAX_TIMESTAMP = int(Column.BASE_TIMESTAMP), int(Column.MAX_TIMESTAMP)
_HAS_ONE_TIMESTAMP, _TIMESTAMP_TYPE = int(Column.HAS_ONE_TIMESTAMP), int(Column.TIMESTAMP_TYPE)
_HIDDEN: Final = int(Column.HIDDEN)
_LEADER_EPOCH, _ERASED = int(Column.LEADER_EPOCH), int(Column.ERASED)


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
        if crc32_of(data, position + _AT_MAGIC, after) != int32_at(data, position + _AT_CRC) & 0xFFFFFFFF:
            break
        count, last_offset, position = count + 1, offset, after
    return position, count, last_offset


@kernel
def _pass_sizes(data: Bytes, position: int, end: int) -> tuple[int, int, int]:
    """Skip whole messages by their sizes.

    Returns:
        (position after them, or -1 if the size of the next one is too small; their number; offset of the last one).
    """
    count = last_offset = 0
    while position + _LENGTH_END <= end:
        size = _LENGTH_END + int32_at(data, position + _AT_LENGTH)
        if size < _MINIMUM_SIZE_V0:
            position = -1
            break
        if size > end - position:
            break
        count, last_offset, position = count + 1, int64_at(data, position), position + size
    return position, count, last_offset


@kernel
def index_messages(
    data: Bytes, position: int, end: int, start_offset: int, end_offset: int, last_offset: int, table: Int64Rows
) -> tuple[int, int, bool]:
    """List whole messages of `data[position:end]` with offsets above `last_offset`, until `table` is full.

    Messages that are not compressed are checked, and listed as runs. Compressed messages are not checked or opened yet;
    one above `end_offset` may contain messages below it. After one of magic 0 the caller looks whether the end is
    reached.

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
            row[_CODEC] = codec if offset >= start_offset else _UNWANTED
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
        row[_RECORDS_BASE] = row[_BASE_TIMESTAMP] = row[_HIDDEN] = row[_ERASED] = 0
        row[_LEADER_EPOCH] = _NO_EPOCH
        row[_MAX_TIMESTAMP] = int64_at(data, start + _AT_TIMESTAMP) if magic == 1 else _NO_TIMESTAMP
        is_append_time = 1 if magic == 1 and attributes & _TIMESTAMP_TYPE_MASK else 0
        row[_HAS_ONE_TIMESTAMP] = is_append_time if codec else 0
        row[_TIMESTAMP_TYPE] = is_append_time if magic == 1 else _NO_TIMESTAMP_TYPE
        count += 1
        # The offsets inside a wrapper of magic 0 can all be below its own, and those of the next one begin there.
        if last_offset >= end_offset - 1 and (magic or not codec):
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


def open_set(data: Bytes, start: int, end: int, magic: int, wrapper_offset: int) -> tuple[int, int, int]:
    """Find the messages of the decompressed set `data[start:end]`; `records` checks each that it shows.

    Returns:
        (the base of the offsets inside, the number of messages, the end of the last one).

    Raises:
        CorruptData: a message's size is too small, the set is empty, or its last offset is above the wrapper's.
    """
    position, count, last = _pass_sizes(data, start, end)
    if position < 0:
        raise CorruptData(f"inside it: the size of message {count} is below {_MINIMUM_SIZE_V0} bytes")
    if not count:
        raise CorruptData("a compressed message without a message inside")
    if magic == 0 or not wrapper_offset:  # some librdkafka producers wrote 0
        return 0, count, position
    if last > wrapper_offset:
        raise CorruptData(f"the last offset inside is {last}, above its own")
    base = (wrapper_offset - last) & _INT64_MASK  # as Java subtracts
    return base - (base >> 63 << 64), count, position


def damage(message: memoryview | bytes, header: BatchHeader) -> str:
    """Return what is wrong with a whole, uncompressed message with a valid offset."""
    actual = batch_crc(header.magic, message[crc_start(header.magic) : header.size_in_bytes])
    if actual != header.crc:
        return f"CRC {actual:08x}; its header has {header.crc:08x}"
    return _BAD_FIELDS


_BAD_FIELDS: Final = "the lengths of its key and value do not fit its size"
