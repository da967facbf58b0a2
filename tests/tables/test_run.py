"""Runs of an Iceberg table: every record of the archive is in it once."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow.compute as pc
import pytest
from pyiceberg.expressions import And, EqualTo

from tests.made_archive import MadeArchive, batches, steps
from tests.tables.made_tables import MadeTable, put
from ts_common.archive.commit import LogStart
from ts_common.errors import DataLoss, QueryError
from ts_common.model import TopicPartition
from ts_reader import Archive
from ts_reader.decode.digest import parse_sums, sum_of
from ts_reader.query.query import OnHole
from ts_tables.claims.advance import OnLost, OnTakenBack, Policy
from ts_tables.claims.state import Kept, TableState

where: Any = EqualTo  # its types are those of its fields, not of its arguments
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
DAY = 86_400_000


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    return MadeArchive(tmp_path / "archive")


@pytest.fixture
def table(archive: MadeArchive, tmp_path: Path) -> MadeTable:
    return MadeTable(archive, tmp_path / "lake")


def test_each_run_adds_what_is_new(archive: MadeArchive, table: MadeTable) -> None:
    """Every record once, with the columns of the reader and its position; a run without news commits nothing."""
    put(archive, 0, 100)
    put(archive, 0, 30, partition=1)
    assert table.create()
    assert not table.create()
    first = table.run()
    assert (first.commits, first.records, first.lag) == (1, 130, {"t": 0})
    put(archive, 100, 150)
    assert table.run().records == 50
    before = table.head.snapshot_id
    assert table.run().commits == 0
    assert table.head.snapshot_id == before
    rows = table.rows()
    expected = Archive(archive.location, archive.keys.cluster).scan("t", include_headers=True).to_table()
    assert [{name: row[name] for name in COLUMNS} for row in rows] == expected.sort_by(
        [("partition", "ascending"), ("offset", "ascending")]
    ).to_pylist()
    assert [(row["_topic_id"], row["_partition_id"], row["_offset"], row["_ordinal"]) for row in rows] == [
        (None, row["partition"], row["offset"], 0) for row in rows
    ]
    assert table.files() == table.committed_files()


def test_other_engines_read_the_same_rows(
    archive: MadeArchive, table: MadeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB and polars read the files of the table; so does Spark, in tests/tables/spark."""
    put(archive, 0, 100)
    table.partition_by = ("day(timestamp)",)
    table.create()
    table.run()
    expected = table.arrow()
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    by_duckdb = duckdb.sql(f"select * from read_parquet({table.paths()}, hive_partitioning = false) order by _offset")
    assert by_duckdb is not None
    assert by_duckdb.to_arrow_table().cast(expected.schema).equals(expected)
    by_polars = polars.scan_iceberg(table.table).sort("_offset").collect().to_arrow()
    assert by_polars.cast(expected.schema).equals(expected)
    by_pyiceberg = table.table.scan().to_arrow().sort_by("_offset").drop_columns(["headers"])
    assert by_pyiceberg.cast(expected.drop_columns(["headers"]).schema).equals(expected.drop_columns(["headers"]))


def test_rows_are_in_the_partition_of_their_key(archive: MadeArchive, table: MadeTable) -> None:
    """By day, topic and bucket, as Iceberg computes them: a filter finds each row in the files that it keeps."""
    put(archive, 0, 50, time=3 * DAY - 20)
    table.partition_by = ("day(timestamp)", "topic", "bucket(4, key)")
    table.create()
    table.run()
    scan = table.table.scan(row_filter="timestamp >= '1970-01-04T00:00:00+00:00'")
    assert sorted(scan.to_arrow()["_offset"].to_pylist()) == list(range(20, 50))
    days = {task.file.partition[0] for task in scan.plan_files()}
    assert days == {3}
    for offset in range(50):
        found = table.table.scan(row_filter=And(where("topic", "t"), where("key", b"%d" % offset)))
        assert found.to_arrow()["_offset"].to_pylist() == [offset]


