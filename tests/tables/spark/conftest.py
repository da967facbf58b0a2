"""A Spark session with Iceberg's jars, and what PySpark leaves behind in every test."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dev.local.jars import iceberg_jars
from tests.spark_sessions import local_session


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two cores; a task that fails is tried again."""
    settings = {
        "spark.driver.extraClassPath": ":".join(map(str, iceberg_jars())),  # `spark.jars` copies them
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # its code runs once
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_DIRS", str(tmp_path_factory.mktemp("spark")))
        with local_session(tmp_path_factory.mktemp("warehouse"), "local[2, 4]", settings) as session:
            yield session


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore warnings of sockets: PySpark leaves those of results to the garbage collector."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
