"""The keys of one table in a file of tables, with what each accepts."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import pyarrow as pa
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)

from ts_common.config.file_values import LIST, Seconds, Size, listed
from ts_common.suggestions import nearest
from ts_tables.claims.advance import OnLost, OnRecreated, OnTakenBack
from ts_tables.definition.parser_definition import ParserDefinition
from ts_tables.definition.values import Names, TableMode, check_codec, check_pattern
from ts_tables.files.formats import FORMATS
from ts_tables.files.layout import FileFormat
from ts_tables.files.parsed_columns import parsed_schema
from ts_tables.files.partitioning import MOST_BUCKETS, parse_term
from ts_tables.files.raw_columns import RAW_SCHEMA
from ts_tables.parsers.changes import HEADERS, IS_DELETED, KEY, RecordParser

_SORTABLE: Final = ("key", "topic", "partition", "offset", "timestamp")
_WRONG: Final = object()  # a parser that is wrong has its own message
_STRICT: Final = ConfigDict(frozen=True, extra="forbid")


def _known_columns(parser: ParserDefinition | None, mode: TableMode, include: Sequence[str]) -> pa.Schema | None:
    """Return the columns of a table, if the file has them: of a raw table, or of a parser with columns."""
    if parser is None:
        return RAW_SCHEMA
    if not parser.columns and not parser.infer:
        return None
    return parsed_schema(RecordParser(parser.open_columns(), _included(mode, include)).columns)


def _included(mode: TableMode, include: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of records that a parsed table has, in their order."""
    is_changes = mode is not TableMode.APPEND
    has = {KEY: is_changes or "key" in include, HEADERS: "headers" in include, IS_DELETED: is_changes}
    return tuple(name for name, is_included in has.items() if is_included)


def _check_terms(terms: Sequence[str], schema: pa.Schema) -> None:
    names = [parse_term(text, schema).name for text in terms]
    if len({*names}) < len(names):
        raise ValueError(f"two terms have the name {next(n for n in names if names.count(n) > 1)}")


def _check_order(columns: Sequence[str], schema: pa.Schema) -> None:
    known = _SORTABLE if schema.equals(RAW_SCHEMA) else tuple(schema.names)
    for name in columns:
        if name not in known:
            raise ValueError(f"{name!r}: a table is sorted by {', '.join(known)}{nearest(name, known)}")
        if pa.types.is_nested(schema.field(name).type):
            raise ValueError(f"{name!r}: rows have no order by a {schema.field(name).type}")


class MarksDefinition(BaseModel):
    """When an hour or a day is marked."""

    model_config = _STRICT

    after: Seconds = Field(
        "0s", validate_default=True, description="How far beyond an hour or day each Kafka partition is, to mark it."
    )
    idle: Seconds | None = Field(
        None, description="A Kafka partition without records for so long is left out. Default: it is waited for."
    )
    command: str | None = Field(
        None, min_length=1, description="Run for each hour or day, with TS_TABLE and TS_PARTITION in its environment."
    )


