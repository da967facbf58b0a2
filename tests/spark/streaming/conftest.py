"""The archive that streams read."""

import pytest

from tests.made_archive import batches, steps
from tests.spark.archives import Archive


@pytest.fixture
def two(archive: Archive) -> Archive:
    """Return topic `t` with the segments [0, 100) and [100, 200), the first one committed."""
    for base in (0, 100):
        archive.put_segment("t", base, batches(*steps(base, base + 100)))
    archive.commit("t", 100)
    return archive
