"""What drivers inherit about the bucket: a store without rules, versions and locks."""

from pathlib import Path

import pytest

from ts_common.errors import ObjectNotFound
from ts_common.store.directory.driver import FileStore
from ts_common.store.protection import Lock, Protection


class Locking(FileStore):
    """A directory whose objects are locked, and one of them was removed."""

    def locked_until(self, key: str) -> Lock | None:
        if key == "removed":
            raise ObjectNotFound(key)
        return Lock(10, legal_hold=False, mode="GOVERNANCE")


def test_a_store_without_lifecycle_rules_reports_that_it_has_no_such_rules(tmp_path: Path) -> None:
    """None differs from an empty tuple, which means that the store has rules and none applies."""
    with FileStore(tmp_path) as store:
        assert store.lifecycle_rules() is None


def test_a_store_without_versions_and_locks_reports_that_it_has_neither(tmp_path: Path) -> None:
    """A delete in a directory removes the bytes."""
    with FileStore(tmp_path) as store:
        store.put("a", b"x")
        assert store.protection() == Protection(versioned=False, locks=False, default_retention=None)
        assert store.locked_until("a") is None
        assert store.locked(["a", "b"], 0) == {}
        assert store.hidden_bytes() is None


def test_a_missing_object_has_no_lock_among_others(tmp_path: Path) -> None:
    """It was removed since the listing; the lock of each other one is read."""
    with Locking(tmp_path) as store:
        assert store.locked(["a", "removed", "b"], 9).keys() == {"a", "b"}
        assert store.locked(["a"], 10) == {}
        with pytest.raises(ObjectNotFound):
            store.locked_until("removed")
