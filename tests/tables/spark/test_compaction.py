"""Compaction of Iceberg tables by a real Spark: small files become few, and runs continue."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.common.log_format.build import batch, record
from tests.erased.canary import put_erased
from tests.made_archive import CLUSTER, MadeArchive, batches, steps
from tests.tables.iceberg.test_commit import run
from tests.tables.made_tables import NAME, MadeTable
from tests.tables.test_parsed_tables import NAME as NAME_OF_MADE
from tests.tables.test_parsed_tables import Made
from tests.tsctl.running import runner
from ts_common.errors import OperatorError
from ts_tables.claims.advance import OnTakenBack, Policy
from ts_tables.compaction import Compaction, Rewritten, compact
from ts_tables.engines.spark.procedures import SparkProcedures
from ts_tables.generations import CATALOG
from ts_tables.iceberg.head import HeadFinding, check, read_head
from ts_tables.iceberg.target import IcebergTarget
from ts_tables.targets import HeadMoved
from ts_tables.verify.run import verify
from tsctl.erase.tables import remaining_in_tables

DAY_MS = 86_400_000


def put(archive: MadeArchive, start: int, end: int, **names: Any) -> None:
    archive.put_segment("t", start, batches(*steps(start, end)), **names)
    archive.commit("t", end, highest_base=start, last_stable_offset=end)


def made(directory: Path, runs: int = 8, **further: Any) -> MadeTable:
    """Return a table of as many files of 50 records as runs."""
    table = MadeTable(MadeArchive(directory / "archive"), directory / "lake", **further)
    table.create()
    for number in range(runs):
        put(table.archive, number * 50, number * 50 + 50)
        table.run()
    return table


def procedures(spark: SparkSession, table: MadeTable, **settings: str) -> SparkProcedures:
    return SparkProcedures(spark, "lake", iceberg(table).catalog_properties, settings, NAME)


def compacted(spark: SparkSession, table: MadeTable) -> Compaction:
    """Compact a table, and expire every snapshot that can expire."""
    return compact(iceberg(table), procedures(spark, table), expire_after=0)


def iceberg(table: MadeTable) -> IcebergTarget:
    found = table.target()
    assert isinstance(found, IcebergTarget)
    return found


def differences(table: MadeTable) -> tuple[int, tuple[object, ...], tuple[str, ...]]:
    opened = iceberg(table).open()
    found = verify(opened, table.planner().claimed(opened.state), lambda tasks: [task() for task in tasks])
    return found.rows, found.differences, found.notes


def test_small_files_become_one_and_the_next_run_continues(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """By the commands, on an SQL catalog; every other snapshot expires."""
    monkeypatch.chdir(tmp_path)
    archive, tsctl = MadeArchive(tmp_path / "archive"), runner(capfd)
    table = MadeTable(archive, tmp_path / "lake", catalog_name=CATALOG, sort_by=("offset",))
    content = {
        "archive": {"url": archive.location, "cluster": CLUSTER},
        "catalog": table.properties,
        "tables": {"backup.t": {"topics": "t", "sort_by": "offset"}},
    }
    Path("tables.yaml").write_text(json.dumps(content))
    for number in range(6):
        put(archive, number * 50, number * 50 + 50)
        assert tsctl("tables", "create").code == 0
        assert tsctl("tables", "run", "--workers", "1").code == 0
    assert len(table.paths()) == 6
    ended = tsctl("tables", "compact", "--expire-after", "0s", "--json")
    assert ended.code == 0, ended
    (document,) = ended.lines
    assert (document["rewritten"]["files"], document["rewritten"]["written"], document["files"]) == (6, 1, 1)
    assert document["expired"]["data_files"] == 6
    loaded = table.table
    assert [each.snapshot_id for each in loaded.snapshots()] == [table.head.snapshot_id]
    assert check(loaded, read_head(loaded)).finding is HeadFinding.SAME
    assert tsctl("tables", "verify", "--workers", "1").out == "backup.t: 300 rows, 0 differences\n"
    put(archive, 300, 350)
    assert "50 records in 1 file" in tsctl("tables", "run", "--workers", "1").out
    assert tsctl("tables", "verify", "--workers", "1").out == "backup.t: 350 rows, 0 differences\n"
    assert table.offsets() == list(range(350))
    committed = {each.rpartition("/")[2] for each in table.committed_files()}  # Hadoop writes file:/ for file:///
    assert {each.rpartition("/")[2] for each in table.files() if not each.endswith(".crc")} == committed


def test_a_catalog_of_spark_with_another_table_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing is rewritten or expired, in neither of them."""
    table, other = made(tmp_path / "one", runs=2), made(tmp_path / "other", runs=2)
    with pytest.raises(OperatorError, match=r"table backup\.t: the catalog of Spark has another table of this name"):
        compact(iceberg(table), procedures(spark, other), expire_after=0)
    assert [len(each.table.snapshots()) for each in (table, other)] == [3, 3]


def test_what_spark_lacks_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """The session has no class of that name, as without Iceberg's jars."""
    table = made(tmp_path, runs=1)
    lacking = procedures(spark, table, **{"spark.sql.catalog.lake": "org.example.Missing"})
    with pytest.raises(
        OperatorError, match=r"org\.example\.Missing.*iceberg-spark-runtime-4\.1_2\.13:.*sqlite-jdbc:.*spark\.jars"
    ):
        compact(iceberg(table), lacking, expire_after=0)


