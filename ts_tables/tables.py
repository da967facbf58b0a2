"""`Tables`: the entry of the Python API. It creates and runs the tables of a file, and reports how far they are."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from time import monotonic
from typing import Any, Final

import pyarrow as pa

from ts_common.errors import ConfigurationError, DataLoss, OperatorError, TieredStorageError
from ts_common.model import TopicPartition
from ts_common.query.locations import by_location
from ts_common.query.query import Query
from ts_common.schemas.contract import Part
from ts_common.store.factory import Scheme, parse_location
from ts_common.suggestions import nearest
from ts_reader import Archive
from ts_reader.place import connection_of
from ts_tables.claims.advance import OnTakenBack, Policy
from ts_tables.claims.state import TableState
from ts_tables.compaction import EXPIRE_AFTER, Compaction, compact
from ts_tables.definition.table_definitions import TableDefinition, TablesFile
from ts_tables.definition.tables_file import parse_tables, read_tables_file
from ts_tables.engines.processes import run_in_processes
from ts_tables.files.layout import FileFormat, Layout
from ts_tables.files.parsed_columns import PARSED_REQUIRED, parsed_schema
from ts_tables.files.partitioning import parse_term
from ts_tables.files.raw_columns import PARSER, RAW_SCHEMA, REASON, REFUSED_SCHEMA, REQUIRED
from ts_tables.holds import publish, withdraw
from ts_tables.iceberg.target import IcebergTarget, OnForeign, TableName
from ts_tables.parsers.changes import ChangesParser
from ts_tables.plain.staging import Place
from ts_tables.plain.target import PlainTarget
from ts_tables.planning.locations import LocatedPlanner
from ts_tables.planning.plan import TablePlan
from ts_tables.run import Engine, Parsing, RunSummary, run_once
from ts_tables.status import TableStatus, partitions_of
from ts_tables.targets import FilesLeft, TableContents, Target
from ts_tables.verify.run import Verification, verify

CATALOG: Final = "ts-uploader"  # name of the catalog for pyiceberg; of an SQL catalog, part of each row


class Tables:
    """The tables of a file, or of values of the same form.

    Args:
        content: path of the file, or its content as values.
        workers: the number of worker processes of a run; None for the number of processors.
        engine: runs the tasks instead of worker processes.
        source: where the values are from, for messages.

    Raises:
        ConfigurationError: with every problem of the file.
    """

    def __init__(
        self,
        content: str | PathLike[str] | Any,
        *,
        workers: int | None = None,
        engine: Engine | None = None,
        source: str = "tables",
    ) -> None:
        is_path = isinstance(content, str | PathLike)
        self._source = str(content) if is_path else source
        self._file: TablesFile = read_tables_file(Path(content)) if is_path else parse_tables(content, source)
        self._engine: Engine = engine or (lambda tasks: run_in_processes(tasks, workers=workers))

    @property
    def names(self) -> list[str]:
        """The names of the tables, in the order of the file."""
        return [*self._file.tables]

    def create(self, name: str) -> bool:
        """Create a table, and return whether it did not exist.

        Args:
            name: of the table.

        Raises:
            ConfigurationError: the file has no such table.
            QueryError: the archive does not have a topic that the table names.
            OperatorError: a table of this name exists that this program did not make.
            AccessDenied, CorruptData, StoreUnavailable, OutcomeUnknown: from the catalog or the archive.
        """
        definition, parts = self._definition(name), self._parts(name)
        state = TableState(self._archive.cluster, definition.isolation == "read_committed", parser=parts.parser)
        self._planner(definition).plan(state, is_first=True)  # topics that are named must exist
        if parts.parsing is not None:  # first: a run can begin as soon as the table exists
            parts.parsing.refused.create(state)
        return parts.target.create(state)

    def run(self, name: str, summary: RunSummary | None = None) -> RunSummary:
        """Add to a table what the archive has for it; raise as `ts_tables.run.run_once`.

        Args:
            name: of the table.
            summary: a new one, filled while the run works: after an error it has what was done before.
        """
        summary, began = summary or RunSummary(), monotonic()
        try:
            parts, planner = self._parts(name), self._planner(self._definition(name))
            run_once(parts.target, planner, self._engine, summary, parts.parsing)
            opened = parts.target.open()
            publish(planner.stores(opened.state), name, opened.snapshot)
        finally:
            summary.seconds = monotonic() - began
        return summary

    def plan(self, name: str) -> TablePlan:
        """Return what the next commit of a table adds, without adding it; raise as `run`.

        Args:
            name: of the table.
        """
        definition = self._definition(name)
        return self._planner(definition).plan(self._parts(name).target.open().state)

    def status(self, name: str) -> TableStatus:
        """Return how far a table is; raise as `run`.

        Args:
            name: of the table.
        """
        definition = self._definition(name)
        state = self._parts(name).target.open().state
        partitions = tuple(partitions_of(state))
        try:
            plan = self._planner(definition).plan(state)
        except DataLoss as error:
            return TableStatus(name, partitions, {}, (str(error),))
        return TableStatus(name, partitions, plan.behind, plan.waits)

    def verify(self, name: str) -> Verification:
        """Compare the rows of a table with the records that it claims, and return the differences.

        A table whose runs fail is compared with the last of our commits that it has.

        Args:
            name: of the table.

        Raises:
            as `run`, but never `HeadMoved`.
        """
        target = self._parts(name).target
        found, opened = self._compared(name)
        problem = target.problem(opened)
        return found if problem is None else replace(found, notes=(*found.notes, problem))

    def adopt(self, name: str) -> Verification:
        """Continue a table after something happened to it; return how its rows compare with the claims of its state.

        If `main` was rolled back, the tag was removed or moved, or snapshots expired, runs of the table fail. If its
        rows are those that our last commit in it claims, that is the state from now on. Otherwise nothing is changed.

        Args:
            name: of the table.

        Raises:
            as `verify`; HeadMoved: another program wrote the table meanwhile.
        """
        target = self._parts(name).target
        found, opened = self._compared(name)
        if not found.differences:
            target.adopt(opened)
        return found

    def _compared(self, name: str) -> tuple[Verification, Any]:
        """Return how a table differs from the archive, and the table that was compared."""
        parts = self._parts(name)
        opened = parts.target.open_any()
        refused = None if parts.parsing is None else parts.parsing.refused.open_any()
        claimed = self._planner(self._definition(name)).claimed(opened.state)
        return verify(opened, claimed, self._engine, refused), opened

    def compact(
        self, name: str, *, expire_after: float = EXPIRE_AFTER, retain_last: int = 1, spark: Any = None
    ) -> Compaction:
        """Rewrite the small files of a table by Spark, then expire snapshots; return what was done.

        Args:
            name: of the table.
            expire_after: age in seconds of the snapshots that expire.
            retain_last: so many snapshots stay, however old they are.
            spark: a Spark session with the jars of Iceberg; None for that of this process. If it has none, one is
                started with the settings of the file, and stays until it is stopped.

        Raises:
            as `ts_tables.compaction.compact`; ConfigurationError: the file has no such table; OperatorError: it is of
                plain files; ModuleNotFoundError: pyspark is missing.
        """
        from ts_tables.engines.spark.procedures import SparkProcedures  # noqa: PLC0415  (pyspark)
        from ts_tables.engines.spark.session import open_session  # noqa: PLC0415  (pyspark)

        self._definition(name)
        target, settings = self._parts(name).target, self._file.spark
        if not isinstance(target, IcebergTarget):
            raise OperatorError(f"table {name} has plain files: Spark does not compact them")
        target.open()  # a table that is missing, or that fails, is found before Spark starts
        session = open_session(settings) if spark is None else spark
        procedures = SparkProcedures(session, CATALOG, target.catalog_properties, settings, name.split("."))
        return compact(target, procedures, expire_after, retain_last)

    def is_plain(self, name: str) -> bool:
        """Return whether a table has plain files.

        Args:
            name: of the table.

        Raises:
            ConfigurationError: the file has no such table.
        """
        return self._definition(name).format != "iceberg"

    def show_held(self, name: str) -> RunSummary:
        """Merge and show the plain files of a table that are held, whatever their age; return what was done.

        Args:
            name: of the table.

        Raises:
            as `run`; OperatorError: it is an Iceberg table.
        """
        if not self.is_plain(name):
            raise OperatorError(f"table {name} is an Iceberg table: no file of it is held")
        summary, began = RunSummary(), monotonic()
        parts = self._parts(name, max_age=0)
        run_once(parts.target, _NothingNew(), self._engine, summary, parts.parsing)
        summary.seconds = monotonic() - began
        return summary

    def contents(self, name: str) -> TableContents:
        """Return what a table has; raise as `drop`.

        Args:
            name: of the table.
        """
        self._definition(name)
        return self._parts(name).target.contents()

    def drop(self, name: str, *, purge: bool = False) -> None:
        """Remove a table from the catalog, that of its refused records, and what it needs of the archive.

        Args:
            name: of the table.
            purge: whether its files are deleted too.

        Raises:
            ConfigurationError: the file has no such table.
            OperatorError, AccessDenied, StoreUnavailable: from the catalog or the stores.
        """
        planner, cluster = self._planner(self._definition(name)), self._archive.cluster  # first, as it can be misplaced
        parts = self._parts(name)
        left: FilesLeft | None = None
        for target in (parts.target, *([] if parts.parsing is None else [parts.parsing.refused])):
            try:
                target.drop(purge=purge)
            except FilesLeft as error:
                left = error
        try:
            withdraw(planner.stores(TableState(cluster, read_committed=True)), name)
        except TieredStorageError as error:  # the table is removed, so no second drop removes them
            raise OperatorError(
                f"table {name} was removed, but not its claims in the archive, which keep segments from retention; "
                f"remove claims/{name}.json: {error}"
            ) from error
        if left is not None:
            raise left

    @cached_property
    def _archive(self) -> Archive:
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

    def _definition(self, name: str) -> TableDefinition:
        found = self._file.tables.get(name)
        if found is None:
            hint = nearest(name, self.names)
            raise ConfigurationError(
                self._source, [f"{name}: the file has no such table{hint}; it has {', '.join(self.names)}"]
            )
        return found

    def _planner(self, definition: TableDefinition) -> LocatedPlanner:
        policy = Policy(definition.on_hole, definition.on_taken_back, definition.on_lost, definition.on_recreated)
        begins = {
            TopicPartition(topic, number): offset
            for topic, offsets in definition.start.items()
            for number, offset in offsets.items()
        }
        return LocatedPlanner(lambda: self._queries(definition), policy, begins.get, definition.commit_size)

    def _queries(self, definition: TableDefinition) -> Sequence[Query]:
        """Return a query for each location of the table's topics."""
        topics: Any = [*definition.topics]
        if definition.pattern is not None:
            topics = re.compile(definition.pattern)
            if len(self._archive.locations) > 1:
                topics = [name for name in self._archive.topics() if topics.search(name)]
        scan = self._archive.scan(topics, isolation_level=definition.isolation, include_headers=True)
        return list(by_location(scan.query))

    def _parts(self, name: str, max_age: int | None = None) -> "_Parts":
        """Return a table, and how its records are parsed.

        Raises:
            ConfigurationError: the parser, the partition key or the sort order is wrong.
            CorruptData, StoreUnavailable, AccessDenied: from the schemas of a parser, or the catalog.
        """
        definition = self._definition(name)
        age = definition.max_age if max_age is None else max_age
        if definition.parser is None:
            return _Parts(self._made(name, definition, RAW_SCHEMA, REQUIRED, age), None)
        source = f"{self._source}: tables.{name}.parser"
        topic = next(iter(definition.topics), "")  # the only one of a codec with a schema
        parser = definition.parser.open(lambda codec: self._archive.codec(topic, Part.VALUE, codec), source)
        if definition.mode == "changes":
            keys = None if definition.key is None else self._archive.codec(topic, Part.KEY, definition.key)
            parser = ChangesParser(parser, keys)
        try:
            schema = parsed_schema(parser.columns)
            definition.check_columns(schema)
        except ValueError as error:
            raise ConfigurationError(self._source, [f"tables.{name}: {error}"]) from error
        identity = definition.parser.identity(parser, definition.mode, definition.key)
        target = self._made(name, definition, schema, PARSED_REQUIRED, age)
        refused = self._made(*self._refused(name, definition), REFUSED_SCHEMA, (*REQUIRED, REASON, PARSER), age)
        replaced = OnTakenBack.DELETE if definition.on_taken_back is OnTakenBack.FAIL else definition.on_taken_back
        plans = self._planner(definition.model_copy(update={"on_taken_back": replaced}))
        return _Parts(target, Parsing(parser, identity, refused, plans))

    def _refused(self, name: str, definition: TableDefinition) -> tuple[str, TableDefinition]:
        """Return the name and the definition of the table of a table's refused records."""
        if definition.format == "iceberg":
            changes: dict[str, Any] = {"location": None}
            other = definition.quarantine or f"{name}_quarantine"
        else:
            changes = {"location": definition.quarantine or f"{(definition.location or '').rstrip('/')}_quarantine"}
            other = f"{name}_quarantine"
        return other, definition.model_copy(update={**changes, "partition_by": (), "sort_by": ()})

    def _made(
        self, name: str, definition: TableDefinition, schema: pa.Schema, required: Sequence[str], max_age: int
    ) -> Target:
        layout = Layout(
            schema,
            tuple(parse_term(text, schema) for text in definition.partition_by),
            definition.sort_by,
            definition.target_size,
            definition.codec,
            FileFormat.JSON_LINES if definition.format == "json" else FileFormat.PARQUET,
        )
        if definition.format == "iceberg":
            place = TableName(CATALOG, self._file.catalog, tuple(name.split(".")), definition.location)
            return IcebergTarget(place, layout, required, OnForeign(definition.foreign))
        return PlainTarget(name, self._place(name, definition), layout, max_age)

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


@dataclass(frozen=True, slots=True)
class _Parts:
    """A table and what it needs.

    Attributes:
        target: the table.
        parsing: of its records; None of a raw table.
    """

    target: Target
    parsing: Parsing | None

    @property
    def parser(self) -> str | None:
        """The identity of the parser, as the table's state has it."""
        return None if self.parsing is None else self.parsing.name


class _NothingNew:
    """Plans commits without new rows."""

    def plan(self, state: TableState, *, is_first: bool = False) -> TablePlan:
        """Return a plan that adds nothing."""
        del is_first
        return TablePlan(state, (), (), keeps=False, late=0, waits=(), behind={}, lag={})
