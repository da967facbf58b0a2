"""The archive that tests of this folder fill."""

from pathlib import Path

import pytest

from tests.made_archive import MadeArchive


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    """Return an empty archive in a directory."""
    return MadeArchive(tmp_path / "store")
