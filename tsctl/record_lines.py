"""Rows of a scan as JSON lines, with keys, values and header values in a form that the user chooses.

===============  =================================================================================================
`utf8`           text; the default
`hex`, `base64`  the bytes
any codec        what `ts_reader.schemas.choice` lists; `json` becomes part of the record's own JSON
===============  =================================================================================================

Bytes in a decoded value become base64; decimals, times and numbers that JSON does not have become text.
"""

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ts_common.errors import CorruptData
from ts_common.json_objects import parse_json
from ts_reader.decode.arrow_schema import MILLISECONDS
from ts_reader.options.scan_options import CORRUPT_COLUMN
from ts_reader.query.query import CorruptionMode
from ts_reader.schemas.choice import parse_codec
from ts_reader.schemas.contract import Codec, Part
from ts_reader.schemas.rows import jsonable
from tsctl.results import values_of

if TYPE_CHECKING:
    from ts_reader import Archive


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _hex(data: bytes) -> str:
    return data.hex()


BYTES: Final[Mapping[str, Callable[[bytes], str]]] = {"hex": _hex, "base64": _base64}
DEFAULT: Final = "utf8"
_ROWS: Final = 1024  # converted to Python objects at once
_BYTES: Final = 4 << 20  # the same, unless one record is larger
# Names as in Kafka's TimestampType.
_TIMESTAMP_TYPES: Final = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
_NO_TIMESTAMP: Final = -1
_COLUMNS: Final = ("key", "value", "offset", MILLISECONDS, "timestampType", "headers")
_DEPTH: Final = 200  # of JSON inside of a line

Shown = tuple[object, str | None]  # a value of JSON, and the reason if it is base64 instead of its form


def columns_read(mode: CorruptionMode) -> tuple[str, ...]:
    """Return the columns of a scan that lines need."""
    return (*_COLUMNS, *([CORRUPT_COLUMN] if mode is CorruptionMode.PERMISSIVE else []))


def parse_form(text: str) -> str:
    """Return a form of keys, values or header values.

    Raises:
        ValueError: there is no such form.
    """
    if text not in BYTES:
        try:
            parse_codec(text)
        except ValueError as error:
            raise ValueError(f"{error}, or hex or base64") from error
    return text


class Form:
    """How bytes of one column are shown.

    Attributes:
        type: of the decoded column; None for bytes.
        is_json: whether bytes are JSON, and shown as values of JSON.

    Args:
        text: as of `parse_form`.
        codec: that it names; None for bytes.
    """

    def __init__(self, text: str, codec: Codec | None) -> None:
        self._bytes = BYTES.get(text)
        self._codec = codec
        self.type: pa.DataType | None = None if codec is None else codec.arrow_type
        self.is_json = text == "json"

    def shown(self, column: pa.Array, headers: pa.Array | None = None) -> list[Shown]:
        """Return the values of a column of binary.

        Raises:
            StoreUnavailable, AccessDenied, CorruptData: from the codec.
        """
        raw = column.to_pylist()
        if self._codec is None:
            as_text = self._bytes or _base64
            return [(None if data is None else as_text(data), None) for data in raw]
        decoded = self._codec.decode(column, headers)
        values = values_of(decoded.column, maps_as_pydicts="strict")
        return [
            (_base64(data), reason) if reason is not None else self._shown(data, value)
            for data, value, reason in zip(raw, values, decoded.refused.to_pylist(), strict=True)
        ]

    def _shown(self, data: bytes | None, value: object) -> Shown:
        if data is not None and self.is_json:
            try:
                return parse_json(data, "JSON", len(data), _DEPTH), None
            except CorruptData as error:  # numbers beyond Python's, and what a reader of the line could not parse
                return _base64(data), str(error)
        return value if isinstance(value, str) else jsonable(value), None


