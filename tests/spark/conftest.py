"""An empty archive, and what PySpark leaves behind in every test."""

from pathlib import Path

import pytest

from tests.spark.archives import Archive


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore warnings of sockets: PySpark leaves those of results to the garbage collector."""
    for item in items:
        if item.nodeid.startswith("tests/spark/"):  # many times faster than paths, of all tests
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """An empty one, to be filled by hand."""
    return Archive(tmp_path / "store")
