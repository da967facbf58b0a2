"""The digests of rows as machine code; `ts_reader.decode.digest` has the formula."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ts_reader.decode.arrow_schema import MILLISECONDS
from ts_reader.decode.compiled import kernel
from ts_reader.decode.kernel_source import DIGEST_BYTES, Bytes, Int32s, Int64s, copy_bytes, inlined, sha256

_HASH: Final = 64  # digits
_NUMBERS: Final = 4 * 21 + 3  # bytes of the numbers of a row, of 64 bits in any file, and of all bars
_ALL: Final = np.empty(0, np.uint8)  # no value is NULL


def digests_of(functions: Int64s, rows: pa.RecordBatch) -> Bytes:
    """Return the digests of rows: uint8[n, 32].

    Args:
        functions: as `sha256_functions` returns them.
        rows: with the columns `ts_reader.decode.digest.COLUMNS`.
    """
    topics, topic_bounds, _ = _strings(rows["topic"])
    headers = rows["headers"]
    header_bounds: Int32s = headers.offsets.to_numpy()
    pairs = headers.values
    # `flatten` gives names and values the NULLs of their pairs.
    parts = dict(zip([field.name for field in pairs.type], pairs.flatten(), strict=True))
    times = milliseconds_of(rows)
    text_bytes = longest_text(_longest(topic_bounds), _longest(header_bounds))
    digests: Bytes = np.empty(rows.num_rows * DIGEST_BYTES, np.uint8)
    _hash_rows(
        functions,
        topics,
        topic_bounds,
        _numbers(rows["partition"]),
        _numbers(rows["offset"]),
        _numbers(times),
        _valid(times),
        _numbers(rows["timestampType"]),
        *_strings(rows["key"]),
        *_strings(rows["value"]),
        header_bounds,
        _valid(headers),
        *_strings(parts["key"]),
        *_strings(parts["value"]),
        np.empty(text_bytes, np.uint8),
        digests,
    )
    return digests.reshape(-1, DIGEST_BYTES)


def milliseconds_of(rows: pa.RecordBatch) -> pa.Array:
    """Return the times of records: as stored, or where rows lack that as their column of microseconds has them."""
    if MILLISECONDS in rows.schema.names:
        return rows[MILLISECONDS]
    found = rows["timestamp"].cast(pa.int64())
    numbers = pc.fill_null(found, 0).to_numpy() // 1000
    return pc.if_else(found.is_valid(), pa.array(numbers), pa.scalar(None, pa.int64()))


def longest_text(topic: int, headers: int) -> int:
    """Return the most bytes of the text of a row.

    Args:
        topic: bytes of its name.
    """
    return topic + _NUMBERS + 2 * _HASH + headers * 2 * (_HASH + 1)


def _numbers(column: pa.Array) -> Int64s:
    found: Int64s = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
    return found


def _valid(column: pa.Array) -> Bytes:
    """Return 1 for each value that is not NULL, and 0 for each other one; nothing if each has a value."""
    if not column.null_count:
        return _ALL
    found: Bytes = column.is_valid().cast(pa.uint8()).to_numpy()
    return found


def _strings(column: pa.Array) -> tuple[Bytes, Int32s, Bytes]:
    """Return the bytes of strings, their bounds, and which are not NULL."""
    column = column.cast(pa.binary())
    _, bounds, data = column.buffers()
    if bounds is None or not len(column):
        return _ALL, np.zeros(1, np.int32), _ALL
    found = _ALL if data is None else np.frombuffer(data, np.uint8)
    ends = np.frombuffer(bounds, np.int32)[column.offset : column.offset + len(column) + 1]
    return found, ends, _valid(column)


def _longest(bounds: Int32s) -> int:
    return int(np.diff(bounds).max(initial=0))


@inlined
def _put_number(text: Bytes, at: Any, number: Any) -> Any:
    """Write a decimal number and a bar; return where they end."""
    rest = np.uint64(number)
    if number < 0:
        text[at] = 0x2D
        at += 1
        rest = np.uint64(0) - rest
    digits = 1
    limit = np.uint64(10)
    while digits < 19 and rest >= limit:
        digits += 1
        limit *= np.uint64(10)
    for place in range(digits):
        text[at + digits - 1 - place] = np.uint8(np.uint64(0x30) + rest % np.uint64(10))
        rest //= np.uint64(10)
    text[at + digits] = 0x7C
    return at + digits + 1


@inlined
def _put_hash(
    functions: Int64s, text: Bytes, at: Any, digest: Bytes, data: Bytes, bounds: Int32s, valid: Bytes, row: Any
) -> Any:
    """Write the hash of a string in hexadecimal, or N for NULL; return where it ends."""
    if len(valid) and not valid[row]:
        text[at] = 0x4E
        return at + 1
    start = np.int64(bounds[row])
    sha256(functions, data, start, np.int64(bounds[row + 1]) - start, digest, np.int64(0))
    for place in range(32):
        for half in range(2):
            digit = (digest[place] >> np.uint8(4)) if half == 0 else (digest[place] & np.uint8(15))
            text[at + 2 * place + half] = digit + np.uint8(0x30) if digit < 10 else digit + np.uint8(0x57)
    return at + 64


@kernel
def _hash_rows(
    functions: Int64s,
    topics: Bytes,
    topic_bounds: Int32s,
    partitions: Int64s,
    offsets: Int64s,
    times: Int64s,
    timed: Bytes,
    kinds: Int64s,
    keys: Bytes,
    key_bounds: Int32s,
    key_valid: Bytes,
    values: Bytes,
    value_bounds: Int32s,
    value_valid: Bytes,
    header_bounds: Int32s,
    headers_valid: Bytes,
    names: Bytes,
    name_bounds: Int32s,
    name_valid: Bytes,
    headers: Bytes,
    data_bounds: Int32s,
    data_valid: Bytes,
    text: Bytes,
    digests: Bytes,
) -> None:
    """Hash the text of each row.

    Args:
        functions: as `sha256_functions` returns them.
        topics: of the rows; strings have their bytes, n + 1 bounds, and which of them are not NULL, if any is.
        times: of the rows, ms.
        timed: which rows have a time; empty if all have.
        header_bounds: the number of each row's first header, and of the end.
        headers_valid: which rows have headers; empty if all have.
        headers: their values.
        text: room for the longest text.
        digests: room for them.
    """
    for row in range(len(offsets)):
        start: Any = np.int64(topic_bounds[row])
        at: Any = np.int64(topic_bounds[row + 1]) - start
        copy_bytes(text, 0, topics, start, at)
        text[at] = 0x7C
        at = _put_number(text, at + 1, partitions[row])
        at = _put_number(text, at, offsets[row])
        if len(timed) and not timed[row]:
            text[at] = 0x4E
            text[at + 1] = 0x7C
            at += 2
        else:
            at = _put_number(text, at, times[row])
        at = _put_number(text, at, kinds[row])
        digest = digests[row * 32 : row * 32 + 32]
        at = _put_hash(functions, text, at, digest, keys, key_bounds, key_valid, row)
        text[at] = 0x7C
        at = _put_hash(functions, text, at + 1, digest, values, value_bounds, value_valid, row)
        text[at] = 0x7C
        at += 1
        if not len(headers_valid) or headers_valid[row]:
            first = np.int64(header_bounds[row])
            for number in range(first, np.int64(header_bounds[row + 1])):
                if number > first:
                    text[at] = 0x2C
                    at += 1
                at = _put_hash(functions, text, at, digest, names, name_bounds, name_valid, number)
                text[at] = 0x3A
                at = _put_hash(functions, text, at + 1, digest, headers, data_bounds, data_valid, number)
        sha256(functions, text, np.int64(0), at, digest, np.int64(0))
