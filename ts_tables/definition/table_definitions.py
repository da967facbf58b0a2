"""What a file of tables has: the archive, the catalog, and each table, with what is accepted."""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import permutations
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import pyarrow as pa
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from ts_common.model import is_topic_name
from ts_common.schemas.choice import parse_codec
from ts_common.suggestions import nearest
from ts_tables.claims.advance import OnHole, OnLost, OnRecreated, OnTakenBack
from ts_tables.definition.parser_definition import ParserDefinition, has_schema
from ts_tables.definition.places import check_absolute, check_catalog, check_store, is_within, overlaps
from ts_tables.definition.sizes import Seconds, Size
from ts_tables.files.file_names import check_template
from ts_tables.files.formats import FORMATS
from ts_tables.files.layout import RECORD_FORMATS, FileFormat
from ts_tables.files.parsed_columns import parsed_schema
from ts_tables.files.partitioning import MOST_BUCKETS, parse_term
from ts_tables.files.raw_columns import RAW_SCHEMA
from ts_tables.parsers.changes import KEY, ChangesParser

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}(\.[A-Za-z_][A-Za-z0-9_]{0,127})+")
_SORTABLE: Final = ("key", "topic", "partition", "offset", "timestamp")
_OF_GENERATION: Final = (
    "parser",
    "mode",
    "key",
    "buckets",
    "partition_by",
    "sort_by",
    "target_size",
    "compression",
    "rate",
)
_WRONG: Final = object()  # a parser that is wrong has its own message
_STRICT: Final = ConfigDict(frozen=True, extra="forbid")


class Mode(StrEnum):
    """Which rows a table has."""

    APPEND = "append"
    CHANGES = "changes"
    LATEST = "latest"


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _topic(value: str) -> str:
    if not is_topic_name(value):
        raise ValueError(f"{value!r} is no name of a topic; `pattern` accepts a regular expression")
    return value


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"{value!r} is no regular expression: {error}") from error
    return value


def _table_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(f"{value!r} is no name of a table; namespace.name is expected, of letters, digits and _")
    return value


def _codec(value: str) -> str:
    parse_codec(value)
    return value


def _known_columns(parser: ParserDefinition | None, mode: Mode) -> pa.Schema | None:
    """Return the columns of a table, if the file has them: of a raw table, or of a parser with columns."""
    if parser is None:
        return RAW_SCHEMA
    if not parser.columns and not parser.infer:
        return None
    opened = parser.open_columns()
    return parsed_schema((opened if mode is Mode.APPEND else ChangesParser(opened)).columns)


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


def _texts(value: Any) -> Any:
    """Return properties as texts: YAML makes numbers and booleans of some."""
    if not isinstance(value, Mapping):
        return value
    return {
        str(key): str(item).lower() if isinstance(item, bool) else item if isinstance(item, str) else str(item)
        for key, item in value.items()
    }


def _spark_settings(value: Any) -> Any:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not str(key).startswith("spark.") or isinstance(item, Mapping | list):
                raise ValueError(f"{key}: a setting of Spark is expected, as spark.master: local[4]")
    return _texts(value)


