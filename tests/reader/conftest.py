"""An empty archive, and logs that no test configures for the others."""

from pathlib import Path

import pytest

from tests.reader.archives import ScannedArchive


@pytest.fixture
def archive(tmp_path: Path) -> ScannedArchive:
    """Return an empty archive in a directory."""
    return ScannedArchive(tmp_path / "store")


@pytest.fixture(autouse=True)
def _logs_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep `Archive` from configuring structlog, because loggers then keep this configuration for later tests."""
    monkeypatch.setattr("ts_reader.archive.structlog.is_configured", lambda: True)
