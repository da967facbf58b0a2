from collections.abc import Mapping
from pathlib import Path

import pytest

from ts_common.errors import ObjectNotFound, PreconditionFailed, StoreUnavailable
from ts_common.store.contract import DeleteOutcome, IfAbsent, IfMatch, ObjectInfo
from ts_common.store.directory.driver import FileStore
from ts_common.store.factory import open_store
from ts_common.store.wrappers.unconditional import UnconditionalStore


def test_conditions_are_still_looked_at(tmp_path: Path) -> None:
    """A store without conditional writes rejects a put over an existing object; only races are lost."""
    with open_store(tmp_path.as_uri(), conditional_writes=False) as store:
        first = store.put("a", b"1", condition=IfAbsent())
        with pytest.raises(PreconditionFailed):
            store.put("a", b"2", condition=IfAbsent())
        second = store.put("a", b"2", condition=IfMatch(first.etag))
        with pytest.raises(PreconditionFailed):
            store.put("a", b"3", condition=IfMatch(first.etag))
        with pytest.raises(PreconditionFailed):
            store.put("b", b"3", condition=IfMatch(first.etag))
        assert store.get("a") == (b"2", second)
        with pytest.raises(PreconditionFailed):
            store.copy_if_absent("never", "a")
        with pytest.raises(ObjectNotFound):
            store.copy_if_absent("never", "b")
        store.copy_if_absent("a", "b")
        assert store.delete_matching({"b": first.etag}).kept == ("b",)
        store.delete(["b"])
        assert [info.key for info in store.list()] == ["a"]


class Careless(FileStore):
    """A store that ignores the condition of a delete, and does not answer HEAD of one key."""

    def head(self, key: str) -> ObjectInfo:
        if key == "silent":
            raise StoreUnavailable("no answer")
        return super().head(key)

    def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
        self.delete(etags)
        return DeleteOutcome(tuple(etags), (), {})


def test_another_object_is_kept_where_the_store_ignores_the_condition_of_a_delete(tmp_path: Path) -> None:
    """HEAD is sent first; without its answer nothing is removed."""
    with UnconditionalStore(Careless(tmp_path), threads=1) as store:
        etags = {key: store.put(key, b"1").etag for key in ("a", "b", "c", "silent")}
        store.put("b", b"2")
        store.delete(["c"])
        outcome = store.delete_matching(etags)
        assert (outcome.removed, outcome.kept, list(outcome.failed)) == (("a", "c"), ("b",), ["silent"])
        assert [info.key for info in store.list()] == ["b", "silent"]
