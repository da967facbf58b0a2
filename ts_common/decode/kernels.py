"""Compiled kernels: from a segment's bytes to a table of v2 batches, and from the table's records to columns.

Formats: `framing` has the batch header. A record (KIP-98, Kafka's `DefaultRecord`), where `varint` is zigzag::

    length varint | attributes int8 | timestamp delta varlong | offset delta varint
    key length varint, key | value length varint, value          length -1 is null
    header count varint, each: name length varint, name | value length varint, value

`legacy` has the messages of magic 0 and 1 and lists them in the same table; `decode_records` takes either.

Every length is compared with what remains before it is used. What a kernel does not like it returns as a code; the
caller makes the error. Arrays are what numba sees of a struct: `Column` names the columns of the table, `State` the
fields of the cursor.
"""

from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ts_common.decode.compiled import Bytes, copy_bytes, int32_at, int64_at, kernel
from ts_common.log_format import framing

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


class Column(IntEnum):
    """One batch in the table, or one compressed message of magic 0 or 1, or a run of those that are not compressed."""

    POSITION = 0  # of the batch in the source
    END = 1
    CRC = 2
    CODEC = 3  # -1: no record of it is wanted
    MAGIC = 4
    DATA_START = 5  # of the records, in the source, or where they were decompressed to
    DATA_END = 6
    BASE_OFFSET = 7  # as in `framing.BatchHeader`
    LAST_OFFSET = 8
    RECORDS_BASE = 9  # what the records' offsets count from
    BASE_TIMESTAMP = 10
    MAX_TIMESTAMP = 11
    HAS_ONE_TIMESTAMP = 12  # MAX_TIMESTAMP is that of all its records
    TIMESTAMP_TYPE = 13
    RECORD_COUNT = 14


class State(IntEnum):
    """The cursor of `decode_records`, over batches and in the columns."""

    BATCH = 0  # the next batch in the table
    RECORD = 1  # records of it that are done
    POSITION = 2  # of the next record, if any is done
    LAST_OFFSET = 3  # of the record before, if any is done
    ROWS = 4
    KEY_BYTES = 5
    VALUE_BYTES = 6
    HEADERS = 7
    NAME_BYTES = 8
    HEADER_BYTES = 9
    KEY_NULLS = 10
    VALUE_NULLS = 11
    HEADER_NULLS = 12
    START_OFFSET = 13
    END_OFFSET = 14
    MAX_ROWS = 15
    MAX_BYTES = 16
    WANT_KEY = 17
    WANT_VALUE = 18
    WANT_HEADERS = 19
    NEED_KEY_BYTES = 20  # with NO_ROOM: what the next record alone asks for
    NEED_VALUE_BYTES = 21
    NEED_HEADERS = 22
    NEED_HEADER_BYTES = 23  # of names and of values, each


class Status(IntEnum):
    """What `decode_records` returns; negative is damage."""

    DONE = 0
    FULL = 1  # hand the columns on, then call again
    NO_ROOM = 2  # one record is larger than empty columns
    BAD_LENGTH = -1
    BAD_FIELD = -2
    BAD_HEADERS = -3
    BAD_OFFSET = -4
    BYTES_LEFT = -5


TABLE_WIDTH: Final = len(Column)
STATE_SIZE: Final = len(State)

# numba takes module constants as literals, but not members of an enumeration in every place
_POSITION, _END, _CRC, _CODEC = (int(c) for c in (Column.POSITION, Column.END, Column.CRC, Column.CODEC))
_MAGIC, _RECORDS_BASE = int(Column.MAGIC), int(Column.RECORDS_BASE)
_DATA_START, _DATA_END = int(Column.DATA_START), int(Column.DATA_END)
_BASE_OFFSET, _LAST_OFFSET = int(Column.BASE_OFFSET), int(Column.LAST_OFFSET)
_BASE_TIMESTAMP, _MAX_TIMESTAMP = int(Column.BASE_TIMESTAMP), int(Column.MAX_TIMESTAMP)
_HAS_ONE_TIMESTAMP, _TIMESTAMP_TYPE = int(Column.HAS_ONE_TIMESTAMP), int(Column.TIMESTAMP_TYPE)
_RECORD_COUNT = int(Column.RECORD_COUNT)

