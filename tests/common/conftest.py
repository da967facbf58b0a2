"""The archive and the store that tests of this folder fill."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.made_archive import MadeArchive
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[MadeArchive]:
    """Yield an empty archive in a directory."""
    made = MadeArchive(tmp_path / "store")
    with made.store:
        yield made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    """Yield an empty store."""
    with open_store(tmp_path.as_uri()) as opened:
        yield opened
