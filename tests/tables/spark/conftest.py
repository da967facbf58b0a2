"""A Spark session with Iceberg's jars, and what PySpark leaves behind in every test."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from dev.local.spark import local_session


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two cores; a task that fails is tried again."""
    modules = ["ts_tables.run", "ts_tables.iceberg.target"]
    with local_session(tmp_path_factory.mktemp("spark"), "local[2, 4]", modules=modules) as session:
        yield session


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore warnings of sockets: PySpark leaves those of results to the garbage collector."""
    for item in items:
        if item.nodeid.startswith("tests/tables/spark/"):  # many times faster than paths, of all tests
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
