"""Archives that tests fill or read, and logs that no test configures for the others."""

from pathlib import Path

import pytest

from tests.made_archive import batches, steps
from tests.reader.archives import ScannedArchive
from tests.reader.shapes import fill


@pytest.fixture
def archive(tmp_path: Path) -> ScannedArchive:
    """Return an empty archive in a directory."""
    return ScannedArchive(tmp_path / "store")


@pytest.fixture(autouse=True)
def _logs_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep `Archive` from configuring structlog, because loggers then keep this configuration for later tests."""
    monkeypatch.setattr("ts_reader.archive.structlog.is_configured", lambda: True)


@pytest.fixture(scope="package")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> ScannedArchive:
    """Return an archive with every shape of batch."""
    made = ScannedArchive(tmp_path_factory.mktemp("shapes") / "store")
    fill(made)
    return made


@pytest.fixture
def three(archive: ScannedArchive) -> ScannedArchive:
    """Return topic `t`: segments [0, 100), [100, 200), [200, 300); the record at `o` has the timestamp 1000 + o."""
    for base in (0, 100, 200):
        archive.put_segment("t", base, batches(*steps(base, base + 100)))
    archive.commit("t", 300, highest_base=200)
    return archive


@pytest.fixture
def two(archive: ScannedArchive) -> ScannedArchive:
    """Return topic `t` in two partitions of three segments; the record at offset `o` has the timestamp 1000 + o."""
    for partition in range(2):
        for base in (0, 100, 200):
            archive.put_segment("t", base, batches(*steps(base, base + 100)), partition=partition)
        archive.commit("t", 300, highest_base=200, partition=partition)
    return archive
