"""Tables of `ts_tables` that a benchmark makes, runs and drops: on an SQL catalog, or of plain Parquet files."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from dev.local.stores.s3 import REGION, S3Server
from ts_tables import Tables
from ts_tables.run import RunSummary
from ts_tables.tasks import Engine


def sql_catalog(server: S3Server, directory: Path, bucket: str) -> dict[str, str]:
    """Return the properties of a catalog in SQLite, with its files on S3."""
    return {
        "type": "sql",
        "uri": f"sqlite:///{directory}/catalog.db",
        "warehouse": f"s3://{bucket}/lake",
        "s3.endpoint": server.endpoint,
        "s3.access-key-id": server.admin.access_key,
        "s3.secret-access-key": server.admin.secret_key,
        "s3.region": REGION,
    }


@dataclass(frozen=True)
class TableRun:
    """A run of a new table.

    Attributes:
        seconds: of the run, without the creation of the table.
    """

    name: str
    tables: Tables
    summary: RunSummary
    seconds: float

    def drop(self) -> None:
        """Delete the table and its files."""
        self.tables.drop(self.name, purge=True)


class NewTables:
    """Makes and runs tables of one topic, each of a new name.

    Args:
        archive: values of the archive, as in the tables' file.
        plain: location of plain files; a directory of it is for each table.
        catalog: properties of the catalog of Iceberg tables; None if no such table is made.
        workers: the number of worker processes of a run.
        engine: runs the tasks instead of worker processes.
        definition: further values of each table.
    """

    def __init__(
        self,
        archive: Mapping[str, Any],
        plain: str,
        catalog: Mapping[str, str] | None = None,
        *,
        workers: int = 2,
        engine: Engine | None = None,
        definition: Mapping[str, Any] | None = None,
    ) -> None:
        self._given = {"archive": {**archive}, **({} if catalog is None else {"catalog": {**catalog}})}
        self._plain = plain
        self._workers = workers
        self._engine = engine
        self._definition = definition or {}

    def location(self, name: str) -> str:
        """Return the location of a table of plain files."""
        return f"{self._plain}/{name}"

    def run(self, topic: str, *, is_plain: bool) -> TableRun:
        """Make a table of a topic, and run it.

        Args:
            is_plain: whether the table has plain Parquet files; otherwise it is an Iceberg table.
        """
        name = f"bench.{topic.replace('-', '_')}_{token_hex(4)}"
        values = {
            "topics": topic,
            **self._definition,
            **({"format": "parquet", "location": self.location(name)} if is_plain else {}),
        }
        tables = Tables({**self._given, "tables": {name: values}}, workers=self._workers, engine=self._engine)
        tables.create(name)
        began = time.perf_counter()
        summary = tables.run(name)
        return TableRun(name, tables, summary, time.perf_counter() - began)

    def seconds(self, topic: str, *, is_plain: bool) -> float:
        """Return the seconds of a run of a new table, which is dropped then; parameters as of `run`."""
        run = self.run(topic, is_plain=is_plain)
        run.drop()
        return run.seconds