_S = {member.name: int(member) for member in State}
_S_BATCH, _S_RECORD, _S_POSITION, _S_LAST_OFFSET = _S["BATCH"], _S["RECORD"], _S["POSITION"], _S["LAST_OFFSET"]
_S_ROWS, _S_KEY_BYTES, _S_VALUE_BYTES, _S_HEADERS = _S["ROWS"], _S["KEY_BYTES"], _S["VALUE_BYTES"], _S["HEADERS"]
_S_NAME_BYTES, _S_HEADER_BYTES = _S["NAME_BYTES"], _S["HEADER_BYTES"]
_S_KEY_NULLS, _S_VALUE_NULLS, _S_HEADER_NULLS = _S["KEY_NULLS"], _S["VALUE_NULLS"], _S["HEADER_NULLS"]
_S_START, _S_END, _S_MAX_ROWS, _S_MAX_BYTES = _S["START_OFFSET"], _S["END_OFFSET"], _S["MAX_ROWS"], _S["MAX_BYTES"]
_S_WANT_KEY, _S_WANT_VALUE, _S_WANT_HEADERS = _S["WANT_KEY"], _S["WANT_VALUE"], _S["WANT_HEADERS"]
_S_NEED_KEY, _S_NEED_VALUE = _S["NEED_KEY_BYTES"], _S["NEED_VALUE_BYTES"]
_S_NEED_HEADERS, _S_NEED_HEADER_BYTES = _S["NEED_HEADERS"], _S["NEED_HEADER_BYTES"]

_DONE, _FULL, _NO_ROOM = int(Status.DONE), int(Status.FULL), int(Status.NO_ROOM)
_BAD_LENGTH, _BAD_FIELD, _BAD_HEADERS = int(Status.BAD_LENGTH), int(Status.BAD_FIELD), int(Status.BAD_HEADERS)
_BAD_OFFSET, _BYTES_LEFT = int(Status.BAD_OFFSET), int(Status.BYTES_LEFT)

_field = framing.batch_field_position
_AT_LENGTH, _AT_MAGIC, _AT_CRC, _AT_ATTRIBUTES = _field("length"), _field("magic"), _field("crc"), _field("attributes")
_AT_DELTA, _AT_COUNT = _field("last_offset_delta"), _field("record_count")
_AT_BASE_TIMESTAMP, _AT_MAX_TIMESTAMP = _field("base_timestamp"), _field("max_timestamp")
_AT_PRODUCER_ID = _field("producer_id")
_HEADER_SIZE, _LENGTH_END = framing.HEADER_SIZE, framing.LENGTH_END
_CODEC_MASK, _TIMESTAMP_TYPE_MASK = framing.CODEC_MASK, framing.TIMESTAMP_TYPE_MASK
_CONTROL_MASK, _TRANSACTIONAL_MASK = framing.CONTROL_MASK, framing.TRANSACTIONAL_MASK
_MESSAGE_LENGTH, _MESSAGE_TIMESTAMP = (framing.message_field_position(name) for name in ("size", "timestamp"))
_MESSAGE_V0_FIELDS_END, _MESSAGE_FIELDS_END = framing.MESSAGE_FIELDS_END[0], framing.MESSAGE_FIELDS_END[1]
_NO_TIMESTAMP = framing.NO_TIMESTAMP
_OVERRUN: Final = 1 << 62  # a position behind every end


@kernel
def _is_aborted(aborted: Int64s, producer_id: int, offset: int) -> bool:
    """Whether a transaction of the producer that was aborted holds the offset.

    One producer's transactions follow each other, so the first that ends at or above the offset is the only candidate.
    """
    low, high = 0, len(aborted)
    while low < high:
        middle = (low + high) // 2
        row = aborted[middle]
        if row[0] < producer_id or (row[0] == producer_id and row[2] < offset):
            low = middle + 1
        else:
            high = middle
    return low < len(aborted) and aborted[low, 0] == producer_id and aborted[low, 1] <= offset


@kernel
def index_batches(
    data: Bytes,
    position: int,
    end: int,
    start_offset: int,
    end_offset: int,
    last_offset: int,
    aborted: Int64s,
    table: Int64s,
) -> Any:
    """List whole, sane v2 batches of `data[position:end]` with offsets above `last_offset`, as many as `table` takes.

    Records of transactions in `aborted` are not wanted: rows of (producer id, first offset, offset of the marker), in
    order.

    Returns:
        (batches listed, position behind them, whether `end_offset` is reached). Where that position is not `end`, and
        neither the table is full nor `end_offset` reached, there stands something else: half a batch, zeros, an older
        magic, damage. `framing.parse_header` says what.
    """
    count = 0
    reached = False
    while count < len(table) and position + _HEADER_SIZE <= end:
        size = _LENGTH_END + int32_at(data, position + _AT_LENGTH)
        if data[position + _AT_MAGIC] != 2 or size < _HEADER_SIZE or position + size > end:
            break
        base_offset = int64_at(data, position)
        delta = int32_at(data, position + _AT_DELTA)
        records = int32_at(data, position + _AT_COUNT)
        if base_offset <= last_offset or delta < 0 or records < 0:
            break
        if base_offset >= end_offset:
            reached = True
            break
        last_offset = base_offset + delta
        attributes = data[position + _AT_ATTRIBUTES + 1]
        wanted = records > 0 and last_offset >= start_offset
        if wanted and len(aborted) and attributes & _TRANSACTIONAL_MASK:
            wanted = not _is_aborted(aborted, int64_at(data, position + _AT_PRODUCER_ID), base_offset)
        row = table[count]
        row[_POSITION] = position
        row[_END] = position + size
        row[_CRC] = int32_at(data, position + _AT_CRC) & 0xFFFFFFFF
        row[_CODEC] = attributes & _CODEC_MASK if wanted and not attributes & _CONTROL_MASK else -1
        row[_MAGIC] = 2
        row[_DATA_START] = position + _HEADER_SIZE
        row[_DATA_END] = position + size
        row[_BASE_OFFSET] = base_offset
        row[_LAST_OFFSET] = last_offset
        row[_RECORDS_BASE] = base_offset
        row[_BASE_TIMESTAMP] = int64_at(data, position + _AT_BASE_TIMESTAMP)
        row[_MAX_TIMESTAMP] = int64_at(data, position + _AT_MAX_TIMESTAMP)
        row[_HAS_ONE_TIMESTAMP] = row[_TIMESTAMP_TYPE] = 1 if attributes & _TIMESTAMP_TYPE_MASK else 0
        row[_RECORD_COUNT] = records
        count += 1
        position += size
        if last_offset >= end_offset - 1:
            reached = True
            break
    return count, position, reached