def test_rows_are_sorted_as_configured(archive: MadeArchive, table: MadeTable) -> None:
    """In each row group; the entry of the file has the sort order."""
    put(archive, 0, 50)
    table.sort_by = ("key",)
    table.create()
    table.run()
    (task,) = table.table.scan().plan_files()
    keys = table.table.scan().to_arrow()["key"].to_pylist()
    assert keys == sorted(keys)
    assert keys != [b"%d" % offset for offset in range(50)]
    assert task.file.sort_order_id == table.table.sort_order().order_id == 1


def test_a_large_backlog_is_several_commits(archive: MadeArchive, table: MadeTable) -> None:
    """Each of the bytes that it may have at most, and one segment of a partition at least."""
    for start in range(0, 100, 10):
        put(archive, start, start + 10)
    table.most_bytes = 3 * len(batches((0, 10)))
    table.create()
    assert table.run().commits >= 3
    assert table.offsets() == list(range(100))


def test_a_table_begins_at_the_offsets_of_another_sink(archive: MadeArchive, table: MadeTable) -> None:
    """Partitions that are not named begin at the start of their log."""
    put(archive, 0, 50)
    put(archive, 0, 20, partition=1)
    table.begins = {TopicPartition("t", 0): 30}
    table.create()
    table.run()
    assert table.offsets() == list(range(30, 50))
    assert table.offsets(1) == list(range(20))


def test_a_table_of_an_unknown_topic_is_refused(archive: MadeArchive, table: MadeTable) -> None:
    """Before the table is created."""
    put(archive, 0, 50)
    table.topics = ("u",)
    with pytest.raises(QueryError, match="topic u"):
        table.planner().plan(TableState("prod", read_committed=True), is_first=True)


def test_rows_that_an_election_removed_end_the_run(archive: MadeArchive, table: MadeTable) -> None:
    """Nothing is committed, and the message names the offsets."""
    put(archive, 0, 100)
    table.create()
    table.run()
    elected(archive)
    with pytest.raises(DataLoss, match="t-0: offsets 60 to 99 were removed from the log by an election"):
        table.run()
    assert table.offsets() == list(range(100))


def elected(archive: MadeArchive) -> None:
    """A leader without offsets 60 to 99 was elected, and wrote 60 to 89."""
    archive.put_segment("t", 60, batches(*steps(60, 90), epoch=2, value=b"later"), variant=True)
    archive.commit("t", 90, epochs=((0, 0), (2, 60)), highest_base=60, last_stable_offset=90)


def test_rows_that_an_election_removed_are_replaced(archive: MadeArchive, table: MadeTable) -> None:
    """In one commit, which has the records of the later leader too; other partitions keep theirs."""
    put(archive, 0, 50)
    put(archive, 50, 100)
    put(archive, 0, 100, partition=1)
    table.partition_by = ("day(timestamp)",)
    table.policy = Policy(on_taken_back=OnTakenBack.DELETE)
    table.create()
    table.run()
    before = len(table.table.snapshots())
    elected(archive)
    assert table.run().records == 30
    assert len(table.table.snapshots()) == before + 1
    rows = [row for row in table.rows() if row["_partition_id"] == 0]
    assert [row["_offset"] for row in rows] == list(range(90))
    assert {row["value"] for row in rows[60:]} == {b"later"}
    assert table.offsets(1) == list(range(100))
    assert table.head.state.topics["t"][0].partitions[0].claims == ((0, 90),)


def test_rows_that_an_election_removed_can_stay(archive: MadeArchive, table: MadeTable) -> None:
    """Together with the records of the later leader; the state has their number and digests."""
    put(archive, 0, 100)
    table.policy = Policy(on_taken_back=OnTakenBack.KEEP)
    table.create()
    table.run()
    taken = table.arrow().filter(pc.field("_offset") >= 60)
    elected(archive)
    table.run()
    assert table.offsets() == sorted([*range(100), *range(60, 90)])
    found = sum_of(taken)
    assert table.head.state.topics["t"][0].partitions[0].kept == (Kept(60, 100, 40, found.text),)
    assert parse_sums(40, found.text) == found


