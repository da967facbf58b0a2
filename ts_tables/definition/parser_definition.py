"""How a table's records are parsed, as the file of tables has it."""

import hashlib
import json
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from ts_common.config.plugins import load_class
from ts_common.errors import ConfigurationError, TieredStorageError
from ts_common.suggestions import nearest
from ts_reader.schemas.choice import NAMES, PLAIN
from ts_tables.files.parsed_columns import parsed_schema
from ts_tables.parsers.changes import base_of
from ts_tables.parsers.contract import Parser
from ts_tables.parsers.delimited import DelimitedParser
from ts_tables.parsers.expression import ExpressionParser
from ts_tables.parsers.json_values import JsonParser, OnType
from ts_tables.parsers.parser_columns import Column, make_column, parse_type
from ts_tables.parsers.thrift.idl import read_struct
from ts_tables.parsers.thrift.parser import ThriftParser, parse_options

JSON, DELIMITED, EXPRESSION, THRIFT = "json", "delimited", "expression", "thrift"
_WITH_COLUMNS: Final = (JSON, DELIMITED, EXPRESSION)
_CODECS: Final = tuple(name for name in NAMES if name != JSON)
_TYPES: Final = (*_WITH_COLUMNS, THRIFT, *_CODECS)
OF_SCHEMA: Final = ("subject", "version", "schema.id", "schema.file")  # options that name the schema of a codec
_VERSION: Final = 1  # of what the built-in parsers make of equal records


def has_schema(codec: str) -> bool:
    """Return whether a codec of this name has the schema of one topic."""
    return codec in _CODECS and codec not in PLAIN


def _kind(value: str) -> str:
    if value.strip() != "json":
        parse_type(value)
    return value


