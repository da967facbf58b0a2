"""Certificates and users that the tests of this folder share."""

from pathlib import Path

import pytest

from dev.local.certificates import Certificates
from ts_endpoint.security.user_entries import add_user


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def users_file(tmp_path: Path) -> Path:
    """A file with user alice, whose password is `correct horse`."""
    file = tmp_path / "users.yaml"
    add_user(file, "alice", "correct horse", topics=["orders"], groups=["g*"], iterations=4096)
    return file