class TableFields(BaseModel):
    """The keys of one table."""

    model_config = _STRICT

    format: Literal["iceberg", "parquet", "json", "orc", "text", "sequence", "sequence-messagepack"] = Field(
        "iceberg",
        description="An Iceberg table, or plain files: Parquet, JSON lines, ORC, text with the values, SequenceFile "
        "with the offsets and values, or with the keys too.",
    )
    topics: Names = Field((), description="Names of topics; one of topics and pattern is given.")
    pattern: Annotated[str, AfterValidator(check_pattern)] | None = Field(
        None, description="A regular expression that matches any part of the name of a topic."
    )
    isolation: Literal["read_committed", "read_uncommitted"] = Field(
        "read_committed", description="The isolation level; it is fixed when the table is created."
    )
    tail: bool = Field(
        True,
        description="Whether it has live tails too, the records that no closed segment has yet.",
    )
    start: dict[str, dict[int, Annotated[int, Field(ge=0, lt=1 << 63)]]] = Field(
        {},
        description="First offsets by topic and partition, as of another sink. Other partitions begin at the start of "
        "their log.",
    )
    parser: ParserDefinition | None = Field(
        None, description="What makes columns of the values of records. Default: the columns of a raw table."
    )
    quarantine: str | None = Field(
        None,
        description="The table of the records that the parser refused. Default: the name with _quarantine. Of plain "
        "files it is their location.",
    )
    mode: TableMode = Field(
        TableMode.APPEND,
        description="append: rows of the parser. changes: the key of each record too, and whether it deletes the key. "
        "latest: the newest record of each key, without keys that are deleted.",
    )
    key: Annotated[str, AfterValidator(check_codec)] | None = Field(
        None, description="Of changes and latest: a codec of keys, as utf8 or registry. Default: the key is bytes."
    )
    buckets: Annotated[int, Field(ge=1, le=MOST_BUCKETS)] | None = Field(
        None,
        description="Of latest: into how many buckets the keys are divided. A run writes those again that have new "
        "records; the rows of each fit into memory. Default: 16.",
    )
    include: Annotated[tuple[Literal["key", "headers"], ...], BeforeValidator(listed), LIST] = Field(
        (),
        description="Of a parsed table: further columns of each record: key (_key; of mode append, as others have it) "
        "and headers (_headers).",
    )
    timestamp_ms: bool = Field(
        False,
        description="Of a raw table: whether a column timestampMs has the timestamp as stored, in milliseconds.",
    )
    generation: int = Field(
        1, ge=1, lt=1 << 31, description="The number of this definition among the table's generations."
    )
    generations: dict[int, dict[str, Any]] = Field(
        {},
        description="Other generations by number, each with the keys that differ: parser, mode, key, include, "
        "buckets, partition_by, sort_by, target_size, compression and rate.",
    )
    rate: Size | None = Field(
        None, ge=1 << 10, description="Bytes of segments that a run reads in a second at most. Default: no limit."
    )
    partition_by: Annotated[tuple[str, ...], BeforeValidator(listed), LIST] = Field(
        (),
        description="The partition key: day(timestamp), hour(timestamp), topic, bucket(16, key). Of a parsed table: "
        "its columns, and _timestamp and topic_name.",
    )
    sort_by: Annotated[tuple[str, ...], BeforeValidator(listed), LIST] = Field(
        (), description="Columns that each row group is sorted by."
    )
    marks: MarksDefinition | None = Field(
        None, description="Marks an hour or a day that all Kafka partitions have passed. Default: no marks."
    )
    target_size: Size = Field("256MiB", ge=1 << 20, le=4 << 30, validate_default=True, description="Size of a file.")
    commit_size: Size = Field(
        "64GiB",
        ge=1 << 20,
        validate_default=True,
        description="Bytes of segments that one commit adds at most; a run makes as many commits as it needs.",
    )
    compression: Literal["zstd", "snappy", "gzip", "lz4", "none"] | None = Field(
        None, description="Codec: of Parquet zstd by default; of JSON lines gzip by default, or zstd or none."
    )
    location: str | None = Field(
        None, description="Location of a new table. An Iceberg table has the catalog's choice by default."
    )
    file_names: str | None = Field(
        None,
        description="Names of plain files, as in {topic}/{partition}/{generation}_{kafka_partition}_{first_offset}; "
        "{partition} is the partition key. Default: the partition key, and a name from the commit.",
    )
    delimiter: Annotated[str, Field(min_length=1, max_length=16)] = Field(
        "\n", description="After each value, of text."
    )
    max_age: Seconds = Field(
        "0s",
        validate_default=True,
        description="How long rows of plain files wait, so that a file has target_size. 0s: every run shows its files.",
    )
    storage_options: dict[str, Any] | None = Field(
        None,
        description="The connection to S3 of plain files, as in docs/reader.md. Default: the archive's, or the "
        "environment.",
    )
    on_hole: Literal["wait", "pass"] = Field(
        "wait", description="What a run does at offsets that the archive lacks: wait below them, or pass them."
    )
    on_taken_back: OnTakenBack = Field(
        OnTakenBack.FAIL,
        description="What a run does with rows that an election removed from the log: fail, delete, or keep.",
    )
    on_lost: OnLost = Field(
        OnLost.FAIL,
        description="What a run does if retention removed offsets before it, or a commit is missing: fail, or pass.",
    )
    on_recreated: OnRecreated = Field(
        OnRecreated.FAIL, description="What a run does with a topic that was created again: fail, or follow."
    )
    foreign: Literal["fail", "keep"] = Field("fail", description="What a run does if others wrote rows of the table.")

    @property
    def included(self) -> tuple[str, ...]:
        """The columns of records that a parsed table has before those of its parser, in their order."""
        return _included(self.mode, self.include)

    @field_validator("partition_by", "sort_by")
    @classmethod
    def _are_columns(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        parser, mode = info.data.get("parser", _WRONG), info.data.get("mode", TableMode.APPEND)
        include = info.data.get("include", ())
        if parser is not _WRONG and (known := _known_columns(parser, mode, include)) is not None:
            check = _check_terms if info.field_name == "partition_by" else _check_order
            check(value, known)
        return value

    def check_columns(self, schema: pa.Schema) -> None:
        """Check the partition key and the sort order of a table whose parser has columns of its own.

        Raises:
            ValueError: a column or a transform is unknown.
        """
        for name, given, check in (("partition_by", self.terms, _check_terms), ("sort_by", self.sort_by, _check_order)):
            try:
                check(given, schema)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error

    def names_of(self, name: str) -> tuple[str, ...]:
        """Return the names that catalog and claims can have of a table, its refused records and its generations."""
        has_refused = self.format == "iceberg" and self.parser is not None
        own = (name, *([self.quarantine or f"{name}_quarantine"] if has_refused else []))
        numbers = {self.generation, *self.generations} if self.generations else ()
        return (*own, *(f"{each}_g{number}" for each in own for number in sorted(numbers)))

    @property
    def terms(self) -> tuple[str, ...]:
        """The partition key."""
        return (f"bucket({self.buckets or 16}, {KEY})",) if self.mode is TableMode.LATEST else self.partition_by

    @property
    def codec(self) -> str:
        """The compression, or the default of the format."""
        return self.compression or FORMATS[self.form].codecs[0]

    @property
    def form(self) -> FileFormat:
        """The format of its files."""
        return FileFormat.PARQUET if self.format == "iceberg" else FileFormat(self.format)
