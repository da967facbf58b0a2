"""Spark sessions of tests: each in a JVM of its own, which ends with it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession


@contextmanager
def local_session(
    directory: Path, master: str = "local[2]", settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Start a session without a page, in UTC.

    Args:
        directory: of its warehouse.
        master: its processors, and how often a task is tried.
        settings: further ones.
    """
    builder = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(directory))
    )
    for name, value in (settings or {}).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    gateway = session.sparkContext._gateway
    yield session
    session.stop()
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)
    # A test process that starts another session needs another JVM: PySpark itself would use this one.
    SparkContext._gateway = SparkContext._jvm = None
