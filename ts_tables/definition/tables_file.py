r"""The file that describes the tables of a cluster, `tables.yaml`.

::

    archive:
      config: /etc/ts-uploader/prod.properties      # the agents' file; or url and cluster
    catalog:                                        # pyiceberg's own configuration
      type: sql
      uri: sqlite:////var/lib/ts-uploader/tables.db
      warehouse: s3://lake/warehouse
    tables:
      backup.orders:
        topics: [orders]
        partition_by: [day(timestamp)]
      backup.clicks:
        pattern: clicks\..*
        partition_by: [hour(timestamp), topic]
        sort_by: [offset]
        on_hole: pass
      export.orders:
        topics: [orders]
        format: json                                # plain files: no catalog
        location: s3://lake/export/orders
        max_age: 1h
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from ts_common.errors import ConfigurationError
from ts_common.model import is_topic_name
from ts_common.suggestions import nearest
from ts_tables.claims.advance import OnHole, OnLost, OnRecreated, OnTakenBack
from ts_tables.definition.sizes import Seconds, Size
from ts_tables.files.json_lines import CODECS
from ts_tables.files.partitioning import parse_term
from ts_tables.files.raw_columns import RAW_SCHEMA

MOST_BYTES: Final = 4 << 20  # of the file
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}(\.[A-Za-z_][A-Za-z0-9_]{0,127})+")
_INSIDE: Final = re.compile(r"(dict|literal|constrained)?\[.*\]")  # pydantic's names of parts of a type
_SORTABLE: Final = ("key", "topic", "partition", "offset", "timestamp")
_STRICT: Final = ConfigDict(frozen=True, extra="forbid")


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _topic(value: str) -> str:
    if not is_topic_name(value):
        raise ValueError(f"{value!r} is no name of a topic; `pattern` takes a regular expression")
    return value


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"{value!r} is no regular expression: {error}") from error
    return value


def _term(value: str) -> str:
    parse_term(value, RAW_SCHEMA)
    return value


def _column(value: str) -> str:
    if value not in _SORTABLE:
        raise ValueError(f"{value!r}: a table is sorted by {', '.join(_SORTABLE)}{nearest(value, _SORTABLE)}")
    return value


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


Names = Annotated[tuple[Annotated[str, AfterValidator(_topic)], ...], BeforeValidator(_listed)]


class ArchiveDefinition(BaseModel):
    """Where the archive is."""

    model_config = _STRICT

    config: Path | None = Field(None, description="The agents' <clusterId>.properties.")
    url: str | None = Field(None, description="Location of the store, as in s3://bucket/base/prefix; with cluster.")
    cluster: str | None = Field(None, description="The cluster's id, with url.")
    prefix_entropy_bits: int | None = Field(
        None, ge=0, description="Number of entropy bits of the keys, with url. Default: as the archive has it."
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


class TableDefinition(BaseModel):
    """One table."""

    model_config = _STRICT

    format: Literal["iceberg", "parquet", "json"] = Field(
        "iceberg", description="An Iceberg table, or plain files: Parquet, or JSON lines."
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
    partition_by: Annotated[tuple[Annotated[str, AfterValidator(_term)], ...], BeforeValidator(_listed)] = Field(
        (), description="The partition key: day(timestamp), hour(timestamp), topic, bucket(16, key)."
    )
    sort_by: Annotated[tuple[Annotated[str, AfterValidator(_column)], ...], BeforeValidator(_listed)] = Field(
        (), description="Columns that each row group is sorted by."
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
        self._check_format()
        names = [parse_term(text, RAW_SCHEMA).name for text in self.partition_by]
        if len({*names}) < len(names):
            raise ValueError(f"partition_by: two terms have the name {next(n for n in names if names.count(n) > 1)}")
        return self

    def _check_format(self) -> None:
        """Check what only one of the formats has.

        Raises:
            ValueError: the table has it, and another format.
        """
        if self.format == "json" and self.compression not in {None, *CODECS}:
            raise ValueError(f"compression: JSON lines have {', '.join(CODECS)}, and not {self.compression}")
        if self.format != "iceberg":
            if self.location is None:
                raise ValueError("location: plain files need one, as in s3://lake/orders")
            if self.foreign != "fail":
                raise ValueError("foreign: plain files have no such option; verify names files of others")
            return
        if self.max_age:
            raise ValueError("max_age: an Iceberg table has none; compact merges its small files")
        if self.storage_options is not None:
            raise ValueError("storage_options: an Iceberg table has those of the catalog, as s3.endpoint")

    @property
    def codec(self) -> str:
        """The compression, or the default of the format."""
        return self.compression or ("gzip" if self.format == "json" else "zstd")


def _table_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(f"{value!r} is no name of a table; namespace.name is expected, of letters, digits and _")
    return value


class TablesFile(BaseModel):
    """The tables of a cluster."""

    model_config = _STRICT

    archive: ArchiveDefinition = Field(description="Where the archive is.")
    catalog: Annotated[dict[str, str], BeforeValidator(_texts)] = Field(
        {}, description="The Iceberg catalog: pyiceberg's own properties, as type, uri and warehouse."
    )
    spark: Annotated[dict[str, str], BeforeValidator(_spark_settings)] = Field(
        {}, description="Settings of the Spark session that compacts tables, as spark.master and spark.jars.packages."
    )
    tables: dict[Annotated[str, AfterValidator(_table_name)], TableDefinition] = Field(
        description="By namespace and name.", min_length=1
    )

    @model_validator(mode="after")
    def _is_apart(self) -> "TablesFile":
        locations = [table.location.rstrip("/") for table in self.tables.values() if table.location]
        if twice := next((each for each in locations if locations.count(each) > 1), None):
            raise ValueError(f"two tables have the location {twice}")
        return self


def read_tables_file(path: Path) -> TablesFile:
    """Return the tables of a file.

    Raises:
        ConfigurationError: it is missing, is no YAML, or is wrong; with every problem.
    """
    return parse_tables(read_content(path), str(path))


def with_settings(content: Any, settings: Sequence[str], table: str | None, source: str) -> Any:
    """Return the values of a file with further ones.

    Args:
        content: of the file.
        settings: each `archive.KEY=VALUE`, `catalog.KEY=VALUE`, `spark.KEY=VALUE` or, of a table, `KEY=VALUE`; a value
            is YAML.
        table: the one that is named; None if none is, or several are.
        source: for messages.

    Raises:
        ConfigurationError: a setting has another form, or is of a table and none is named.
    """
    found = {name: dict(part) if isinstance(part, Mapping) else part for name, part in dict(content).items()}
    problems = []
    for setting in settings:
        key, equals, text = setting.partition("=")
        part, dot, inner = key.partition(".")
        try:
            value = YAML(typ="safe", pure=True).load(text)
        except (YAMLError, ValueError) as error:
            problems.append(f"{setting}: the value is no YAML: {' '.join(str(error).split())[:200]}")
            continue
        if not equals:
            problems.append(f"{setting}: KEY=VALUE is expected")
        elif dot and part in {"archive", "catalog"} and inner:
            found[part] = {**(found.get(part) or {}), inner: value}
        elif part == "spark" and inner:
            found["spark"] = {**(found.get("spark") or {}), key: value}  # each name of Spark's begins so
        elif table is None:
            problems.append(f"{setting}: name one table, or begin the key with archive., catalog. or spark.")
        else:
            tables = dict(found.get("tables") or {})
            tables[table] = {**(tables.get(table) or {}), key: value}
            found["tables"] = tables
    if problems:
        raise ConfigurationError(source, problems)
    return found


def read_content(path: Path) -> Any:
    """Return the values of a YAML file.

    Raises:
        ConfigurationError: it is missing, or is no YAML.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise ConfigurationError(str(path), ["there is no such file"]) from None
    except OSError as error:
        raise ConfigurationError(str(path), [f"cannot read the file: {error}"]) from error
    if len(data) > MOST_BYTES:
        raise ConfigurationError(str(path), [f"it has more than {MOST_BYTES} bytes"])
    try:
        return YAML(typ="safe", pure=True).load(data.decode())
    except (YAMLError, ValueError, RecursionError) as error:
        raise ConfigurationError(str(path), [f"it is no YAML: {' '.join(str(error).split())[:500]}"]) from error