def test_offsets_that_retention_removed_end_the_run(archive: MadeArchive, table: MadeTable) -> None:
    """Or are noted, and the table continues."""
    put(archive, 0, 50)
    table.create()
    table.run()
    archive.put_segment("t", 80, batches((80, 100)))
    archive.commit("t", 100, highest_base=80, log_start=80, last_stable_offset=100)
    with pytest.raises(DataLoss, match="t-0: offsets 50 to 79 are lost"):
        table.run()
    table.policy = Policy(on_lost=OnLost.GO_ON)
    table.run()
    assert table.offsets() == [*range(50), *range(80, 100)]


def test_offsets_that_retention_hides_end_the_run_until_they_are_shown_again(
    archive: MadeArchive, table: MadeTable
) -> None:
    """The message names the way back, and the table then lacks no row."""
    put(archive, 0, 50)
    table.create()
    table.run()
    put(archive, 50, 100)
    key, shown = archive.partition("t").log_start, LogStart(0, floor=0, written_by="gc-2")
    archive.store.put(key, LogStart(80, floor=0, since="gc-1", written_by="gc-1").encode())
    with pytest.raises(DataLoss, match=r"t-0: offsets 50 to 79 are hidden by retention.*tsctl gc undo"):
        table.run()
    archive.store.put(key, shown.encode())
    table.run()
    assert table.offsets() == list(range(100))


def test_a_table_waits_at_a_hole(archive: MadeArchive, table: MadeTable) -> None:
    """And names it; when it is filled, the table continues."""
    put(archive, 0, 50)
    put(archive, 70, 100)
    table.create()
    summary = table.run()
    assert "t-0: offsets 50 to 69 are missing in the archive" in summary.waits[0]
    assert summary.lag == {"t": 50}
    assert table.offsets() == list(range(50))
    archive.put_segment("t", 50, batches((50, 70)))
    assert not table.run().waits
    assert table.offsets() == list(range(100))


def test_a_hole_that_was_passed_is_added_when_it_is_filled(archive: MadeArchive, table: MadeTable) -> None:
    """In a commit that is marked as late."""
    table.policy = Policy(on_hole=OnHole.PASS)
    put(archive, 0, 50)
    put(archive, 70, 100)
    table.create()
    table.run()
    assert table.offsets() == [*range(50), *range(70, 100)]
    archive.put_segment("t", 50, batches((50, 70)))
    table.run()
    assert table.offsets() == list(range(100))
    assert table.table.current_snapshot().summary.additional_properties["ts.late"] == "1"  # type: ignore[union-attr]


def test_a_damaged_log_start_fails_a_run_or_waits(archive: MadeArchive, table: MadeTable) -> None:
    """Next to a good commit, which alone would claim offsets that no reader returns; claims fail in any case."""
    put(archive, 0, 30)
    put(archive, 0, 10, partition=1)
    damaged = archive.partition("t", 1).log_start
    archive.store.put(damaged, b"what is this")
    table.create()
    with pytest.raises(DataLoss, match=r"t-1: .* not shown: commit-damaged.*on_lost: pass"):
        table.run()
    passing = replace(table, policy=Policy(on_lost=OnLost.GO_ON))
    summary = passing.run()
    assert (summary.records, [wait.partition(":")[0] for wait in summary.waits]) == (30, ["t-1"])
    archive.commit("t", 10, partition=1)
    assert (passing.run().records, len(passing.rows())) == (10, 40)
    put(archive, 10, 20, partition=1)
    archive.store.put(damaged, b"what is this")
    with pytest.raises(DataLoss, match=r"t-1: .* not shown: commit-damaged.*; claims end at 10"):
        passing.run()


def test_a_partition_without_a_commit_fails_a_run_or_waits(archive: MadeArchive, table: MadeTable) -> None:
    """With `on_lost: pass` the others are added, and the run names it; its records follow with its commit."""
    put(archive, 0, 30)
    archive.put_segment("t", 0, batches((0, 10)), partition=1)
    archive.age(16 * 60)
    table.create()
    with pytest.raises(DataLoss, match=r"t-1: offsets 0 and later are not shown: no-commit.*on_lost: pass"):
        table.run()
    passing = replace(table, policy=Policy(on_lost=OnLost.GO_ON))
    summary = passing.run()
    assert (summary.records, [wait.partition(":")[0] for wait in summary.waits]) == (30, ["t-1"])
    put(archive, 0, 10, partition=1)
    assert (passing.run().records, len(passing.rows())) == (10, 40)