@pytest.mark.full
def test_rows_that_an_election_removed_after_a_compaction_are_replaced(spark: SparkSession, tmp_path: Path) -> None:
    """A run writes the file again that Spark wrote."""
    table = made(tmp_path, policy=Policy(on_taken_back=OnTakenBack.DELETE), partition_by=("day(timestamp)",))
    compacted(spark, table)
    table.archive.put_segment("t", 370, batches(*steps(370, 420), epoch=1), variant=True)
    table.archive.commit("t", 420, epochs=((0, 0), (1, 370)), highest_base=370, last_stable_offset=420)
    assert table.run().records == 50
    assert table.offsets() == list(range(420))
    assert differences(table) == (420, (), ())
    compacted(spark, table)
    assert differences(table) == (420, (), ())


@pytest.mark.full
def test_a_partitioned_and_sorted_table_keeps_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    """With NULL keys, values and headers, several days, and times after the year 9999."""
    table = MadeTable(
        MadeArchive(tmp_path / "archive"),
        tmp_path / "lake",
        partition_by=("day(timestamp)", "bucket(3, key)", "topic"),
        sort_by=("key", "offset"),
    )
    table.create()
    times = [0, 20_000 * DAY_MS + 1, -DAY_MS * 3, 4_000_000 * DAY_MS]
    for number in range(24):
        records = [
            record(
                delta,
                None if delta % 5 == 0 else b"key %d" % (delta % 7),
                None if delta % 3 == 0 else b"value" * delta,
                headers=[(b"h", None), (b"h", b"x")] if delta % 2 else [],
            )
            for delta in range(50)
        ]
        start = number * 50
        data = batch(start, records, base_timestamp=times[number % 4])
        table.archive.put_segment("t", start, data)
        table.archive.commit("t", start + 50, highest_base=start, last_stable_offset=start + 50)
        table.run()
    before, files = table.arrow(), len(table.paths())
    for _ in range(2):
        compacted(spark, table)
        assert table.arrow().equals(before)
        assert differences(table) == (1200, (), ())
    assert len(table.paths()) < files / 5
    assert {task.file.sort_order_id for task in table.table.scan().plan_files()} == {table.table.sort_order().order_id}
    iceberg(table).open()


class Interrupted(SparkProcedures):
    """Calls a function after the rewriting."""

    def __init__(self, meanwhile: Callable[[], None], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._meanwhile = meanwhile

    def rewrite(self, *, is_sorted: bool) -> Rewritten:
        found = super().rewrite(is_sorted=is_sorted)
        self._meanwhile()
        return found


@pytest.mark.full
def test_a_run_that_commits_while_spark_compacts_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    """It commits between the rewriting and the tag's move; another one between that one's check and its commit."""
    table = made(tmp_path)

    def add(start: int) -> None:
        put(table.archive, start, start + 50)
        table.run()

    target = iceberg(table)
    adopt, adopted = target.adopt, []

    def adopt_later(opened: Any) -> None:
        adopted.append(opened.head)
        adopt(opened)

    target.adopt = adopt_later  # type: ignore[method-assign]
    properties = target.catalog_properties
    compact(target, Interrupted(lambda: add(400), spark, "lake", properties, {}, NAME), expire_after=0)
    assert adopted == []  # the run had moved the tag
    assert differences(table) == (450, (), ())

    def adopt_after_a_run(opened: Any) -> None:
        if not adopted:
            add(600)
        adopt_later(opened)

    for start in (450, 500, 550):
        add(start)
    target.adopt = adopt_after_a_run  # type: ignore[method-assign]
    compact(target, procedures(spark, table), expire_after=0)
    assert len(adopted) == 1
    assert differences(table)[1:] == ((), ())
    assert table.run().commits == 0
    assert table.offsets() == list(range(650))


@pytest.mark.full
def test_a_run_that_planned_before_the_tag_moved_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """The next one adds its rows, once."""
    table = made(tmp_path)
    put(table.archive, 400, 450)
    target = iceberg(table)
    commit = target.commit

    def commit_after_a_compaction(*arguments: Any) -> Any:
        compacted(spark, table)
        return commit(*arguments)

    target.commit = commit_after_a_compaction  # type: ignore[method-assign, assignment]
    with pytest.raises(HeadMoved):
        run(table, target)
    assert table.run().records == 50
    assert differences(table) == (450, (), ())


@pytest.mark.full
def test_a_compaction_ends_an_erasure(spark: SparkSession, tmp_path: Path) -> None:
    """Of the table and of its refused records: both files from before the run are removed, and `claims/` has it."""
    archive = MadeArchive(tmp_path / "archive")
    parser = {"type": "json", "columns": {"id": "long"}}
    made = Made(archive, tmp_path / "lake", "iceberg", {"parser": parser})
    values = [b'{"id":1}', b"canary-5d0c91f2"] * 10
    made.put_values(0, values)
    made.tables.create(NAME_OF_MADE)
    made.tables.run(NAME_OF_MADE)
    put_erased(archive.store, archive.partition("t"), [(0, 2, 0), (5, 6, 0)])
    assert made.tables.obey(NAME_OF_MADE).records == 3
    assert len([*remaining_in_tables(archive.store, archive.keys, {"t-0": 1})]) == 1
    made.tables.compact(NAME_OF_MADE, expire_after=0, spark=spark)
    assert [*remaining_in_tables(archive.store, archive.keys, {"t-0": 1})] == []
    assert made.select("select count(*) from {}") == [(9,)]
    assert made.select("select count(*) from {}", "_quarantine") == [(8,)]
    assert len([*(tmp_path / "lake").rglob("*.parquet")]) == 2
    assert made.tables.verify(NAME_OF_MADE).differences == ()
