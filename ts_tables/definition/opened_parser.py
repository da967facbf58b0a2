"""The parser of a table: with the newest schemas, or with those that the table's state names."""

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

import pyarrow as pa

from ts_common.errors import OperatorError
from ts_reader.schemas.choice import parse_codec
from ts_reader.schemas.contract import Codec, Part
from ts_reader.schemas.schema_codec import SchemaCodec
from ts_reader.schemas.schema_source import RegisteredSchema
from ts_tables.claims.state import TableState
from ts_tables.definition.parser_definition import OF_SCHEMA, THRIFT, ParserDefinition
from ts_tables.definition.table_definitions import TableDefinition
from ts_tables.definition.values import TableMode
from ts_tables.files.parsed_columns import OWN_NAMES
from ts_tables.parsers.changes import RecordParser
from ts_tables.parsers.contract import Parser
from ts_tables.parsers.decoded import DecodedParser, SchemaReading, columns_of
from ts_tables.parsers.inference import FoundColumn
from ts_tables.parsers.table_types import table_type

_FILE: Final = "sha256="  # and the digest of a schema that is a file

CodecOf = Callable[[Part, str], Codec]  # by its name and options, as ts_reader.schemas.choice.parse_codec has them


class ParserOpener:
    """Opens the parser of a table.

    Args:
        definition: of the table, which has a parser.
        codec_of: returns a codec of the keys or values of the table's topic.
        source: of the parser's definition, for messages.

    All methods raise ConfigurationError if the class, a codec or an option is wrong; OperatorError if a schema is not
    available any more, or a column of a table has no such type; and CorruptData, StoreUnavailable, AccessDenied from
    the schemas.
    """

    def __init__(self, definition: TableDefinition, codec_of: CodecOf, source: str) -> None:
        assert definition.parser is not None  # noqa: S101
        self._parser: ParserDefinition = definition.parser
        self._mode = definition.mode
        self._included = definition.included
        self._key = definition.key
        self._source = source
        self._codec_of = codec_of
        self._reading = cache(self._open_reading)  # a run opens the same schema for each commit
        self._thrift = cache(lambda: self._parser.open_thrift(source))

    def newest(self) -> Parser:
        """Return the parser of a new table."""
        if not self._parser.is_codec:
            return self._with_keys(self._simple(), None)
        reading = self._values(None)
        return self._with_keys(DecodedParser([reading], columns_of(reading, (), self._others)), None)

    def of(self, state: TableState, newest: bool) -> Parser:
        """Return the parser of a table's state.

        Args:
            newest: whether the parser may have a newer schema than the state.
        """
        if not self._parser.is_codec:
            return self._with_keys(self._simple(), state.key_schema).with_columns(state.columns)
        columns: Sequence[FoundColumn] = state.columns
        schemas: list[str | None] = [*state.schemas]
        if newest or not schemas:
            schemas.insert(0, None)
        readings: list[SchemaReading] = []
        for schema in schemas:
            if not readings or DecodedParser.lacks(readings, columns):  # others need not be available any more
                readings.append(self._values(schema))
        if newest:
            columns = columns_of(readings[0], columns, self._others)
        return self._with_keys(DecodedParser(readings, columns), state.key_schema)

    def key_type(self, state: TableState) -> pa.DataType | None:
        """Return the type of the keys of a table's state; None if they have no schema."""
        if self._key is None or state.key_schema is None:
            return None
        return table_type(self._reading(Part.KEY, self._key, state.key_schema).codec.arrow_type)

    @property
    def _others(self) -> Sequence[str]:
        return (*OWN_NAMES, *self._included)

    def _simple(self) -> Parser:
        if self._parser.type == THRIFT:
            return self._thrift()
        return self._parser.open_columns() if self._parser.has_columns else self._parser.open_class(self._source)

    def _with_keys(self, values: Parser, schema: str | None) -> Parser:
        if not self._included:
            return values
        keys = None if self._key is None else self._reading(Part.KEY, self._key, schema)
        return RecordParser(values, self._included, keys, needs_key=self._mode is TableMode.LATEST)

    def _values(self, schema: str | None) -> SchemaReading:
        options = [f"{name}={value}" for name, value in self._parser.options.items()]
        return self._reading(Part.VALUE, ",".join([self._parser.type, *options]), schema)

    def _open_reading(self, part: Part, codec: str, schema: str | None) -> SchemaReading:
        """Return a codec with the newest schema, or with a named one."""
        if schema is not None and not schema.startswith(_FILE):
            choice = parse_codec(codec)
            others = [f"{name}={value}" for name, value in choice.options.items() if name not in OF_SCHEMA]
            codec = ",".join([choice.name, *others, schema])
        opened = self._codec_of(part, codec)
        found = _name_of(opened.reader_schema) if isinstance(opened, SchemaCodec) else None
        if schema is not None and found != schema:
            raise OperatorError(
                f"{self._source}: the table has columns of a schema of {part}s that the file of the schema had before; "
                "put that file back, or create a table of another name"
            )
        return SchemaReading(opened, found)


def _name_of(schema: RegisteredSchema) -> str:
    """Return options of a codec that name a schema."""
    if schema.subject is not None and schema.version is not None and not {",", "="} & {*schema.subject}:
        return f"subject={schema.subject},version={schema.version}"
    if schema.id is not None:
        return f"schema.id={schema.id}"
    return f"{_FILE}{hashlib.sha256(schema.text.encode()).hexdigest()}"
