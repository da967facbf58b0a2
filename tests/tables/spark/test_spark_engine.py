"""Runs of a table by Spark: the same splits, files and commits as by processes."""

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.made_archive import MadeArchive
from tests.tables.made_tables import MadeTable, put
from ts_common.errors import CorruptData
from ts_tables.engines.spark import SparkEngine
from ts_tables.files.layout import FileFormat
from ts_tables.files.raw_columns import RAW_SCHEMA
from ts_tables.run import run_once
from ts_tables.verify.run import verify


@pytest.fixture(params=[None, pytest.param(FileFormat.PARQUET, marks=pytest.mark.full)], ids=["iceberg", "plain"])
def table(tmp_path: Path, request: pytest.FixtureRequest) -> MadeTable:
    archive = MadeArchive(tmp_path / "archive")
    for partition in range(3):
        put(archive, 0, 50, partition)
    made = MadeTable(archive, tmp_path / "lake", partition_by=("day(timestamp)",), format=request.param)
    made.create()
    return made


def test_spark_adds_and_compares_the_same_rows(spark: SparkSession, table: MadeTable) -> None:
    """A run, a second one, and a verification."""
    engine = SparkEngine(spark)
    assert run_once(table.target(), table.planner(), engine).records == 150
    put(table.archive, 50, 80, 1)
    assert run_once(table.target(), table.planner(), engine).records == 30
    assert [table.offsets(partition) for partition in range(3)] == [[*range(50)], [*range(80)], [*range(50)]]
    opened = table.target().open()
    found = verify(opened, table.planner().claimed(opened.state), engine)
    assert (found.rows, found.differences, found.notes) == (180, (), ())
    assert table.files() == table.committed_files()
    if table.format is not None:
        columns = RAW_SCHEMA.names
        read = spark.read.parquet(f"{table.directory}/files").select(columns).orderBy("_partition_id", "_offset")
        assert [row.asDict(recursive=True) for row in read.drop("timestamp").collect()] == [
            {name: value for name, value in row.items() if name != "timestamp"} for row in table.rows()
        ]


@dataclass(frozen=True)
class KilledOnce:
    """Runs a task; its first attempt is killed after it has written its files."""

    task: Callable[[], Any]
    marker: Path

    def __call__(self) -> Any:
        answer = self.task()
        if not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return answer


def test_an_attempt_that_is_lost_leaves_no_row_and_no_file(
    spark: SparkSession, table: MadeTable, tmp_path: Path
) -> None:
    """Spark runs each task again; the files of the first attempts are removed."""
    engine = SparkEngine(spark)

    def killing(tasks: Sequence[Callable[[], Any]]) -> list[Any]:
        return engine([KilledOnce(task, tmp_path / f"killed-{number}") for number, task in enumerate(tasks)])

    summary = run_once(table.target(), table.planner(), killing)
    assert (summary.records, summary.removed) == (150, 3)
    assert [table.offsets(partition) for partition in range(3)] == [[*range(50)]] * 3
    assert table.files() == table.committed_files()


def fail(message: str) -> None:
    raise CorruptData(message)


def test_an_error_of_a_task_is_raised_as_it_is(spark: SparkSession) -> None:
    """Without Spark's traceback, and without a second attempt."""
    with pytest.raises(CorruptData, match=r"^damaged$"):
        SparkEngine(spark)([partial(fail, "damaged"), partial(int, "7")])
    assert SparkEngine(spark)([]) == []
