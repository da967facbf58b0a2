"""JSON lines: one object for each row, by the names of its columns; one compressed stream for a file.

::

    {"key":"k","value":"{...}","topic":"t","partition":0,"offset":7,"timestamp":"2026-11-25T08:00:00.123Z",
     "timestampType":0,"headers":[{"key":"h","value":"v"}],"_topic_id":"...","_partition_id":0,"_offset":7,"_ordinal":0}

Keys and values that are UTF-8 are text. Other bytes of these are in Base64 under another name: `key_base64`,
`value_base64`. The time of a record that is out of the years 1 to 9999 is a number: milliseconds since 1970. It is the
time as stored; rows that are read back have it in the column `timestampMs`, which no line has.

The columns of a parser are as `ts_tables.files.json_columns` has them.
"""

import base64
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO, Final

import orjson
import pyarrow as pa

from ts_common.errors import CorruptData
from ts_reader.decode.arrow_schema import LATEST_MILLISECONDS, MILLISECONDS
from ts_tables.files.compressed import CompressedStream, decompressed
from ts_tables.files.json_columns import column_of, json_values
from ts_tables.files.layout import Closed, Layout, discard
from ts_tables.files.parsed_columns import PARSED_REQUIRED
from ts_tables.files.raw_columns import REQUIRED

