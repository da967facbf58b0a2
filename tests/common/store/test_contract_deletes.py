"""The contract of `ts_common.store.contract` for conditional deletes, checked with every driver."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.common.store.contract import keys_of, outcomes
from ts_common.errors import ObjectNotFound, PreconditionFailed
from ts_common.store.contract import DeleteOutcome, IfAbsent, IfMatch, ObjectStore

ROUNDS = 12


def test_a_conditional_delete_removes_objects_that_have_their_etags(store: ObjectStore) -> None:
    """ETags of put, head, get and listing; a missing object counts as removed, and a repeat has no effect."""
    put = store.put("t-0/put", b"1", metadata={"n": "1"})
    for key in ("t-0/head", "t-0/get", "t-0/list", "t-0/stays"):
        store.put(key, key.encode(), metadata={"key": key})
    etags = {
        "t-0/put": put.etag,
        "t-0/head": store.head("t-0/head").etag,
        "t-0/get": store.get("t-0/get")[1].etag,
        "t-0/list": next(store.list("t-0/list")).etag,
        "never/was": put.etag,
        "t-0": put.etag,
    }
    for _ in range(2):
        assert store.delete_matching(etags) == DeleteOutcome(tuple(etags), (), {})
        assert keys_of(store) == ["t-0/stays"]
    assert store.delete_matching({}) == DeleteOutcome((), (), {})
    with pytest.raises(ObjectNotFound):
        store.head("t-0/put")
    store.put("t-0/put", b"other", condition=IfAbsent())
    assert dict(store.head("t-0/put").metadata) == {}


def test_a_conditional_delete_keeps_an_object_with_another_etag(store: ObjectStore) -> None:
    """A plan that is run again after an election removes no living record, and its caller reads which ones it named."""
    planned = {key: store.put(key, b"planned", metadata={"n": "1"}).etag for key in ("a/1", "a/2", "a/3", "a/4")}
    store.put("a/2", b"living", metadata={"n": "2"})
    store.delete(["a/4"])
    living = store.put("a/4", b"also living", condition=IfAbsent())
    for _ in range(2):
        assert store.delete_matching(planned) == DeleteOutcome(("a/1", "a/3"), ("a/2", "a/4"), {})
    assert keys_of(store) == ["a/2", "a/4"]
    content, info = store.get("a/2")
    assert (content, dict(info.metadata)) == (b"living", {"n": "2"})
    assert store.get("a/4") == (b"also living", living)


def test_an_object_that_is_overwritten_at_once_is_not_removed(store: ObjectStore) -> None:
    """If an overwrite and a delete have the same ETag, the delete removes the former object or none."""
    with ThreadPoolExecutor(2) as threads:
        for number in range(ROUNDS):
            key = f"key-{number}"
            etag = store.put(key, b"former").etag
            barrier = threading.Barrier(2)

            def overwrite(key: str = key, etag: str = etag, barrier: threading.Barrier = barrier) -> bool:
                barrier.wait()
                try:
                    store.put(key, b"new", condition=IfMatch(etag))
                except PreconditionFailed:
                    return False
                return True

            def delete(key: str = key, etag: str = etag, barrier: threading.Barrier = barrier) -> DeleteOutcome:
                barrier.wait()
                return store.delete_matching({key: etag})

            written, deleted = threads.submit(overwrite), threads.submit(delete)
            assert deleted.result().failed == {}
            if written.result():
                assert store.get(key)[0] == b"new"
            else:
                assert deleted.result().removed == (key,)
                assert keys_of(store, key) == []


def test_conditional_deletes_of_the_same_objects_at_once_all_succeed(store: ObjectStore) -> None:
    """Two collectors run one plan: each object is removed, and no object is kept or fails."""
    etags = {f"t-0/{number}.log": store.put(f"t-0/{number}.log", b"x").etag for number in range(10)}
    found = outcomes(4, lambda _: store.delete_matching(etags))
    assert found == [DeleteOutcome(tuple(etags), (), {})] * 4
    assert keys_of(store) == []


@pytest.mark.parametrize("etag", ["", '""', "*", '"*"', '"a\n"', '"\u00e9"'])
def test_an_etag_that_is_no_objects_removes_nothing(store: ObjectStore, etag: str) -> None:
    """A damaged plan could otherwise remove any object; those before it stay too."""
    planned = {"a": store.put("a", b"1").etag, "b": etag}
    store.put("b", b"2")
    with pytest.raises(ValueError, match=r"b: not the ETag"):
        store.delete_matching(planned)
    assert keys_of(store) == ["a", "b"]
