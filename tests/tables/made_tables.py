"""Tables that a test makes of a made archive: on an SQL catalog in a directory, or of plain files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tests.made_archive import CLUSTER, MadeArchive, batches, steps
from tests.tables.made_parser import NAME as PARSER_NAME
from ts_common.model import TopicPartition
from ts_common.store.options import BY_ENVIRONMENT, Connection
from ts_common.store.shared_stores import shared_store
from ts_reader.query.query import Query, Subscription
from ts_tables.claims.advance import Policy
from ts_tables.claims.state import TableState
from ts_tables.engines.processes import run_in_processes
from ts_tables.files.file_names import FileNames
from ts_tables.files.formats import FORMATS
from ts_tables.files.layout import TARGET_BYTES, FileFormat, Layout
from ts_tables.files.parsed_columns import PARSED_REQUIRED, parsed_schema, topic_column
from ts_tables.files.partitioning import Term, parse_term
from ts_tables.files.raw_columns import RAW_SCHEMA, REFUSED_SCHEMA, REQUIRED
from ts_tables.files.reading import TableFile
from ts_tables.iceberg.catalogs import open_catalog
from ts_tables.iceberg.head import Head, read_head
from ts_tables.iceberg.target import IcebergTarget, OnForeign, TableName
from ts_tables.parsers.changes import IS_DELETED
from ts_tables.parsers.contract import Parser
from ts_tables.parsing import Parsing
from ts_tables.plain.staging import Place
from ts_tables.plain.target import PlainTarget
from ts_tables.planning.plan import Planner
from ts_tables.run import RunSummary, run_once
from ts_tables.targets import Target
from ts_tables.verify.run import Verification, verify

NAME = ("backup", "t")


def put(archive: MadeArchive, start: int, end: int, partition: int = 0, time: int = 1000) -> None:
    """Archive a segment of topic `t`; the record at offset `o` has the timestamp `time + o`."""
    archive.put_segment("t", start, batches(*steps(start, end), time=time), partition=partition)
    archive.commit("t", end, partition=partition, highest_base=start, last_stable_offset=end)


def verified(table: "MadeTable") -> Verification:
    """Compare a table with its archive."""
    opened = table.target().open_any()
    return verify(opened, table.planner().claimed(opened.state), lambda tasks: [task() for task in tasks])


def half_read(table: "MadeTable") -> "MadeTable":
    """Create a table with the first 50 records, which its archive has; the archive gets 50 more."""
    table.create()
    table.run()
    put(table.archive, 50, 100)
    return table


def is_whole(table: "MadeTable", end: int = 100) -> None:
    """Check that each record is there once, no file is left over, and a further run changes nothing."""
    table.run()
    assert table.offsets() == list(range(end))
    assert table.files() == table.committed_files()
    assert table.run().commits == 0


@dataclass
class MadeTable:
    """A table of topics of a made archive.

    Attributes:
        archive: of its topics.
        directory: of catalog and warehouse.
        topics: their names.
        policy: of the table.
        read_committed: its isolation level.
        tail: whether it claims live tails.
        partition_by: its partition key.
        sort_by: its sort order.
        on_foreign: what a run does if others wrote rows.
        most_bytes: of a commit.
        begins: where it begins, by partition.
        warehouse: of the catalog; None for a directory.
        further: properties of the catalog.
        format: of plain files; None for an Iceberg table.
        compression: of plain files; None for the default of the format.
        delimiter: of text.
        file_names: template of the names of plain files.
        location: of plain files; empty for a directory.
        connection: to their store.
        max_age: seconds that they are held.
        target_bytes: of a file.
        catalog_name: of the catalog.
        parser: of the records; None for a raw table.
        newest_only: whether it has only the newest record of each key; then the parser is that of changes.
    """

    archive: MadeArchive
    directory: Path
    topics: tuple[str, ...] = ("t",)
    policy: Policy = Policy()  # noqa: RUF009  (frozen)
    read_committed: bool = True
    tail: bool = True
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    on_foreign: OnForeign = OnForeign.FAIL
    most_bytes: int | None = None
    begins: Mapping[TopicPartition, int] = field(default_factory=dict)
    warehouse: str | None = None
    further: Mapping[str, str] = field(default_factory=dict)
    format: FileFormat | None = None
    compression: str | None = None
    delimiter: bytes = b"\n"
    file_names: str | None = None
    location: str = ""
    connection: Connection = BY_ENVIRONMENT
    max_age: int = 0
    target_bytes: int = TARGET_BYTES
    catalog_name: str = "lake"
    parser: Parser | None = None
    newest_only: bool = False

    @property
    def properties(self) -> dict[str, str]:
        self.directory.mkdir(parents=True, exist_ok=True)
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.directory}/catalog.db",
            "warehouse": self.warehouse or f"file://{self.directory}/warehouse",
            **self.further,
        }

    @property
    def catalog(self) -> Catalog:
        return open_catalog(self.catalog_name, self.properties)

    @property
    def table(self) -> Table:
        return self.catalog.load_table(self.table_name)

    @property
    def table_name(self) -> tuple[str, str]:
        return NAME

    @property
    def head(self) -> Head:
        found = read_head(self.table)
        assert found is not None
        return found

    def target(self) -> Target:
        return self.iceberg() if self.format is None else self.plain()

    def iceberg(self) -> IcebergTarget:
        layout = Layout(self.schema, self._terms, self.sort_by, self.target_bytes)
        required = REQUIRED if self.parser is None else PARSED_REQUIRED
        return IcebergTarget(
            TableName(self.catalog_name, self.properties, self.table_name), layout, required, self.on_foreign
        )

    def plain(self) -> PlainTarget:
        assert self.format is not None
        form = FORMATS[self.format]
        codec = self.compression or form.codecs[0]
        layout = Layout(
            self.schema, self._terms, self.sort_by, self.target_bytes, codec, self.format, delimiter=self.delimiter
        )
        names = FileNames(layout.terms, form.suffix_of(codec), self.file_names)
        return PlainTarget("backup.t", self.place, layout, names, self.max_age)

    @property
    def schema(self) -> pa.Schema:
        if self.parser is None:
            return RAW_SCHEMA
        found = parsed_schema(self.parser.columns)
        return found.remove(found.get_field_index(IS_DELETED)) if self.newest_only else found

    @property
    def quarantine(self) -> "MadeTable":
        """The table of refused records, as a raw table with two more columns."""
        return _Quarantine(**{**vars(self), "parser": None, "newest_only": False, "partition_by": (), "sort_by": ()})

    @property
    def parsing(self) -> Parsing | None:
        if self.parser is None:
            return None
        refused = self.quarantine
        return Parsing(self.parser, PARSER_NAME, refused.target(), refused.planner(), newest_only=self.newest_only)

    @property
    def place(self) -> Place:
        return Place(self.location or f"file://{self.directory}/files", self.connection)

    @property
    def _terms(self) -> tuple[Term, ...]:
        return tuple(parse_term(text, self.schema) for text in self.partition_by)

    def planner(self) -> Planner:
        query = Query(
            self.archive.location,
            CLUSTER,
            self.archive.keys.entropy_bits,
            Subscription(topics=self.topics),
            read_committed=self.read_committed,
            tail=self.tail,
        )
        return Planner(self.archive.store, query, self.policy, self.begins.get, self.most_bytes)

    def create(self) -> bool:
        state = TableState(CLUSTER, self.read_committed, parser=None if self.parser is None else PARSER_NAME)
        if self.parsing is not None:
            self.parsing.refused.create(state)
        return self.target().create(state)

    def run(self) -> RunSummary:
        def in_processes(tasks: Sequence[Callable[[], Any]]) -> list[Any]:
            return run_in_processes(tasks, workers=1)

        return run_once(self.target(), self.planner(), in_processes, parsing=self.parsing)

    def arrow(self) -> pa.Table:
        """Return the rows by partition and offset, as pyarrow reads the table's files; those that are held too.

        pyiceberg reads a NULL list as an empty one.
        """
        files: list[TableFile] = self.target().open_any().all_files()
        read = [pa.Table.from_batches([batch]) for each in files for batch in each.rows(self.schema)]
        tables = [each.select(self.schema.names).cast(self.schema) for each in read]
        order = [(name, "ascending") for name in (topic_column(self.schema), "_partition_id", "_offset", "_ordinal")]
        return pa.concat_tables([self.schema.empty_table(), *tables]).sort_by(order)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows by partition and offset."""
        rows: list[dict[str, Any]] = self.arrow().to_pylist()
        return rows

    def paths(self) -> list[str]:
        """Return the paths of the table's data files, as readers see them."""
        if self.format is not None:
            store = shared_store(self.place.location, self.place.connection)
            return [each.key for each in store.list() if not each.key.startswith("_")]
        return [task.file.file_path.removeprefix("file://") for task in self.table.scan().plan_files()]

    def offsets(self, partition: int = 0) -> list[int]:
        return [row["_offset"] for row in self.rows() if row["_partition_id"] == partition]

    def files(self) -> set[str]:
        """Return the paths of data files and of what `_ts` has, without a ledger."""
        if self.format is not None:
            store = shared_store(self.place.location, self.place.connection)
            return {each.key for each in store.list() if "/ledger/" not in each.key and each.key != "_ts/files.json"}
        root = Path(self.table.location().removeprefix("file://"))
        return {
            str(each.relative_to(root)) for each in root.rglob("*") if each.is_file() and "metadata/" not in str(each)
        }

    def committed_files(self) -> set[str]:
        """Return the paths of data files that the table's snapshots refer to, or its ledger."""
        if self.format is not None:
            contents = self.plain().open().contents
            return {each.path for each in (*contents.files, *contents.held)}
        loaded = self.table
        found = {
            entry.data_file.file_path
            for snapshot in loaded.snapshots()
            for manifest in snapshot.manifests(loaded.io)
            for entry in manifest.fetch_manifest_entry(loaded.io)
        }
        return {path.removeprefix(loaded.location()).lstrip("/") for path in found}


class _Quarantine(MadeTable):
    """The table of the records that the parser of another one refused."""

    @property
    def schema(self) -> pa.Schema:
        return REFUSED_SCHEMA

    @property
    def table_name(self) -> tuple[str, str]:
        return NAME[0], f"{NAME[1]}_quarantine"

    @property
    def place(self) -> Place:
        found = super().place
        return Place(f"{found.location}_quarantine", found.connection)