# What the validators above accept: one text for a list, and properties that YAML reads as numbers or booleans.
_LIST: Final = WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]})
_PROPERTIES: Final = WithJsonSchema(
    {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
)

Names = Annotated[tuple[Annotated[str, AfterValidator(_topic)], ...], BeforeValidator(_listed), _LIST]


class ArchiveDefinition(BaseModel):
    """Where the archive is."""

    model_config = _STRICT

    config: Path | None = Field(None, description="The agents' <clusterId>.properties.")
    url: Annotated[str, AfterValidator(check_store)] | None = Field(
        None, description="Location of the store, as in s3://bucket/base/prefix; with cluster."
    )
    cluster: str | None = Field(None, description="The cluster's id, with url.")
    prefix_entropy_bits: int | None = Field(
        None, ge=0, description="Number of entropy bits of the keys, with url. Default: as the archive has it."
    )
    registry: str | None = Field(
        None, description="Schemas of parsers: the URL of a registry, or its archived topic, as in topic:_schemas."
    )
    storage_options: dict[str, Any] | None = Field(
        None, description="The connection to S3, with url, as in docs/reader.md. Default: the environment."
    )

    @model_validator(mode="after")
    def _is_one(self) -> "ArchiveDefinition":
        named = [name for name in ("url", "cluster", "prefix_entropy_bits", "storage_options") if getattr(self, name)]
        if self.config is not None and named:
            raise ValueError(f"config sets {', '.join(named)} too: give one of the two")
        if self.config is None and (self.url is None or self.cluster is None):
            raise ValueError("config is needed, or url and cluster")
        return self


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


class TableDefinition(BaseModel):
    """One table."""

    model_config = _STRICT

    format: Literal["iceberg", "parquet", "json", "orc", "text", "sequence", "sequence-messagepack"] = Field(
        "iceberg",
        description="An Iceberg table, or plain files: Parquet, JSON lines, ORC, text with the values, SequenceFile "
        "with the offsets and values, or with the keys too.",
    )
    topics: Names = Field((), description="Names of topics; one of topics and pattern is given.")
    pattern: Annotated[str, AfterValidator(_pattern)] | None = Field(
        None, description="A regular expression that matches any part of the name of a topic."
    )
    isolation: Literal["read_committed", "read_uncommitted"] = Field(
        "read_committed", description="The isolation level; it is fixed when the table is created."
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
    mode: Mode = Field(
        Mode.APPEND,
        description="append: rows of the parser. changes: the key of each record too, and whether it deletes the key. "
        "latest: the newest record of each key, without keys that are deleted.",
    )
    key: Annotated[str, AfterValidator(_codec)] | None = Field(
        None, description="Of changes and latest: a codec of keys, as utf8 or registry. Default: the key is bytes."
    )
    buckets: Annotated[int, Field(ge=1, le=MOST_BUCKETS)] | None = Field(
        None,
        description="Of latest: into how many buckets the keys are divided. A run writes those again that have new "
        "records; the rows of each fit into memory. Default: 16.",
    )
    generation: int = Field(
        1, ge=1, lt=1 << 31, description="The number of this definition among the table's generations."
    )
    generations: dict[int, dict[str, Any]] = Field(
        {},
        description="Other generations by number, each with the keys that differ: parser, mode, key, buckets, "
        "partition_by, sort_by, target_size, compression and rate.",
    )
    rate: Size | None = Field(
        None, ge=1 << 10, description="Bytes of segments that a run reads in a second at most. Default: no limit."
    )
    partition_by: Annotated[tuple[str, ...], BeforeValidator(_listed), _LIST] = Field(
        (),
        description="The partition key: day(timestamp), hour(timestamp), topic, bucket(16, key). Of a parsed table: "
        "its columns, and _timestamp and _topic.",
    )
    sort_by: Annotated[tuple[str, ...], BeforeValidator(_listed), _LIST] = Field(
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
    on_hole: OnHole = Field(
        OnHole.WAIT, description="What a run does at offsets that the archive lacks: wait below them, or pass them."
    )
    on_taken_back: OnTakenBack = Field(
        OnTakenBack.FAIL,
        description="What a run does with rows that an election removed from the log: fail, delete, or keep.",
    )
    on_lost: OnLost = Field(
        OnLost.FAIL, description="What a run does if retention removed offsets before it: fail, or pass."
    )
    on_recreated: OnRecreated = Field(
        OnRecreated.FAIL, description="What a run does with a topic that was created again: fail, or follow."
    )
    foreign: Literal["fail", "keep"] = Field("fail", description="What a run does if others wrote rows of the table.")

    @model_validator(mode="after")
    def _is_whole(self) -> "TableDefinition":
        if bool(self.topics) == (self.pattern is not None):
            raise ValueError("topics or pattern is needed, and not both")
        if len({*self.topics}) < len(self.topics):
            raise ValueError("topics: a name is given twice")
        if other := next((name for name in self.start if not self._has(name)), None):
            raise ValueError(f"start: the table has no topic {other}{nearest(other, self.topics)}")
        self._check_format()
        codecs = ["" if self.parser is None else self.parser.type, (self.key or "").partition(",")[0]]
        if len(self.topics) != 1 and (codec := next(filter(has_schema, codecs), None)):
            raise ValueError(f"topics: the schema of {codec} is of one topic; name it")
        if self.mode is not Mode.APPEND and self.parser is None:
            raise ValueError(f"mode: {self.mode} needs a parser; a raw table has keys, and NULL for a tombstone")
        if self.key is not None and self.mode is Mode.APPEND:
            raise ValueError("key: it is for mode: changes, or latest")
        self._check_latest()
        if self.marks is not None and not any(re.match(r"\s*(hour|day)\s*\(", term) for term in self.partition_by):
            raise ValueError("marks: partition_by needs an hour or a day, as hour(timestamp)")
        if self.parser is None and self.quarantine is not None:
            raise ValueError("quarantine: without a parser, no record is refused")
        if self.generation in self.generations:
            raise ValueError(f"generations: {self.generation} is the number of the definition itself")
        for number in self.generations:
            self.of_generation(number)
        return self

    def of_generation(self, number: int) -> "TableDefinition":
        """Return the definition of a generation.

        Args:
            number: of it.

        Raises:
            ValueError: the table has no such generation, or it is wrong.
        """
        if number == self.generation:
            return self
        given = self.generations.get(number)
        if given is None:
            numbers = sorted({self.generation, *self.generations})
            raise ValueError(f"generation {number}: the table has {', '.join(map(str, numbers))}")
        label = f"generations.{number}"
        if number < 1 or (unknown := next((key for key in given if key not in _OF_GENERATION), None)) is not None:
            problem = "a number from 1 on is expected" if number < 1 else f"{unknown}: it is not of a generation"
            raise ValueError(f"{label}: {problem}; {', '.join(_OF_GENERATION)} are")
        own = {name: getattr(self, name) for name in self.model_fields_set - {"generations", "generation"}}
        if self.format != "iceberg":
            own["location"] = f"{(self.location or '').rstrip('/')}_g{number}"
        else:
            own.pop("location", None)
        if self.quarantine is not None and self.format != "iceberg":
            own["quarantine"] = f"{self.quarantine.rstrip('/')}_g{number}"
        if given.get("mode") not in {None, self.mode} and "key" not in given and given["mode"] == Mode.APPEND:
            own.pop("key", None)
        try:
            return TableDefinition.model_validate({**own, **given, "generation": number})
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}".lstrip(": ") for each in error.errors()]
            raise ValueError(f"{label}: {'; '.join(problems)}") from error

    @field_validator("partition_by", "sort_by")
    @classmethod
    def _are_columns(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        parser, mode = info.data.get("parser", _WRONG), info.data.get("mode", Mode.APPEND)
        if parser is not _WRONG and (known := _known_columns(parser, mode)) is not None:
            check = _check_terms if info.field_name == "partition_by" else _check_order
            check(value, known)
        return value

    def check_columns(self, schema: pa.Schema) -> None:
        """Check the partition key and the sort order of a table whose parser has columns of its own.

        Args:
            schema: of the table.

        Raises:
            ValueError: a column or a transform is unknown.
        """
        for name, given, check in (("partition_by", self.terms, _check_terms), ("sort_by", self.sort_by, _check_order)):
            try:
                check(given, schema)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error

    def _has(self, topic: str) -> bool:
        return topic in self.topics if self.pattern is None else re.search(self.pattern, topic) is not None

    def _check_latest(self) -> None:
        """Check what a table of newest records does not have.

        Raises:
            ValueError: the table has it.
        """
        if self.mode is not Mode.LATEST:
            if self.buckets is not None:
                raise ValueError("buckets: they are for mode: latest")
            return
        if self.format != "iceberg":
            raise ValueError(f"mode: latest needs an Iceberg table; format is {self.format}")
        if self.partition_by:
            raise ValueError("partition_by: a table of mode: latest is divided by `buckets` of its key")
        for name, value, only in (
            ("on_hole", self.on_hole, OnHole.WAIT),
            ("on_recreated", self.on_recreated, OnRecreated.FAIL),
            ("foreign", self.foreign, "fail"),
        ):
            if value != only:
                raise ValueError(f"{name}: mode: latest has only {only}: an older record must not follow a newer")
        if self.on_taken_back is OnTakenBack.KEEP:
            raise ValueError("on_taken_back: mode: latest has fail and delete; keep would need two rows of a key")

    @property
    def locations(self) -> tuple[str, ...]:
        """The locations that it names or has: of plain files also that of the refused records, of each generation."""
        if self.location is None:
            return ()
        if self.format == "iceberg":
            return (self.location,)
        own = self.location.rstrip("/")
        refused = () if self.parser is None else (self.quarantine or f"{own}_quarantine",)
        others = (each for number in self.generations for each in self.of_generation(number).locations)
        return (own, *refused, *others)

    @property
    def terms(self) -> tuple[str, ...]:
        """The partition key."""
        return (f"bucket({self.buckets or 16}, {KEY})",) if self.mode is Mode.LATEST else self.partition_by

    def _check_format(self) -> None:
        """Check what only one of the formats has.

        Raises:
            ValueError: the table has it, and another format.
        """
        codecs = FORMATS[self._form].codecs
        if self.compression not in {None, *codecs}:
            raise ValueError(f"compression: {self.format} has {', '.join(codecs)}, and not {self.compression}")
        if self.delimiter != "\n" and self.format != "text":
            raise ValueError(f"delimiter: {self.format} has none")
        if self._form in RECORD_FORMATS:
            self._check_records()
        if self.file_names is not None:
            self._check_names(self.file_names)
        if self.format != "iceberg":
            if self.location is None:
                raise ValueError("location: plain files need one, as in s3://lake/orders")
            check_store(self.location, label="location: ")
            if self.quarantine is not None:
                check_store(self.quarantine, label="quarantine: ")
            if self.foreign != "fail":
                raise ValueError("foreign: plain files have no such option; verify names files of others")
            return
        if self.quarantine is not None:
            _table_name(self.quarantine)
        if self.location is not None:
            check_absolute("location", self.location)
        if self.max_age:
            raise ValueError("max_age: an Iceberg table has none; compact merges its small files")
        if self.storage_options is not None:
            raise ValueError("storage_options: an Iceberg table has those of the catalog, as s3.endpoint")

    @property
    def codec(self) -> str:
        """The compression, or the default of the format."""
        return self.compression or FORMATS[self._form].codecs[0]

    @property
    def _form(self) -> FileFormat:
        return FileFormat.PARQUET if self.format == "iceberg" else FileFormat(self.format)

    def _check_records(self) -> None:
        """Check what files of records do not have.

        Raises:
            ValueError: the table has it.
        """
        if self.parser is not None:
            raise ValueError(
                f"parser: files of {self.format} have the values as they are; parquet, json and orc have columns"
            )
        if self.sort_by:
            raise ValueError(f"sort_by: records of {self.format} are in the order of their offsets")

    def _check_names(self, template: str) -> None:
        """Check the names of files.

        Raises:
            ValueError: they are wrong.
        """
        if self.format == "iceberg":
            raise ValueError("file_names: an Iceberg table names its files itself")
        try:
            check_template(template, bool(self.partition_by))
        except ValueError as error:
            raise ValueError(f"file_names: {error}") from error


class TablesFile(BaseModel):
    """The tables of a cluster."""

    model_config = _STRICT

    archive: ArchiveDefinition = Field(description="Where the archive is.")
    catalog: Annotated[dict[str, str], BeforeValidator(_texts), AfterValidator(check_catalog), _PROPERTIES] = Field(
        {}, description="The Iceberg catalog: pyiceberg's own properties, as type, uri and warehouse."
    )
    spark: Annotated[dict[str, str], BeforeValidator(_spark_settings), _PROPERTIES] = Field(
        {}, description="Settings of the Spark session that compacts tables, as spark.master and spark.jars.packages."
    )
    tables: dict[Annotated[str, AfterValidator(_table_name)], TableDefinition] = Field(
        description="By namespace and name.", min_length=1
    )

    @model_validator(mode="after")
    def _is_apart(self) -> "TablesFile":
        locations = [each.rstrip("/") for table in self.tables.values() for each in table.locations]
        if twice := next((each for each in locations if locations.count(each) > 1), None):
            raise ValueError(f"two tables have the location {twice}")
        for outer, inner in permutations(locations, 2):
            if is_within(inner, outer):
                raise ValueError(f"{inner} is below {outer}, and readers of that table would find its files")
        names = [
            each
            for name, table in self.tables.items()
            if table.format == "iceberg"
            for each in (name, *([] if table.parser is None else [table.quarantine or f"{name}_quarantine"]))
        ]
        if twice := next((each for each in names if names.count(each) > 1), None):
            raise ValueError(f"two tables have the name {twice}; one of them is that of refused records")
        if self.archive.url is not None and (found := self.misplaced([self.archive.url])):
            raise ValueError("; ".join(found))
        return self

    def misplaced(self, archive: Iterable[str]) -> list[str]:
        """Return a sentence for each place of tables that is in an archive, or contains it.

        Args:
            archive: the URLs of its stores.
        """
        locations = [each for table in self.tables.values() for each in table.locations]
        return overlaps(archive, self.catalog.get("warehouse"), locations)
