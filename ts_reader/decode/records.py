"""The kernel that decodes the records of the table's batches into columns.

Format of a record (KIP-98, Kafka's `DefaultRecord`), where `varint` is zigzag::

    length varint | attributes int8 | timestamp delta varlong | offset delta varint
    key length varint, key | value length varint, value          length -1 is null
    header count varint, each: name length varint, name | value length varint, value

`batch_index` lists the batches, `legacy` the messages of magic 0 and 1; both in the table of `kernel_arrays`.

Records are read as Kafka's Java consumer reads them (`DefaultRecord`, `LegacyRecord`, `CompletedFetch`):

- a length below 0 of a key, a value or a header's value is null; that of a header's name is damage;
- a varint has at most five bytes, and bits above 32 are ignored; a varlong has ten;
- a record is shown if its offset is at least one above that of the record before. So of several records with one
  offset the first is shown, and records above the last offset of their header hide those of later batches;
- each record is checked whole, also if it is not shown, or if its fields are not wanted. A message inside
  another one that is not shown is the exception: its CRC and its fields are not checked.

Every length is compared with the remaining bytes before it is used. The kernel returns damage as a status; the caller
raises the error.
"""

from typing import Any, Final

import numpy as np

from ts_common.log_format import framing
from ts_reader.decode.checksums import crc32_of
from ts_reader.decode.compiled import kernel
from ts_reader.decode.kernel_arrays import PASSED as _PASSED
from ts_reader.decode.kernel_arrays import Column, CursorField, DecodeStatus
from ts_reader.decode.kernel_source import Bytes, Int32s, Int64Rows, Int64s, copy_bytes, inlined, int32_at, int64_at

# Numba compiles module constants as literals, but not members of an enumeration in every place
_CODEC, _MAGIC, _RECORDS_BASE = int(Column.CODEC), int(Column.MAGIC), int(Column.RECORDS_BASE)
_DATA_START, _DATA_END = int(Column.DATA_START), int(Column.DATA_END)
_BASE_TIMESTAMP, _MAX_TIMESTAMP = int(Column.BASE_TIMESTAMP), int(Column.MAX_TIMESTAMP)
_HAS_ONE_TIMESTAMP, _TIMESTAMP_TYPE = int(Column.HAS_ONE_TIMESTAMP), int(Column.TIMESTAMP_TYPE)
_LAST_OFFSET, _RECORD_COUNT, _ERASED = int(Column.LAST_OFFSET), int(Column.RECORD_COUNT), int(Column.ERASED)
_BASE_OFFSET, _HIDDEN, _LEADER_EPOCH = int(Column.BASE_OFFSET), int(Column.HIDDEN), int(Column.LEADER_EPOCH)

_S = {member.name: int(member) for member in CursorField}
_S_BATCH, _S_RECORD, _S_POSITION, _S_LAST_OFFSET = _S["BATCH"], _S["RECORD"], _S["POSITION"], _S["LAST_OFFSET"]
_S_ROWS, _S_KEY_BYTES, _S_VALUE_BYTES, _S_HEADERS = _S["ROWS"], _S["KEY_BYTES"], _S["VALUE_BYTES"], _S["HEADERS"]
_S_NAME_BYTES, _S_HEADER_BYTES = _S["NAME_BYTES"], _S["HEADER_BYTES"]
_S_KEY_NULLS, _S_VALUE_NULLS, _S_HEADER_NULLS = _S["KEY_NULLS"], _S["VALUE_NULLS"], _S["HEADER_NULLS"]
_S_NEXT, _S_END, _S_MAX_ROWS, _S_MAX_BYTES = _S["NEXT_OFFSET"], _S["END_OFFSET"], _S["MAX_ROWS"], _S["MAX_BYTES"]
_S_WANT_KEY, _S_WANT_VALUE, _S_WANT_HEADERS = _S["WANT_KEY"], _S["WANT_VALUE"], _S["WANT_HEADERS"]
_S_NEED_KEY, _S_NEED_VALUE = _S["NEED_KEY_BYTES"], _S["NEED_VALUE_BYTES"]
_S_NEED_HEADERS, _S_NEED_HEADER_BYTES = _S["NEED_HEADERS"], _S["NEED_HEADER_BYTES"]
_S_CONTRADICTED = _S["CONTRADICTED"]

_DONE, _FULL, _NO_ROOM = int(DecodeStatus.DONE), int(DecodeStatus.FULL), int(DecodeStatus.NO_ROOM)
_BAD_LENGTH, _BAD_FIELD, _BAD_HEADERS = (
    int(DecodeStatus.BAD_LENGTH),
    int(DecodeStatus.BAD_FIELD),
    int(DecodeStatus.BAD_HEADERS),
)
_BAD_MESSAGE, _BYTES_LEFT = int(DecodeStatus.BAD_MESSAGE), int(DecodeStatus.BYTES_LEFT)

