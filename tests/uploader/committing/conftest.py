"""The commits of a real store (a directory), and readers without their backoff."""

import pytest
from tenacity import wait_none

from tests.uploader.local_directory import CLUSTER
from ts_common.archive import catalog as catalogs
from ts_common.store.contract import ObjectStore
from ts_uploader.committing.commit_log import CommitLog


@pytest.fixture
def commits(store: ObjectStore) -> CommitLog:
    return CommitLog(CLUSTER, 1, lambda _: store)


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the backoff of readers; the number of their attempts stays."""
    monkeypatch.setattr(catalogs, "_POLICY", catalogs._POLICY.copy(wait=wait_none()))
