"""`SchemaCodec`: values of a schema, in a registry's frame or without one."""

import threading
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from ts_common.errors import CorruptData, ObjectNotFound
from ts_reader.schemas.bundle import Bundle, load_bundle
from ts_reader.schemas.cell_counts import Cells
from ts_reader.schemas.contract import Codec, Decoded, Part
from ts_reader.schemas.formats import Format, Read
from ts_reader.schemas.framing import frame_of, header_name, last_header
from ts_reader.schemas.limits import MAX_UNKNOWN_IDS, MAX_VALUE_BYTES
from ts_reader.schemas.reader_schema import open_format
from ts_reader.schemas.rows import ColumnBuilder
from ts_reader.schemas.schema_source import RegisteredSchema, SchemaSource

_MAX_KNOWN: Final = 10_000  # writers' schemas of one topic


class SchemaCodec(Codec):
    """Decodes values of one topic with one reader's schema.

    A framed value names the writer's schema. It is fetched once per id, and its values are resolved to the reader's
    schema: by Avro's schema resolution, by Protobuf's field numbers, or by JSON's property names. A value whose id no
    schema has, or whose schema does not resolve, is a refused row.

    A pickled codec has the reader's schema, so each copy has the same Arrow type, whatever was registered since.

    Args:
        reader: the reader's schema.
        source: of the writers' schemas; None: the reader's schema is that of all values, whatever id they have.
        framed: whether values have a registry's frame.
        message: of Protobuf, by its name; None for the first one of the schema.
        cuts: whether nanoseconds of Protobuf are cut; else a value with some is refused.
        max_value_bytes: a larger value is refused.

    Raises:
        CorruptData: the reader's schema is wrong, or beyond a limit.
    """

    def __init__(
        self,
        topic: str,
        part: Part,
        reader: Bundle,
        source: SchemaSource | None = None,
        *,
        framed: bool = True,
        message: str | None = None,
        cuts: bool = False,
        max_value_bytes: int = MAX_VALUE_BYTES,
    ) -> None:
        self._topic = topic
        self._part = part
        self._reader = reader
        self._source = source
        self._framed = framed
        self._message = message
        self._cuts = cuts
        self._most = max_value_bytes
        self._compile()

    def _compile(self) -> None:
        self._format: Format = open_format(self._reader, self._message, cuts=self._cuts)
        try:
            self._cells = Cells(self._format.arrow_type)
        except ValueError as error:
            raise CorruptData(f"{self._reader.schema}: {error}") from error
        self._lock = threading.Lock()
        self._known: dict[int | UUID, Read] = {}  # of writers' schemas; what refuses all their rows, too
        self._unknown = 0  # ids and GUIDs that the source does not have
        self._plain = self._format.reading(None)

    def __getstate__(self) -> dict[str, Any]:
        kept = ("_topic", "_part", "_reader", "_source", "_framed", "_message", "_cuts", "_most")
        return {name: getattr(self, name) for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._compile()

    def __repr__(self) -> str:
        return f"SchemaCodec({self._topic!r}, {self._part.value!r}, {str(self._reader.schema)!r})"

    @property
    def arrow_type(self) -> pa.DataType:
        """The type of the decoded column."""
        return self._format.arrow_type

    @property
    def uses_headers(self) -> bool:
        """Whether a header may have the id of the schema."""
        return self._framed

    @property
    def reader_schema(self) -> RegisteredSchema:
        """The reader's schema."""
        return self._reader.schema

    def decode(self, column: pa.Array, headers: pa.Array | None = None) -> Decoded:
        """Return the decoded column and the refused rows.

        Raises:
            StoreUnavailable, AccessDenied, CorruptData: from the source of schemas.
            CorruptData: so many ids have no schema that the values are in no registry's frame.
            BatchTooLarge: the rows need too much memory at once.
        """
        builder = ColumnBuilder(self.arrow_type, self._cells)
        header_of = self._headers(headers)
        for row, data in enumerate(column.to_pylist()):
            if data is None:
                builder.add(None)
                continue
            try:
                if len(data) > self._most:
                    raise ValueError(f"{len(data)} bytes; at most {self._most} are decoded (max.value.bytes)")
                if self._framed:
                    frame = frame_of(data, header_of(row))
                    read = self._known.get(frame.schema) or self._open(frame.schema)
                    builder.add(read(frame.payload, frame.indexes), len(data))
                else:
                    builder.add(self._plain(data, None), len(data))
            except (TypeError, ValueError) as error:  # TypeError: of a library, for a type that it rejects
                builder.refuse(str(error))
        return builder.finish()

    def _headers(self, headers: pa.Array | None) -> Callable[[int], bytes | None]:
        if headers is None or not self._framed:
            return lambda _: None
        name = header_name(self._part)
        return lambda row: last_header(headers[row].as_py(), name)

    def _open(self, schema: int | UUID) -> Read:
        """Return the function for the values of a writer's schema, which one thread at a time fetches and compiles."""
        with self._lock:
            found = self._known.get(schema)
            if found is None:
                found = self._fetched(schema)
                if len(self._known) >= _MAX_KNOWN:
                    self._known.clear()
                self._known[schema] = found
            return found

    def _fetched(self, schema: int | UUID) -> Read:
        kind = self._reader.schema.kind
        try:
            writer = self._reader if self._source is None else self._writer(schema, self._source)
            if writer.schema.kind is not kind:
                return _refusal(f"{writer.schema} is {writer.schema.kind}; expected {kind}")
            return self._format.reading(writer)
        except ObjectNotFound as error:
            self._unknown += 1
            if self._unknown > MAX_UNKNOWN_IDS:
                raise CorruptData(
                    f"{self._topic}: {self._unknown} schema ids of its {self._part}s have no schema: they are in no "
                    "registry's frame, or another registry has their schemas; choose another codec or registry"
                ) from error
            return _refusal(str(error))
        except CorruptData as error:
            return _refusal(str(error))

    def _writer(self, schema: int | UUID, source: SchemaSource) -> Bundle:
        if isinstance(schema, UUID):
            return load_bundle(source.by_guid(schema), source)
        if schema == self._reader.schema.id:
            return self._reader
        return load_bundle(source.schema(schema, self._reader.schema.subject), source)


def _refusal(reason: str) -> Read:
    def refuse(*_: object) -> object:
        raise ValueError(reason)

    return refuse
