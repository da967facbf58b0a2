"""A table whose layout is not that of the file, statistics of files, and their cleanup."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.types import StringType

from tests.common.log_format.build import batch, record
from tests.made_archive import MadeArchive, batches
from tests.tables.made_tables import MadeTable, half_read, put
from ts_common.errors import OperatorError
from ts_tables.claims.advance import OnTakenBack, Policy
from ts_tables.files import file_writer
from ts_tables.iceberg import head
from ts_tables.iceberg.catalogs import iceberg_schema
from ts_tables.run import run_once

equal_to: Any = EqualTo  # its types are those of its fields, not of its arguments


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    made = MadeArchive(tmp_path / "archive")
    put(made, 0, 50)
    return made


@pytest.fixture
def table(archive: MadeArchive, tmp_path: Path) -> MadeTable:
    return half_read(MadeTable(archive, tmp_path / "lake", partition_by=("day(timestamp)",), sort_by=("key",)))


def test_a_column_with_the_path_of_a_member_is_named() -> None:
    """Iceberg would call both `a.b`."""
    schema = pa.schema([("a", pa.struct([("b", pa.int64())])), ("a.b", pa.string())])
    with pytest.raises(OperatorError, match=r"multiple fields for name a\.b.*plain files have no such limit"):
        iceberg_schema(schema)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"partition_by": ("hour(timestamp)",)}, r"partitioned by \['day\(timestamp\)'\], and partition_by is"),
        ({"partition_by": ()}, "partitioned by"),
        ({"sort_by": ("offset",)}, "sorted by"),
        ({"read_committed": False}, "created with read_committed"),
    ],
    ids=["partition key", "no partition key", "sort order", "isolation"],
)
def test_a_file_that_was_changed_is_refused(table: MadeTable, changes: dict[str, Any], reason: str) -> None:
    """Rows of wrong partition values would not be found by filters."""
    with pytest.raises(OperatorError, match=reason):
        replace(table, **changes).run()
    table.run()
    assert table.offsets() == list(range(100))


@pytest.mark.parametrize(
    ("change", "column"),
    [
        (lambda schema: schema.add_column("note", StringType()), "note"),
        (lambda schema: schema.rename_column("value", "payload"), "payload, value"),
        (lambda schema: schema.delete_column("timestampType"), "timestampType"),
    ],
    ids=["added", "renamed", "dropped"],
)
def test_a_schema_that_was_changed_is_refused(table: MadeTable, change: Callable[[Any], Any], column: str) -> None:
    """By one message that names the column."""
    with table.table.update_schema() as schema:
        change(schema)
    with pytest.raises(OperatorError, match=f"its columns {column} differ"):
        table.run()


def test_columns_in_another_order_keep_their_values(archive: MadeArchive, table: MadeTable) -> None:
    """Also in files that are written again after an election."""
    with table.table.update_schema() as schema:
        schema.move_first("value")
    table.policy = Policy(on_taken_back=OnTakenBack.DELETE)
    table.run()
    archive.put_segment("t", 60, batches((60, 70), epoch=2), variant=True)
    archive.commit("t", 70, epochs=((0, 0), (2, 60)), highest_base=60, last_stable_offset=70)
    table.run()
    assert [(row["key"], row["value"]) for row in table.rows()] == [(b"%d" % offset, b"v") for offset in range(70)]


def test_a_long_value_leaves_no_bounds_of_the_others(
    archive: MadeArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parquet has no bounds for its row group; those of another group are not those of the file."""
    monkeypatch.setattr(file_writer, "ROW_GROUP_BYTES", 1)
    long = b"z" * 5000
    archive.put_segment("t", 50, batch(50, [record(0, long), record(1, b"zz"), record(2, b"a")]))
    archive.commit("t", 53, highest_base=50, last_stable_offset=53)
    table = MadeTable(archive, tmp_path / "lake")
    table.create()
    table.run()
    for key in (long, b"zz", b"a", b"7"):
        assert table.table.scan(row_filter=equal_to("key", key)).to_arrow().num_rows == 1, key


@pytest.mark.parametrize("term", ["day(timestamp)", "hour(timestamp)"])
def test_a_time_after_the_year_9999_is_written(archive: MadeArchive, tmp_path: Path, term: str) -> None:
    """As of a producer that sends microseconds as milliseconds."""
    far = 1_700_000_000_000_000
    archive.put_segment("t", 50, batch(50, [record(0, b"k", b"v")], base_timestamp=far, max_timestamp=far))
    archive.commit("t", 51, highest_base=50, last_stable_offset=51)
    table = MadeTable(archive, tmp_path / "lake", partition_by=(term,))
    table.create()
    assert table.run().records == 51
    assert table.table.scan(row_filter="timestamp >= '2030-01-01T00:00:00+00:00'").count() == 1
    assert table.table.scan(row_filter="timestamp < '2030-01-01T00:00:00+00:00'").count() == 50


def test_a_run_that_begins_while_another_cleans_up_keeps_its_files(archive: MadeArchive, table: MadeTable) -> None:
    """The first has read the head before the second commits; the third begins from there, and has written its files."""
    first, second, third = table.iceberg(), table.iceberg(), table.iceberg()
    real, written, cleaned = first._catalog.load_table, threading.Event(), threading.Event()

    def slow(tasks: Any) -> list[Any]:
        results = [task() for task in tasks]
        written.set()
        assert cleaned.wait(60)
        return results

    in_flight = threading.Thread(target=lambda: run_once(third, table.planner(), slow))

    def load_table(name: Any) -> Any:
        loaded = real(name)
        if not written.is_set():
            run_once(second, table.planner(), lambda tasks: [task() for task in tasks])
            put(archive, 100, 150)
            in_flight.start()
            assert written.wait(60)
        return loaded

    first._catalog.load_table = load_table  # type: ignore[method-assign, assignment]
    first.clean()
    cleaned.set()
    in_flight.join(60)
    assert table.offsets() == list(range(150))


@pytest.mark.parametrize("name", [".json", "...json", "..json", "0123456789ABCDEF.json", "x.json"])
def test_a_note_with_another_name_is_ignored(table: MadeTable, name: str) -> None:
    """An id of a plan is a part of paths that are removed."""
    root = Path(table.table.location().removeprefix("file://"))
    (root / "_ts/plans" / name).write_text('{"version":1,"head":1}')
    table.run()
    assert table.offsets() == list(range(100))
    assert (root / "_ts/plans" / name).exists()


def test_states_of_expired_snapshots_are_removed(table: MadeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large state is an object of its own; those of snapshots that others expired are of no use."""
    monkeypatch.setattr(head, "_INLINE_BYTES", 0)
    table.run()
    put(table.archive, 100, 150)
    table.run()
    assert len([each for each in table.files() if "/state-" in each]) == 2
    tomorrow = datetime.now(UTC).replace(tzinfo=None) + timedelta(days=1)
    table.table.maintenance.expire_snapshots().older_than(tomorrow).commit()
    put(table.archive, 150, 200)
    table.run()
    states = {each for each in table.files() if "/state-" in each}
    assert len(states) == 2  # of the last commit, and of the one before, which nothing expired
    assert table.offsets() == list(range(200))