def _column(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


def _type(value: str) -> str:
    if value not in _TYPES and ":" not in value:
        raise ValueError(
            f"{value!r} is unknown{nearest(value, _TYPES)}; accepted are {', '.join(_TYPES)}, module:Class"
        )
    return value


class ColumnDefinition(BaseModel):
    """One column of a parser."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Annotated[str, AfterValidator(_kind)] = Field(
        description="boolean, int, long, float, double, decimal(10,2), string, binary, date, timestamp, json, "
        "list<...>, map<string, ...> or struct<name: ...>."
    )
    path: tuple[str, ...] | None = Field(
        None, min_length=1, description="Names of the JSON members that lead to the value. Default: the column's name."
    )
    required: bool = Field(False, description="Whether a record without a value is refused.")
    unit: Literal["s", "ms", "us"] | None = Field(
        None, description="Of a timestamp that is a number since 1970. Default: it is a text of ISO 8601."
    )


_Columns = Annotated[
    dict[str, Annotated[ColumnDefinition, BeforeValidator(_column)]],
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {"anyOf": [{"type": "string"}, ColumnDefinition.model_json_schema()]},
        }
    ),
]


class ParserDefinition(BaseModel):
    """What makes columns of the values of records."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Annotated[str, AfterValidator(_type)] = Field(
        description="json, delimited, expression, thrift, a codec of values as in docs/reader.md, or a class "
        "module:Class."
    )
    columns: _Columns = Field({}, description="Names and types of the columns, of json, delimited and expression.")
    infer: bool = Field(False, description="Of json: whether members without a column get one when they are found.")
    on_type: OnType = Field(
        OnType.COLUMN,
        description="Of infer: whether a value of another type than its member had first gets a column of its own, or "
        "its record is refused.",
    )
    delimiter: Annotated[str, Field(min_length=1, max_length=16)] | None = Field(
        None, description="Between the fields of a line, of delimited."
    )
    quote: Annotated[str, Field(min_length=1, max_length=1)] | None = Field(
        None, description="Around fields that contain delimiters, of delimited. Default: no field is quoted."
    )
    expression: str | None = Field(
        None, description="A regular expression of RE2 whose named groups are the columns, of expression."
    )
    options: dict[str, str] = Field({}, description="Options of a codec, as schema.file, of thrift, or of a class.")

    @model_validator(mode="after")
    def _is_whole(self) -> "ParserDefinition":
        for is_wrong, problem in self._problems():
            if is_wrong:
                raise ValueError(problem)
        if self.has_columns:
            parsed_schema(self.open_columns().columns)
        if self.type == THRIFT:
            parse_options(self.options)
        return self

    def _problems(self) -> Iterator[tuple[bool, str]]:
        """Yield whether a rule is broken, and how; the first broken one is reported."""
        is_json, has_columns, other_type = self.type == JSON, self.has_columns, self.on_type is not OnType.COLUMN
        yield (self.infer or other_type) and not is_json, f"infer, on_type: {self.type} has none"
        yield other_type and not self.infer, "on_type: it is for infer: true"
        yield (
            has_columns != bool(self.columns) and not self.infer,
            f"columns: {self.type} {'needs some' if has_columns else 'has its own'}",
        )
        for name, kind in (("delimiter", DELIMITED), ("quote", DELIMITED), ("expression", EXPRESSION)):
            yield getattr(self, name) is not None and self.type != kind, f"{name}: {self.type} has none"
        for name, kind in (("delimiter", DELIMITED), ("expression", EXPRESSION)):
            yield getattr(self, name) is None and self.type == kind, f"{name}: {kind} needs one"
        is_long = self.quote is not None and len(self.delimiter or "") != 1
        yield is_long, "delimiter: with quotes it is one character"
        yield has_columns and bool(self.options), f"options: {self.type} has none"
        with_path = next((name for name, each in self.columns.items() if each.path), None)
        yield with_path is not None and not is_json, f"columns.{with_path}.path: only json has paths"

    @property
    def is_codec(self) -> bool:
        """Whether the values are decoded by a codec."""
        return self.type in _CODECS

    @property
    def has_columns(self) -> bool:
        """Whether the file has the columns."""
        return self.type in _WITH_COLUMNS

    def open_columns(self) -> Parser:
        """Return a parser whose columns the file has.

        Raises:
            ValueError: the columns or the expression are wrong.
        """
        columns = [self._column(name, each) for name, each in self.columns.items()]
        match self.type:
            case "json":
                return JsonParser(columns, infers=self.infer, on_type=self.on_type)
            case "delimited":
                return DelimitedParser(columns, self.delimiter or "", self.quote)
            case _:
                return ExpressionParser(columns, self.expression or "")

    def open_thrift(self, source: str) -> Parser:
        """Return a parser of Thrift; its IDL is read.

        Args:
            source: of the definition, for messages.

        Raises:
            ConfigurationError: the IDL cannot be read, or a column cannot have a type of the struct.
        """
        options = parse_options(self.options)
        try:
            return ThriftParser(read_struct(options.idl, options.struct), options.protocol)
        except ValueError as error:
            raise ConfigurationError(source, [f"options.idl: {error}"]) from error

    def open_class(self, source: str) -> Parser:
        """Return a parser of the user.

        Args:
            source: of the definition, for messages.

        Raises:
            ConfigurationError: the class or an option is wrong.
        """
        # mypy rejects an abstract class here; the loaded one is concrete, and its constructor is documented.
        found: type[Parser] = load_class(self.type, Parser, source)  # type: ignore[type-abstract]
        try:
            return found(dict(self.options))  # type: ignore[call-arg]
        except TieredStorageError:
            raise
        except Exception as error:  # the class is the user's code
            raise ConfigurationError(source, [f"{self.type}: {type(error).__name__}: {error}"]) from error

    def identity(self, parser: Parser, *further: str | None) -> str:
        """Return a text that is equal for parsers that make equal rows of equal records.

        Args:
            parser: as it was opened.
            further: what else decides the rows.
        """
        fields: dict[str, Any] = self.model_dump(mode="json", exclude_defaults=True)
        columns: list[list[str]] = []
        if self.is_codec:  # the state has the columns and the schemas
            fields["options"] = {name: value for name, value in self.options.items() if name not in OF_SCHEMA}
        elif self.type == THRIFT:  # wherever the IDL is, and whatever else it has
            fields["options"] = parser.layout
        else:
            columns = [[name, kind] for name, kind in base_of(parser)]
        text = json.dumps([_VERSION, fields, columns, further], sort_keys=True)
        return f"{self.type}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    @staticmethod
    def _column(name: str, given: ColumnDefinition) -> Column:
        try:
            return make_column(name, given.type, given.path, required=given.required, unit=given.unit)
        except ValueError as error:
            raise ValueError(f"columns.{name}: {error}") from error