class RecordLines:
    """Rows of one partition as JSON lines.

    Args:
        key: the form of keys, like the next two.
        value: of values.
        header: of header values.
    """

    def __init__(self, topic: str, partition: int, key: Form, value: Form, header: Form) -> None:
        self._fixed = {"topic": topic, "partition": partition}
        self._key = key
        self._value = value
        self._header = header

    def of(self, batch: pa.RecordBatch) -> Iterator[list[dict[str, Any]]]:
        """Yield lines of a batch with the columns of `columns_read`, some at once.

        Raises:
            as `Form.shown`.
        """
        step = min(_ROWS, max(1, _BYTES * batch.num_rows // max(1, batch.nbytes)))
        for first in range(0, batch.num_rows, step):
            yield list(self._lines(batch.slice(first, step)))

    def _lines(self, rows: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        headers = rows.column("headers")
        keys = self._key.shown(rows.column("key"), headers)
        values = self._value.shown(rows.column("value"), headers)
        milliseconds = rows.column(MILLISECONDS).to_pylist()
        kinds = rows.column("timestampType").to_pylist()
        corrupt = self._corrupt(rows)
        offsets = rows.column("offset").to_pylist()
        for place, (offset, (names, fields)) in enumerate(zip(offsets, self._headers(headers), strict=True)):
            raw = corrupt[place]
            if raw is not None:
                yield {**self._fixed, "offset": offset, "corrupt": _base64(raw)}
                continue
            undecoded: dict[str, str] = {}
            places = (("key", keys[place]), ("value", values[place]))
            for name, (_, reason) in (*places, *((f"headers[{at}]", each) for at, each in enumerate(fields))):
                if reason is not None:
                    undecoded[name] = reason
            kind = kinds[place]
            line = {
                **self._fixed,
                "offset": offset,
                "timestamp": None if kind == _NO_TIMESTAMP else milliseconds[place],
                "timestamp_type": _TIMESTAMP_TYPES[kind],
                "key": keys[place][0],
                "value": values[place][0],
                "headers": [{"key": name, "value": field} for name, (field, _) in zip(names, fields, strict=True)],
            }
            yield {**line, "undecoded": undecoded} if undecoded else line

    def _headers(self, headers: pa.Array) -> Iterator[tuple[list[str], list[Shown]]]:
        """Yield the names and the values of each row's headers."""
        entries = headers.flatten()
        names, shown = entries.field("key").to_pylist(), self._header.shown(entries.field("value"))
        first = 0
        for count in headers.value_lengths().fill_null(0).to_pylist():
            yield names[first : first + count], shown[first : first + count]
            first += count

    @staticmethod
    def _corrupt(rows: pa.RecordBatch) -> list[bytes | None]:
        if CORRUPT_COLUMN not in rows.schema.names:
            return [None] * rows.num_rows
        found: list[bytes | None] = rows.column(CORRUPT_COLUMN).to_pylist()
        return found


class RecordPrinter:
    """Writes records as JSON lines.

    Args:
        archive: opens the codecs.
        write: is called with each line.
        key: the form of keys, as of `parse_form`, like the next two.
        value: of values.
        header: of header values.
    """

    def __init__(
        self,
        archive: "Archive",
        write: Callable[[dict[str, Any]], None],
        key: str = DEFAULT,
        value: str = DEFAULT,
        header: str = DEFAULT,
    ) -> None:
        self._archive = archive
        self._write = write
        self._texts = ((Part.KEY, key), (Part.VALUE, value), (Part.VALUE, header))
        self._forms: dict[str, list[Form]] = {}

    def open(self, topic: str) -> list[Form]:
        """Return the forms of a topic's keys, values and header values.

        Raises:
            ConfigurationError, StoreUnavailable, AccessDenied, CorruptData: as the archive opens codecs.
        """
        if topic not in self._forms:
            self._forms[topic] = [
                Form(text, None if text in BYTES else self._archive.codec(topic, part, text))
                for part, text in self._texts
            ]
        return self._forms[topic]

    def print(self, topic: str, partition: int, batches: Iterable[pa.RecordBatch]) -> None:
        """Write the records of a partition.

        Args:
            batches: with the columns of `columns_read`.

        Raises:
            as `Form.shown` and `open`.
        """
        lines = RecordLines(topic, partition, *self.open(topic))
        for batch in batches:
            for some in lines.of(batch):
                for line in some:
                    self._write(line)
