"""Spark sessions of tests: each in a JVM of its own, which ends with it.

A start and a query need a third of the processor time of Spark's own:
- The JVM starts from a class archive, as the servers do (`dev.local.jvm`), and compiles as they do.
- Spark lists zip files and a jar in `PYTHONPATH`, so that a worker compiles PySpark from a zip file when it starts, and
  reads the directories of these files again before each task. Workers of these sessions import the installed PySpark.
- Workers that run tasks or plan queries are forks of processes that have imported the heavy modules.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from dev.local.environment import spark_variables
from dev.local.jars import iceberg_jars
from dev.local.jvm import FAST_START, class_archive

# Spark passes `-m pyspark.daemon pyspark.worker` for the process whose forks run tasks. It passes other modules for
# those whose forks make a source, once for each query, and plan it.
_PYTHON: Final = """#!/bin/sh
unset PYTHONPATH modules
case "$3" in
  pyspark.worker) modules="{modules}" ;;
  pyspark.sql.worker.create_data_source | pyspark.sql.worker.plan_data_source_read) modules="$3, {planning}" ;;
esac
if [ "$modules" ]; then
  set -- -c "import gc, runpy, sys
import $modules
gc.freeze()
sys.argv = ['', '$3']
runpy.run_module('pyspark.daemon', run_name='__main__', alter_sys=True)"
fi
exec "{python}" "$@"
"""
_HEAVY: Final = ("pyspark.sql.pandas.serializers", "ts_reader.query.read_split", "ts_common.store.shared_stores")
_PLANNING: Final = ("ts_spark.source", "ts_reader.query.plan_query", "ts_common.store.shared_stores")
_EXIT_SECONDS: Final = 120.0  # the JVM writes a class archive while it exits


@contextmanager
def local_session(
    directory: Path,
    master: str = "local[2]",
    *,
    modules: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """Start a session without a page, in UTC, with Iceberg's jars.

    Args:
        directory: an empty one, for its files.
        master: its processors, and how often a task is tried.
        modules: further heavy ones of the tasks.
        environment: further variables of the JVM and the Python workers.
    """
    python = directory / "python"
    python.write_text(
        _PYTHON.format(python=sys.executable, modules=", ".join([*_HEAVY, *modules]), planning=", ".join(_PLANNING))
    )
    python.chmod(0o755)
    variables = {
        **spark_variables(),
        "PYSPARK_PYTHON": str(python),
        "SPARK_LOCAL_DIRS": str(directory / "local"),
        "SPARK_LAUNCHER_OPTS": " ".join(FAST_START),
        **(environment or {}),
    }
    builder: Any = SparkSession.builder.master(master)
    for name, value in {
        "spark.driver.extraClassPath": ":".join(map(str, iceberg_jars())),  # `spark.jars` copies them
        "spark.driver.extraJavaOptions": " ".join([*FAST_START, *class_archive("spark", "spark")]),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }.items():
        builder = builder.config(name, value)
    with patch.dict(os.environ, variables):
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        gateway = session.sparkContext._gateway
        yield session
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_EXIT_SECONDS)
    # A test process that starts another session needs another JVM: PySpark itself would use this one.
    SparkContext._gateway = SparkContext._jvm = None


def jars() -> list[Path]:
    """Return the jars of every session."""
    return [*iceberg_jars(), *sorted((Path(pyspark.__path__[0]) / "jars").glob("*.jar"))]


def run_examples(directory: Path) -> None:
    """Load the classes of a session, a query, Python workers and an Iceberg table.

    Args:
        directory: an empty one.
    """
    with local_session(directory) as spark:
        for name, value in {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop"}.items():
            spark.conf.set(f"spark.sql.catalog.example{name}", value)
        spark.conf.set("spark.sql.catalog.example.warehouse", (directory / "lake").as_uri())
        rows = (
            spark.range(10).selectExpr("id", "id % 2 AS part").mapInArrow(lambda batches: batches, "id long, part long")
        )
        rows.writeTo("example.numbers").using("iceberg").create()
        spark.table("example.numbers").groupBy("part").count().orderBy("part").toArrow()
        spark.read.parquet((directory / "lake/numbers/data").as_uri()).where("id > 5").collect()
