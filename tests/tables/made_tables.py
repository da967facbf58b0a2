"""Tables that a test makes of a made archive, on an SQL catalog in a directory."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tests.made_archive import CLUSTER, MadeArchive
from ts_common.model import TopicPartition
from ts_common.query.query import Query, Subscription
from ts_tables.claims.advance import Policy
from ts_tables.claims.state import TableState
from ts_tables.engines.processes import run_in_processes
from ts_tables.files.parquet_writer import Layout
from ts_tables.files.partitioning import parse_term
from ts_tables.files.raw_columns import RAW_SCHEMA, REQUIRED
from ts_tables.iceberg.catalog import open_catalog
from ts_tables.iceberg.head import Head, read_head
from ts_tables.iceberg.target import IcebergTarget, OnForeign, TableName
from ts_tables.planning.plan import Planner
from ts_tables.run import RunSummary, run_once

NAME = ("backup", "t")


@dataclass
class MadeTable:
    """An Iceberg table of topics of a made archive.

    Attributes:
        archive: of its topics.
        directory: of catalog and warehouse.
        topics: their names.
        policy: of the table.
        read_committed: its isolation level.
        partition_by: its partition key.
        sort_by: its sort order.
        on_foreign: what a run does if others wrote rows.
        most_bytes: of a commit.
        begins: where it begins, by partition.
        warehouse: of the catalog; None for a directory.
        further: properties of the catalog.
        catalog_name: of the catalog.
    """

    archive: MadeArchive
    directory: Path
    topics: tuple[str, ...] = ("t",)
    policy: Policy = Policy()  # noqa: RUF009  (frozen)
    read_committed: bool = True
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    on_foreign: OnForeign = OnForeign.FAIL
    most_bytes: int | None = None
    begins: Mapping[TopicPartition, int] = field(default_factory=dict)
    warehouse: str | None = None
    further: Mapping[str, str] = field(default_factory=dict)
    catalog_name: str = "lake"

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
        return self.catalog.load_table(NAME)

    @property
    def head(self) -> Head:
        found = read_head(self.table)
        assert found is not None
        return found

    def target(self) -> IcebergTarget:
        terms = tuple(parse_term(text, RAW_SCHEMA) for text in self.partition_by)
        layout = Layout(RAW_SCHEMA, terms, self.sort_by)
        return IcebergTarget(TableName(self.catalog_name, self.properties, NAME), layout, REQUIRED, self.on_foreign)

    def planner(self) -> Planner:
        query = Query(
            self.archive.location,
            CLUSTER,
            self.archive.keys.entropy_bits,
            Subscription(topics=self.topics),
            read_committed=self.read_committed,
        )
        return Planner(self.archive.store, query, self.policy, self.begins.get, self.most_bytes)

    def create(self) -> bool:
        return self.target().create(TableState(CLUSTER, self.read_committed))

    def run(self) -> RunSummary:
        return run_once(self.target(), self.planner(), lambda tasks: run_in_processes(tasks, workers=1))

    def arrow(self) -> pa.Table:
        """Return the rows by partition and offset, as pyarrow reads the table's files.

        pyiceberg reads a NULL list as an empty one.
        """
        paths = self.paths()
        tables = [pq.read_table(path, partitioning=None).select(RAW_SCHEMA.names).cast(RAW_SCHEMA) for path in paths]
        order = [(name, "ascending") for name in ("topic", "_partition_id", "_offset")]
        return pa.concat_tables([RAW_SCHEMA.empty_table(), *tables]).sort_by(order)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows by partition and offset."""
        rows: list[dict[str, Any]] = self.arrow().to_pylist()
        return rows

    def paths(self) -> list[str]:
        """Return the paths of the table's data files."""
        return [task.file.file_path.removeprefix("file://") for task in self.table.scan().plan_files()]

    def offsets(self, partition: int = 0) -> list[int]:
        return [row["_offset"] for row in self.rows() if row["_partition_id"] == partition]

    def files(self) -> set[str]:
        """Return the paths of data files and of what `_ts` has."""
        root = Path(self.table.location().removeprefix("file://"))
        return {
            str(each.relative_to(root)) for each in root.rglob("*") if each.is_file() and "metadata/" not in str(each)
        }

    def committed_files(self) -> set[str]:
        """Return the paths of data files that the table's snapshots refer to."""
        loaded = self.table
        found = {
            entry.data_file.file_path
            for snapshot in loaded.snapshots()
            for manifest in snapshot.manifests(loaded.io)
            for entry in manifest.fetch_manifest_entry(loaded.io)
        }
        return {path.removeprefix(loaded.location()).lstrip("/") for path in found}