_LENGTH_END = framing.LENGTH_END
_MESSAGE_LENGTH, _MESSAGE_TIMESTAMP, _MESSAGE_MAGIC, _MESSAGE_ATTRIBUTES, _MESSAGE_CRC = (
    framing.message_field_position(name) for name in ("size", "timestamp", "magic", "attributes", "crc")
)
_CODEC_MASK = framing.CODEC_MASK
_FIELD_LENGTHS = 8  # of a message: the lengths of key and value
_MESSAGE_V0_FIELDS_END, _MESSAGE_FIELDS_END = framing.MESSAGE_FIELDS_END[0], framing.MESSAGE_FIELDS_END[1]
_NO_TIMESTAMP = framing.NO_TIMESTAMP
_HIGHEST: Final = (1 << 63) - 1
_OVERRUN: Final = 1 << 62  # a position after every end


@inlined
def _varlong(data: Bytes, position: int, end: int) -> Any:
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


@inlined
def _varint(data: Bytes, position: int, end: int) -> Any:
    """Return a zigzag varint of at most 5 bytes, as an int32, and the position after it; otherwise as `_varlong`."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while position < end and shift < np.uint64(35):
        byte = np.uint64(data[position])
        position += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            value &= np.uint64(0xFFFFFFFF)
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), position
        shift += np.uint64(7)
    return np.int64(0), np.int64(_OVERRUN)


@inlined
def first_run(erased: Int64Rows, offset: int) -> int:
    """Return the number of the first run of erased offsets that ends above an offset; their number without one."""
    low, high = 0, len(erased)
    while low < high:
        middle = (low + high) // 2
        if erased[middle, 1] <= offset:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def mark_erased(table: Int64Rows, erased: Int64Rows) -> None:
    """Mark the batches that can have an erased record, by their headers; `erased` as of `decode_records`."""
    for number in range(len(table)):
        row = table[number]
        run = first_run(erased, row[_BASE_OFFSET])
        while run < len(erased) and erased[run, 0] <= row[_LAST_OFFSET]:
            if row[_LEADER_EPOCH] <= erased[run, 2]:
                row[_ERASED] = 1
                break
            run += 1


@kernel
def decode_records(
    source: Bytes,
    decompressed: Bytes,
    table: Int64Rows,
    erased: Int64Rows,
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

    Records outside [NEXT_OFFSET, END_OFFSET) are checked and skipped, and unwanted fields are not copied. The caller
    passes validity bitmaps of ones. With a negative status the cursor is at the damaged record.

    A record in one of the runs of `erased` is skipped like a marker, unless its batch has a higher leader epoch. Its
    rows are (first offset, offset after the last, epoch), ascending and disjoint.
    """
    rows = state[_S_ROWS]
    key_end, value_end = state[_S_KEY_BYTES], state[_S_VALUE_BYTES]
    headers, name_end, header_end = state[_S_HEADERS], state[_S_NAME_BYTES], state[_S_HEADER_BYTES]
    following, end_offset = state[_S_NEXT], state[_S_END]
    want_key, want_value, want_headers = state[_S_WANT_KEY] != 0, state[_S_WANT_VALUE] != 0, state[_S_WANT_HEADERS] != 0
    max_rows, max_bytes = state[_S_MAX_ROWS], state[_S_MAX_BYTES]
    status = _DONE
    run = first_run(erased, following) if len(erased) else 0  # the first one that ends above the record
    next_erased = erased[run, 0] if run < len(erased) else _HIGHEST
    batch = state[_S_BATCH]
    while batch < stop:
        codec = table[batch, _CODEC]
        last_offset = table[batch, _LAST_OFFSET]
        if codec < 0:
            if codec == _PASSED:
                following = max(following, last_offset + 1)
            batch += 1
            continue
        data = decompressed if codec else source
        end = table[batch, _DATA_END]
        magic, count = table[batch, _MAGIC], table[batch, _RECORD_COUNT]
        base_offset, is_hidden = table[batch, _RECORDS_BASE], table[batch, _HIDDEN] != 0
        base_timestamp, max_timestamp = table[batch, _BASE_TIMESTAMP], table[batch, _MAX_TIMESTAMP]
        one_timestamp, timestamp_type = table[batch, _HAS_ONE_TIMESTAMP] != 0, table[batch, _TIMESTAMP_TYPE]
        record, position, last = state[_S_RECORD], state[_S_POSITION], state[_S_LAST_OFFSET]
        if record == 0:
            position, last = table[batch, _DATA_START], (base_offset if magic == 2 else 0) - 1
        contradicted = magic == 2 and table[batch, _BASE_OFFSET] != base_offset
        leader_epoch = table[batch, _LEADER_EPOCH]
        while record < count:
            header_count = 0
            if magic == 2:
                length, body = _varint(data, position, end)
                if length < 0 or body > end or length > end - body:
                    status = _BAD_LENGTH
                    break
                after = body + length
                timestamp, cursor = _varlong(data, body + 1, after)
                delta, cursor = _varint(data, cursor, after)
                key_length, key = _varint(data, cursor, after)
                if key > after or key_length > after - key:
                    status = _BAD_FIELD
                    break
                value_length, value = _varint(data, key + max(key_length, 0), after)
                if value > after or value_length > after - value:
                    status = _BAD_FIELD
                    break
                header_count, first_header = _varint(data, value + max(value_length, 0), after)
                if header_count < 0 or first_header > after or header_count > (after - first_header) // 2:
                    status = _BAD_HEADERS
                    break
                cursor = first_header
                for _ in range(header_count):
                    name_length, cursor = _varint(data, cursor, after)
                    if name_length < 0 or cursor > after or name_length > after - cursor:
                        cursor = _OVERRUN
                        break
                    data_length, cursor = _varint(data, cursor + name_length, after)
                    if cursor > after or data_length > after - cursor:
                        cursor = _OVERRUN
                        break
                    cursor += max(data_length, 0)
                if cursor != after:
                    status = _BAD_HEADERS
                    break
                if after != end and record + 1 == count:
                    status = _BYTES_LEFT
                    break
                offset = base_offset + delta
            else:  # `legacy` has found that it is whole, and checked it if it is not inside another one
                after = position + _LENGTH_END + int32_at(data, position + _MESSAGE_LENGTH)
                offset = base_offset + int64_at(data, position)
                if codec and data[position + _MESSAGE_ATTRIBUTES] & _CODEC_MASK:
                    status = _BAD_MESSAGE
                    break
            if offset <= last or offset > last_offset:
                contradicted = True
            if offset < following:
                record, position, last = record + 1, after, offset
                continue
            if magic != 2:
                own_magic = data[position + _MESSAGE_MAGIC]
                cursor = position + (_MESSAGE_FIELDS_END if own_magic else _MESSAGE_V0_FIELDS_END)
                if cursor + _FIELD_LENGTHS > after:
                    status = _BAD_MESSAGE
                    break
                key_length, key = int32_at(data, cursor), cursor + 4
                if key_length > after - key - 4:
                    status = _BAD_MESSAGE
                    break
                value = key + max(key_length, 0) + 4
                value_length = int32_at(data, value - 4)
                if value_length > after - value:
                    status = _BAD_MESSAGE
                    break
                if codec:
                    crc = int32_at(data, position + _MESSAGE_CRC) & 0xFFFFFFFF
                    if crc32_of(data, position + _MESSAGE_MAGIC, after) != crc:
                        status = _BAD_MESSAGE
                        break
                timestamp = int64_at(data, position + _MESSAGE_TIMESTAMP) if own_magic else _NO_TIMESTAMP
                first_header = after
            is_erased = False
            if offset >= next_erased:
                while run < len(erased) and erased[run, 1] <= offset:  # records are shown in the order of offsets
                    run += 1
                next_erased = erased[run, 0] if run < len(erased) else _HIGHEST
                is_erased = offset >= next_erased and leader_epoch <= erased[run, 2]
            if is_hidden or is_erased or offset >= end_offset:
                following = offset + 1
                record, position, last = record + 1, after, offset
                continue
            need_key = max(key_length, 0) if want_key else 0
            need_value = max(value_length, 0) if want_value else 0
            need_headers = header_count if want_headers else 0
            need_header_bytes = after - first_header if want_headers else 0
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
                cursor = first_header
                for _ in range(need_headers):
                    name_length, cursor = _varint(data, cursor, after)
                    copy_bytes(name_bytes, name_end, data, cursor, name_length)
                    name_end += name_length
                    data_length, cursor = _varint(data, cursor + name_length, after)
                    if data_length < 0:
                        header_validity[headers >> 3] &= np.uint8(0xFF ^ (1 << (headers & 7)))
                        state[_S_HEADER_NULLS] += 1
                    else:
                        copy_bytes(header_bytes, header_end, data, cursor, data_length)
                        header_end += data_length
                        cursor += data_length
                    headers += 1
                    name_offsets[headers] = name_end
                    header_offsets[headers] = header_end
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
            if magic == 2:
                timestamps[rows] = max_timestamp if one_timestamp else base_timestamp + timestamp
            else:
                timestamps[rows] = max_timestamp if one_timestamp and own_magic == 1 else timestamp
            timestamp_types[rows] = timestamp_type
            rows += 1
            following = offset + 1
            record, position, last = record + 1, after, offset
        if contradicted:
            state[_S_CONTRADICTED] += 1
        if status != _DONE:
            state[_S_RECORD], state[_S_POSITION], state[_S_LAST_OFFSET] = record, position, last
            break
        state[_S_RECORD] = 0
        batch += 1
    state[_S_BATCH] = batch
    state[_S_ROWS] = rows
    state[_S_NEXT] = following
    state[_S_KEY_BYTES], state[_S_VALUE_BYTES] = key_end, value_end
    state[_S_HEADERS], state[_S_NAME_BYTES], state[_S_HEADER_BYTES] = headers, name_end, header_end
    return status