def parse_tables(content: Any, source: str) -> TablesFile:
    """Return tables by the values of a file.

    Args:
        content: of the file.
        source: its name for messages.

    Raises:
        ConfigurationError: with every problem.
    """
    if not isinstance(content, Mapping):
        raise ConfigurationError(source, ["archive, catalog and tables are expected"])
    lacking = [] if _has_catalog(content) else ["catalog: it is missing, and there are Iceberg tables"]
    try:
        found = TablesFile.model_validate(content)
    except ValidationError as error:
        raise ConfigurationError(source, sorted([*_problems(error), *lacking])) from error
    if lacking:
        raise ConfigurationError(source, lacking)
    return found


def _has_catalog(content: Mapping[str, Any]) -> bool:
    """Return whether a file has a catalog, or needs none: all its tables have plain files."""
    tables = content.get("tables")
    formats = (
        [table.get("format") for table in tables.values() if isinstance(table, Mapping)]
        if isinstance(tables, Mapping)
        else []
    )
    return bool(content.get("catalog")) or (bool(formats) and {*formats} <= {"parquet", "json"})


def _problems(error: ValidationError) -> Iterator[str]:
    """Yield a message for each mistake, with its place in the file."""
    shapes: Mapping[int, type[BaseModel]] = {1: TablesFile, 2: ArchiveDefinition, 3: TableDefinition}
    for problem in error.errors(include_url=False):
        place = [str(each) for each in problem["loc"] if not _INSIDE.fullmatch(str(each))]
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            shape = shapes.get(len(place), TablesFile)
            message = f"this name is unknown{nearest(place[-1], shape.model_fields)}"
        elif problem["type"] == "missing":
            message = "it is missing"
        yield f"{'.'.join(place) or 'the file'}: {message[0].lower()}{message[1:]}"


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of the file, for editors."""
    return TablesFile.model_json_schema()
