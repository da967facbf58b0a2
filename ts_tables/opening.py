"""How a definition becomes a table: its target, its parser and its planner."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from ts_common.errors import ConfigurationError
from ts_common.model import TopicPartition
from ts_common.store.factory import Scheme, parse_location
from ts_reader import Archive
from ts_reader.decode.arrow_schema import MILLISECONDS
from ts_reader.place import connection_of
from ts_reader.query.query import OnHole, Query, by_location
from ts_tables.claims.advance import OnTakenBack, Policy
from ts_tables.claims.state import TableState
from ts_tables.definition.file_definition import TablesFile
from ts_tables.definition.opened_parser import ParserOpener
from ts_tables.definition.table_definitions import TableDefinition
from ts_tables.definition.values import TableMode
from ts_tables.files.file_names import FileNames, without_key
from ts_tables.files.fitting import FittingParser
from ts_tables.files.formats import FORMATS
from ts_tables.files.layout import FileFormat, Layout
from ts_tables.files.parsed_columns import PARSED_REQUIRED, parsed_schema
from ts_tables.files.partitioning import parse_term
from ts_tables.files.raw_columns import PARSER, RAW_SCHEMA, REASON, RECORD_SCHEMA, REFUSED_SCHEMA, REQUIRED
from ts_tables.generations import CATALOG, Generations
from ts_tables.iceberg.target import IcebergTarget, OnForeign, TableName
from ts_tables.marks import Marking
from ts_tables.parsers.changes import IS_DELETED, KEY, base_of
from ts_tables.parsers.contract import Parser
from ts_tables.parsing import Parsing
from ts_tables.plain.staging import Place
from ts_tables.plain.target import PlainTarget
from ts_tables.planning.locations import LocatedPlanner
from ts_tables.targets import SchemaOf, Target

_SECONDS: Final = 60  # a commit of a table with a rate reads what it may read in this time


@dataclass(frozen=True, slots=True)
class Parts:
    """A generation of a table and what it needs.

    Attributes:
        place: the name of the table in the catalog.
        base: the name of the table in the file, without a number.
        parsing: of its records; None of a raw table.
        marking: of it; None without marks.
    """

    definition: TableDefinition
    place: str
    base: str
    target: Target
    planner: LocatedPlanner
    parsing: Parsing | None
    marking: Marking | None = None

    def first_state(self, cluster: str) -> TableState:
        """Return the state of a new table."""
        read_committed, generation = self.definition.isolation == "read_committed", self.definition.generation
        if self.parsing is None:
            return TableState(cluster, read_committed, generation=generation)
        parser = self.parsing.parser
        return TableState(
            cluster,
            read_committed,
            parser=self.parsing.name,
            columns=tuple(parser.found),
            initial_columns=len(parser.found),
            schemas=tuple(parser.schemas),
            key_schema=parser.key_schema,
            base=base_of(parser),
            generation=generation,
        )


class Opening:
    """Opens the tables of a file.

    Args:
        source: of the file, for messages.
    """

    def __init__(self, file: TablesFile, source: str) -> None:
        self._file = file
        self._source = source
        self.generations = Generations(file, source)

    @cached_property
    def archive(self) -> Archive:
        """The archive of the file.

        Raises:
            ConfigurationError: it is wrong.
        """
        given = self._file.archive
        if given.config is not None:
            archive = Archive(config=given.config, registry=given.registry)
            if problems := self._file.misplaced(archive.locations):
                raise ConfigurationError(self._source, problems)
            return archive
        try:
            return Archive(
                given.url,
                given.cluster,
                prefix_entropy_bits=given.prefix_entropy_bits,
                storage_options=given.storage_options,
                registry=given.registry,
            )
        except ConfigurationError as error:
            raise ConfigurationError(self._source, [f"archive: {each}" for each in error.problems]) from error

    def planner(self, definition: TableDefinition) -> LocatedPlanner:
        """Return what plans the commits of a table.

        Raises:
            ConfigurationError: as `archive`.
        """
        _ = self.archive  # first, as it can be misplaced
        policy = Policy(
            OnHole(definition.on_hole), definition.on_taken_back, definition.on_lost, definition.on_recreated
        )
        begins = {
            TopicPartition(topic, number): offset
            for topic, offsets in definition.start.items()
            for number, offset in offsets.items()
        }
        size = definition.commit_size
        if definition.rate is not None:
            size = min(size, definition.rate * _SECONDS)
        return LocatedPlanner(lambda: self._queries(definition), policy, begins.get, size)

    def parts_at_rest(self, name: str) -> Parts:
        """Return a table as `parts`, unless a switch of its generations ended between its renames.

        Raises:
            as `parts` and `Generations.check_switched`.
        """
        self.generations.check_switched(name)
        return self.parts(name)

    def parts(self, name: str, max_age: int | None = None) -> Parts:
        """Return a table, and how its records are parsed.

        Args:
            max_age: seconds that rows of plain files wait; None for those of the definition.

        Raises:
            ConfigurationError: the file has no such table, or the parser, the partition key or the sort order is wrong.
            CorruptData, StoreUnavailable, AccessDenied: from the schemas of a parser, or the catalog.
        """
        base, definition, is_in_use = self.generations.found(name)
        suffix = "" if is_in_use else f"_g{definition.generation}"
        place = f"{base}{suffix}"
        age = definition.max_age if max_age is None else max_age
        planner = self.planner(definition)
        if definition.parser is None:
            schema = _of_records(definition, RAW_SCHEMA)
            target = self._made(place, definition, schema, schema, REQUIRED, age)
            return Parts(definition, place, base, target, planner, None, _marking(definition, RAW_SCHEMA))
        topic = next(iter(definition.topics), "")  # the only one of a codec with a schema
        opener = ParserOpener(
            definition,
            lambda part, codec: self.archive.codec(topic, part, codec),
            f"{self._source}: tables.{name}.parser",
        )
        parser = opener.newest()
        try:
            known = parsed_schema(parser.columns)
            definition.check_columns(known)
        except ValueError as error:
            raise ConfigurationError(self._source, [f"tables.{name}: {error}"]) from error
        schema = parsed_schema(parser.with_columns(()).columns)
        if definition.mode is TableMode.LATEST:
            schema = schema.remove(schema.get_field_index(IS_DELETED))
        identity = definition.parser.identity(parser, definition.mode, definition.key, *sorted(definition.include))
        target = self._made(
            place, definition, schema, known, PARSED_REQUIRED, age, lambda state: _with_keys(schema, opener, state)
        )
        other, refused_definition = self._refused(base, suffix, definition)
        required = (*REQUIRED, REASON, PARSER)
        of_refused = _of_records(refused_definition, REFUSED_SCHEMA)
        refused = self._made(other, refused_definition, of_refused, of_refused, required, age)
        replaced = OnTakenBack.DELETE if definition.on_taken_back is OnTakenBack.FAIL else definition.on_taken_back
        plans = self.planner(definition.model_copy(update={"on_taken_back": replaced}))
        layout = self._layout(definition, schema, known)

        def fitting(state: TableState, newest: bool) -> Parser:
            return FittingParser(opener.of(state, newest), layout)

        is_newest_only = definition.mode is TableMode.LATEST
        parsing = Parsing(FittingParser(parser, layout), identity, refused, plans, fitting, newest_only=is_newest_only)
        return Parts(definition, place, base, target, planner, parsing, _marking(definition, known))

    def _queries(self, definition: TableDefinition) -> Sequence[Query]:
        """Return a query for each location of the table's topics."""
        topics: Any = [*definition.topics]
        if definition.pattern is not None:
            topics = re.compile(definition.pattern)
            if len(self.archive.locations) > 1:
                topics = [name for name in self.archive.topics() if topics.search(name)]
        scan = self.archive.scan(
            topics, isolation_level=definition.isolation, tail=definition.tail, include_headers=True
        )
        return list(by_location(scan.query))

    def _refused(self, name: str, suffix: str, definition: TableDefinition) -> tuple[str, TableDefinition]:
        """Return the name and the definition of the table of a table's refused records."""
        if definition.format == "iceberg":
            changes: dict[str, Any] = {"location": None}
            other = f"{definition.quarantine or f'{name}_quarantine'}{suffix}"
        else:
            changes = {"location": definition.quarantine or f"{(definition.location or '').rstrip('/')}_quarantine"}
            other = f"{name}_quarantine{suffix}"
        names = definition.file_names
        changes |= {"file_names": None if names is None else without_key(names)}
        return other, definition.model_copy(
            update={**changes, "partition_by": (), "sort_by": (), "mode": TableMode.APPEND}
        )

    def _made(
        self,
        name: str,
        definition: TableDefinition,
        schema: pa.Schema,
        known: pa.Schema,
        required: Sequence[str],
        max_age: int,
        schema_of: SchemaOf | None = None,
    ) -> Target:
        """Return a target.

        Args:
            schema: its columns, without those that its state has.
            known: all its columns.
            required: columns that are never NULL.
            max_age: seconds that rows of plain files wait.
            schema_of: returns the columns at a state of the table; None if they are always the same.

        Raises:
            ConfigurationError: the format lacks a type of the columns, or a location is wrong.
        """
        form = FORMATS[definition.form]
        try:
            form.check(known)
        except ValueError as error:
            raise ConfigurationError(self._source, [f"tables.{name}: {error}; choose another format"]) from error
        layout = self._layout(definition, schema, known)
        if definition.format == "iceberg":
            place = TableName(CATALOG, self._file.catalog, tuple(name.split(".")), definition.location)
            return IcebergTarget(place, layout, required, OnForeign(definition.foreign), schema_of)
        suffix = form.suffix_of(layout.compression)
        names = FileNames(layout.terms, suffix, definition.file_names, definition.generation)
        return PlainTarget(name, self._place(name, definition), layout, names, max_age, schema_of)

    @staticmethod
    def _layout(definition: TableDefinition, schema: pa.Schema, known: pa.Schema) -> Layout:
        """Return the layout of a table's files, with the arguments of `_made`."""
        return Layout(
            schema,
            tuple(parse_term(text, known) for text in definition.terms),
            definition.sort_by,
            definition.target_size,
            definition.codec,
            definition.form,
            delimiter=definition.delimiter.encode(),
        )

    def _place(self, name: str, definition: TableDefinition) -> Place:
        """Return where the plain files of a table are.

        Raises:
            ConfigurationError: the location or an option is wrong.
        """
        location = parse_location(definition.location or "")
        options = definition.storage_options
        if options is None and location.scheme is Scheme.S3:
            options = self._file.archive.storage_options
        problems: list[str] = []
        connection = connection_of(options, problems)
        if problems:
            raise ConfigurationError(self._source, [f"tables.{name}: {each}" for each in problems])
        return Place(str(location), connection)


def _of_records(definition: TableDefinition, schema: pa.Schema) -> pa.Schema:
    """Return the columns of a table of records: with the time as stored, of JSON lines, or if the file names it.

    JSON lines have no column `timestampMs`: their `timestamp` has no limit.
    """
    is_exact = definition.timestamp_ms or definition.form is FileFormat.JSON_LINES
    return schema.append(RECORD_SCHEMA.field(MILLISECONDS)) if is_exact else schema


def _with_keys(schema: pa.Schema, opener: ParserOpener, state: TableState) -> pa.Schema:
    """Return the columns of a table with that of the keys as its state has it; newer schemas can have more fields."""
    kind = opener.key_type(state)
    return schema if kind is None else schema.set(schema.get_field_index(KEY), pa.field(KEY, kind))


def _marking(definition: TableDefinition, columns: pa.Schema) -> Marking | None:
    """Return how a table with these columns is marked; None without marks."""
    marks = definition.marks
    if marks is None:
        return None
    terms = [parse_term(text, columns) for text in definition.terms]
    return Marking.of(terms, marks.after, marks.idle, marks.command)
