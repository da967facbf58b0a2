"""The kernel that decodes the records of the table's batches into columns.

Format of a record (KIP-98, Kafka's `DefaultRecord`), where `varint` is zigzag::

    length varint | attributes int8 | timestamp delta varlong | offset delta varint
    key length varint, key | value length varint, value          length -1 is null
    header count varint, each: name length varint, name | value length varint, value

`batch_index` lists the batches, `legacy` the messages of magic 0 and 1; both in the table of `kernel_arrays`.

Every length is compared with the remaining bytes before it is used. The kernel returns damage as a status; the caller
raises the error.
"""

from typing import Any, Final

import numpy as np

from ts_common.decode.compiled import (
    Bytes,
    Int32s,
    Int64Rows,
    Int64s,
    copy_bytes,
    inlined,
    int32_at,
    int64_at,
    kernel,
)
from ts_common.decode.kernel_arrays import Column, State, Status
from ts_common.log_format import framing

# Numba compiles module constants as literals, but not members of an enumeration in every place
_CODEC, _MAGIC, _RECORDS_BASE = int(Column.CODEC), int(Column.MAGIC), int(Column.RECORDS_BASE)
_DATA_START, _DATA_END = int(Column.DATA_START), int(Column.DATA_END)
_BASE_TIMESTAMP, _MAX_TIMESTAMP = int(Column.BASE_TIMESTAMP), int(Column.MAX_TIMESTAMP)
_HAS_ONE_TIMESTAMP, _TIMESTAMP_TYPE = int(Column.HAS_ONE_TIMESTAMP), int(Column.TIMESTAMP_TYPE)
_LAST_OFFSET, _RECORD_COUNT = int(Column.LAST_OFFSET), int(Column.RECORD_COUNT)

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

_LENGTH_END = framing.LENGTH_END
_MESSAGE_LENGTH, _MESSAGE_TIMESTAMP = (framing.message_field_position(name) for name in ("size", "timestamp"))
_MESSAGE_V0_FIELDS_END, _MESSAGE_FIELDS_END = framing.MESSAGE_FIELDS_END[0], framing.MESSAGE_FIELDS_END[1]
_NO_TIMESTAMP = framing.NO_TIMESTAMP
_OVERRUN: Final = 1 << 62  # a position after every end


@inlined
def _varint(data: Bytes, position: int, end: int) -> Any:
    """Return a zigzag varint of at most 10 bytes and the position after it; without one, a position after every end."""
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
    table: Int64Rows,
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

    Records outside [START_OFFSET, END_OFFSET) are skipped, and unwanted fields are not read. The caller passes validity
    bitmaps of ones. With a negative status the cursor is at the damaged record.
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
            else:  # `legacy` has checked its lengths
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
