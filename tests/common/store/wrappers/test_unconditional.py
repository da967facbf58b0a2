from pathlib import Path

import pytest

from ts_common.errors import ObjectNotFound, PreconditionFailed
from ts_common.store.contract import IfAbsent, IfMatch
from ts_common.store.factory import open_store


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
        store.delete(["b"])
        assert [info.key for info in store.list()] == ["a"]