_BASE64: Final = "_base64"
_BYTES: Final = ("key", "value", "_key")
_TIMES: Final = ("timestamp", "_timestamp")
_HEADERS: Final = "headers"
_NUMBERS: Final = ("partition", "offset", "timestampType", "_partition_id", "_offset", "_ordinal")  # never NULL
_ROWS: Final = 4096  # converted to Python objects at once
_BYTES_AT_ONCE: Final = 32 << 20
_LONGEST: Final = 1 << 30  # bytes of a line; a record has at most 2 GiB, and a broker's limit is far below
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS: Final = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
_LAST_MS: Final = (datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


class JsonLinesFile:
    """An open file; as `ts_tables.files.file_writer.OutputFile` describes."""

    def __init__(self, layout: Layout, stream: BinaryIO) -> None:
        self._stream = stream
        self._compressed = CompressedStream(layout.compression, stream)

    def write(self, rows: pa.Table) -> None:
        """Write rows."""
        for batch in rows.to_batches(_ROWS):
            self._compressed.write(b"".join(_lines(batch)))

    @property
    def size(self) -> int:
        """The bytes so far, as far as they have left the compressor."""
        return self._compressed.size

    def close(self) -> Closed:
        """Close the stream, and return the size; there is no footer."""
        return Closed(self._compressed.close())

    def abort(self) -> None:
        """Give up the file."""
        self._compressed.abandon()
        discard(self._stream)


def json_rows(stream: BinaryIO, codec: str, schema: pa.Schema, what: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file.

    Args:
        stream: of the file, at its start; it can seek.
        schema: of the rows; further names of a line are left out.
        what: names the file, for messages.

    Raises:
        CorruptData: it has other lines, or was cut.
    """
    try:
        rows: list[dict[str, Any]] = []
        size = 0
        with io.BufferedReader(decompressed(codec, stream), 1 << 20) as lines:
            while line := lines.readline(_LONGEST):
                if len(line) == _LONGEST:
                    raise ValueError(f"it has more than {_LONGEST:,} bytes")
                rows.append(_object(orjson.loads(line)))
                size += len(line)
                if len(rows) == _ROWS or size >= _BYTES_AT_ONCE:
                    yield _batch(rows, schema)
                    rows, size = [], 0
        if rows:
            yield _batch(rows, schema)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise CorruptData(f"{what} has a line that is no row of this table: {str(error)[:200]}") from error
    except OSError as error:  # of the decompressor: the stream is a local file
        raise CorruptData(f"{what}: {error}") from error


def _object(line: Any) -> dict[str, Any]:
    if type(line) is not dict:
        raise ValueError("it is no object")
    return line


def _batch(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    batch = pa.RecordBatch.from_arrays([_column(rows, field) for field in schema], schema=schema)
    required = [name for name in (*REQUIRED, *PARSED_REQUIRED) if name in schema.names]
    if lacking := [name for name in required if batch[name].null_count]:
        raise ValueError(f"{', '.join(lacking)} is missing")
    return batch


def _lines(rows: pa.RecordBatch) -> Iterator[bytes]:
    if MILLISECONDS in rows.schema.names:
        at = rows.schema.get_field_index(MILLISECONDS)
        rows = rows.set_column(rows.schema.get_field_index("timestamp"), "timestamp", rows.column(at)).remove_column(at)
    columns = [_values(rows.column(at), field) for at, field in enumerate(rows.schema)]
    is_bytes = {field.name for field in rows.schema if _is_bytes(field)}
    for fields in zip(*columns, strict=True):
        line: dict[str, Any] = {}
        for name, value in zip(rows.schema.names, fields, strict=True):
            if value is None:
                line[name] = None
            elif name in is_bytes:
                _add_bytes(line, name, value)
            elif name == _HEADERS:
                line[name] = [_header(each) for each in value]
            else:
                line[name] = value
        yield orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def _is_bytes(field: pa.Field) -> bool:
    return field.name in _BYTES and pa.types.is_binary(field.type)


def _values(column: pa.Array, field: pa.Field) -> Sequence[Any]:
    if field.name in _TIMES:
        unit = 1 if pa.types.is_integer(column.type) else 1000  # a time as stored, or of a column of microseconds
        return [None if each is None else _time(each // unit) for each in column.cast(pa.int64()).to_pylist()]
    return column.to_pylist() if _is_bytes(field) or field.name == _HEADERS else json_values(column)


def _time(milliseconds: int) -> str | int:
    if not _FIRST_MS <= milliseconds <= _LAST_MS:
        return milliseconds
    text = (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _header(header: Mapping[str, Any]) -> dict[str, Any]:
    line = {"key": header["key"]}
    if header["value"] is not None:
        _add_bytes(line, "value", header["value"])
    return line


def _add_bytes(line: dict[str, Any], name: str, data: bytes) -> None:
    try:
        line[name] = data.decode()
    except UnicodeDecodeError:
        line[name + _BASE64] = base64.b64encode(data).decode()


def _column(lines: Sequence[Mapping[str, Any]], field: pa.Field) -> pa.Array:
    """Return a column of lines."""
    name = field.name
    values: list[Any] = [line.get(name) for line in lines]
    if name in _NUMBERS and any(type(value) is not int for value in values):
        raise ValueError(f"{name} is no whole number")
    if _is_bytes(field):
        values = [_bytes_of(line, name) for line in lines]
    elif name in _READ:
        member, read = _READ[name]
        values = [None if line.get(member) is None else read(line[member]) for line in lines]
    else:
        return column_of(values, field.type)
    return pa.array(values, field.type)


def _headers(headers: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"key": header["key"], "value": _bytes_of(header, "value")} for header in headers]


def _bytes_of(line: Mapping[str, Any], name: str) -> bytes | None:
    if name + _BASE64 in line:
        return base64.b64decode(line[name + _BASE64], validate=True)
    text = line.get(name)
    return None if text is None else text.encode()


def _microseconds(value: str | int) -> int:
    if isinstance(value, int):
        return max(-LATEST_MILLISECONDS, min(value, LATEST_MILLISECONDS)) * 1000
    return (datetime.fromisoformat(value) - _EPOCH) // timedelta(microseconds=1)


def _milliseconds(value: str | int) -> int:
    return value if isinstance(value, int) else (datetime.fromisoformat(value) - _EPOCH) // timedelta(milliseconds=1)


# By column: the member that it is read from, and how.
_READ: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    **{name: (name, _microseconds) for name in _TIMES},
    MILLISECONDS: ("timestamp", _milliseconds),
    _HEADERS: (_HEADERS, _headers),
}