@kernel
def _varint(data: Bytes, position: int, end: int) -> Any:
    """A zigzag varint of at most 10 bytes and the position behind it, which is beyond every end if there is none."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while position < end and shift < np.uint64(64):
        byte = np.uint64(data[position])
        position += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), position
        shift += np.uint64(7)
    return np.int64(0), np.int64(_OVERRUN)


@kernel
def decode_records(
    source: Bytes,
    decompressed: Bytes,
    table: Int64s,
    stop: int,
    state: Int64s,
    offsets: Int64s,
    timestamps: Int64s,
    timestamp_types: Int32s,
    key_offsets: Int32s,
    key_bytes: Bytes,
    key_validity: Bytes,
    value_offsets: Int32s,
    value_bytes: Bytes,
    value_validity: Bytes,
    header_lists: Int32s,
    name_offsets: Int32s,
    name_bytes: Bytes,
    header_offsets: Int32s,
    header_bytes: Bytes,
    header_validity: Bytes,
) -> int:
    """Append the records of the table's batches, from the cursor to `stop`, to the columns.

    Records outside [START_OFFSET, END_OFFSET) are passed over, fields that are not wanted are not looked at. Validity
    bitmaps are all ones when they come in. At a negative status the cursor stands on the damaged record.
    """
    rows = state[_S_ROWS]
    key_end, value_end = state[_S_KEY_BYTES], state[_S_VALUE_BYTES]
    headers, name_end, header_end = state[_S_HEADERS], state[_S_NAME_BYTES], state[_S_HEADER_BYTES]
    start_offset, end_offset = state[_S_START], state[_S_END]
    want_key, want_value, want_headers = state[_S_WANT_KEY] != 0, state[_S_WANT_VALUE] != 0, state[_S_WANT_HEADERS] != 0
    max_rows, max_bytes = state[_S_MAX_ROWS], state[_S_MAX_BYTES]
    status = _DONE
    batch = state[_S_BATCH]
    while batch < stop:
        codec = table[batch, _CODEC]
        if codec < 0:
            batch += 1
            continue
        data = decompressed if codec else source
        end = table[batch, _DATA_END]
        magic, count = table[batch, _MAGIC], table[batch, _RECORD_COUNT]
        base_offset, last_offset = table[batch, _RECORDS_BASE], table[batch, _LAST_OFFSET]
        base_timestamp, max_timestamp = table[batch, _BASE_TIMESTAMP], table[batch, _MAX_TIMESTAMP]
        one_timestamp, timestamp_type = table[batch, _HAS_ONE_TIMESTAMP] != 0, table[batch, _TIMESTAMP_TYPE]
        record, position, last = state[_S_RECORD], state[_S_POSITION], state[_S_LAST_OFFSET]
        if record == 0:
            position, last = table[batch, _DATA_START], base_offset - 1
        while record < count:
            if magic == 2:
                length, body = _varint(data, position, end)
                if length < 0 or body > end or length > end - body:
                    status = _BAD_LENGTH
                    break
                after = body + length
                timestamp, cursor = _varint(data, body + 1, after)
                delta, cursor = _varint(data, cursor, after)
                if cursor > after:
                    status = _BAD_FIELD
                    break
            else:  # its lengths have been checked
                delta = int64_at(data, position)
                after = position + _LENGTH_END + int32_at(data, position + _MESSAGE_LENGTH)
                timestamp = int64_at(data, position + _MESSAGE_TIMESTAMP) if magic == 1 else _NO_TIMESTAMP
                cursor = position + (_MESSAGE_FIELDS_END if magic == 1 else _MESSAGE_V0_FIELDS_END)
            offset = base_offset + delta
            if offset <= last or offset > last_offset:
                status = _BAD_OFFSET
                break
            if offset < start_offset or offset >= end_offset:
                record, position, last = record + 1, after, offset
                continue
            if magic == 2:
                key_length, key = _varint(data, cursor, after)
            else:
                key_length, key = max(int32_at(data, cursor), -1), cursor + 4
            if key_length < -1 or key > after or key_length > after - key:
                status = _BAD_FIELD
                break
            cursor = key + max(key_length, 0)
            if magic == 2:
                value_length, value = _varint(data, cursor, after)
            else:
                value_length, value = max(int32_at(data, cursor), -1), cursor + 4
            if value_length < -1 or value > after or value_length > after - value:
                status = _BAD_FIELD
                break
            need_key = max(key_length, 0) if want_key else 0
            need_value = max(value_length, 0) if want_value else 0
            need_headers = need_header_bytes = 0
            cursor = value + max(value_length, 0)
            if want_headers and magic == 2:
                need_headers, cursor = _varint(data, cursor, after)
                if need_headers < 0 or cursor > after or need_headers > (after - cursor) // 2:
                    status = _BAD_HEADERS
                    break
                need_header_bytes = after - cursor
            used = key_end + value_end + name_end + header_end
            over = rows >= max_rows or used + need_key + need_value + need_header_bytes > max_bytes
            if (
                (over and rows > 0)
                or key_end + need_key > len(key_bytes)
                or value_end + need_value > len(value_bytes)
                or headers + need_headers >= len(name_offsets)
                or name_end + need_header_bytes > len(name_bytes)
                or header_end + need_header_bytes > len(header_bytes)
            ):
                status = _FULL if rows else _NO_ROOM
                state[_S_NEED_KEY], state[_S_NEED_VALUE] = need_key, need_value
                state[_S_NEED_HEADERS], state[_S_NEED_HEADER_BYTES] = need_headers, need_header_bytes
                break
            if want_headers:
                first, first_name, first_value = headers, name_end, header_end
                nulls = 0
                for _ in range(need_headers):
                    name_length, name = _varint(data, cursor, after)
                    if name_length < 0 or name > after or name_length > after - name:
                        status = _BAD_HEADERS
                        break
                    data_length, cursor = _varint(data, name + name_length, after)
                    if data_length < -1 or cursor > after or data_length > after - cursor:
                        status = _BAD_HEADERS
                        break
                    copy_bytes(name_bytes, name_end, data, name, name_length)
                    name_end += name_length
                    if data_length < 0:
                        header_validity[headers >> 3] &= np.uint8(0xFF ^ (1 << (headers & 7)))
                        nulls += 1
                    else:
                        copy_bytes(header_bytes, header_end, data, cursor, data_length)
                        header_end += data_length
                        cursor += data_length
                    headers += 1
                    name_offsets[headers] = name_end
                    header_offsets[headers] = header_end
                if status == _DONE and cursor != after and magic == 2:
                    status = _BAD_HEADERS
                if status != _DONE:
                    headers, name_end, header_end = first, first_name, first_value
                    break
                state[_S_HEADER_NULLS] += nulls
                header_lists[rows + 1] = headers
            if want_key:
                if key_length < 0:
                    key_validity[rows >> 3] &= np.uint8(0xFF ^ (1 << (rows & 7)))
                    state[_S_KEY_NULLS] += 1
                else:
                    copy_bytes(key_bytes, key_end, data, key, key_length)
                    key_end += key_length
                key_offsets[rows + 1] = key_end
            if want_value:
                if value_length < 0:
                    value_validity[rows >> 3] &= np.uint8(0xFF ^ (1 << (rows & 7)))
                    state[_S_VALUE_NULLS] += 1
                else:
                    copy_bytes(value_bytes, value_end, data, value, value_length)
                    value_end += value_length
                value_offsets[rows + 1] = value_end
            offsets[rows] = offset
            timestamps[rows] = max_timestamp if one_timestamp else base_timestamp + timestamp
            timestamp_types[rows] = timestamp_type
            rows += 1
            record, position, last = record + 1, after, offset
        if status == _DONE and position != end:
            status = _BYTES_LEFT
        if status != _DONE:
            state[_S_RECORD], state[_S_POSITION], state[_S_LAST_OFFSET] = record, position, last
            break
        state[_S_RECORD] = 0
        batch += 1
    state[_S_BATCH] = batch
    state[_S_ROWS] = rows
    state[_S_KEY_BYTES], state[_S_VALUE_BYTES] = key_end, value_end
    state[_S_HEADERS], state[_S_NAME_BYTES], state[_S_HEADER_BYTES] = headers, name_end, header_end
    return status
