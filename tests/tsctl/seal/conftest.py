"""The key of a sealer."""

from pathlib import Path

import pytest

from tests.tsctl.seal.sealed import Keys


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)
