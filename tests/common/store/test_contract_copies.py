"""The contract of `ts_common.store.contract` for copies, checked with every driver."""

import pytest

from tests.common.store.conftest import Place
from tests.common.store.contract import LARGE, keys_of, outcomes
from ts_common.errors import BucketMissing, ObjectNotFound, PreconditionFailed, TieredStorageError
from ts_common.store.contract import IfAbsent, IfMatch, ObjectStore
from ts_common.store.factory import open_store

STAGED = "staged/run-1/0.parquet"
FINAL = "data/topic=orders/0.parquet"


@pytest.mark.parametrize("content", [b"", b"content", LARGE], ids=["empty", "small", "large"])
def test_a_copy_has_the_bytes_of_its_source(store: ObjectStore, content: bytes) -> None:
    """The result of the copy, a head and a listing agree on key, size and ETag."""
    store.put(STAGED, content, metadata={"n": "1"})
    copied = store.copy_if_absent(STAGED, FINAL)
    got, info = store.get(FINAL)
    assert got == content
    assert (copied.key, copied.size, copied.etag) == (FINAL, len(content), info.etag)
    head = store.head(FINAL)
    assert (head.key, head.size, head.etag) == (FINAL, len(content), info.etag)
    assert abs(head.modified - copied.modified) < 5
    (listed,) = store.list("data/")
    assert (listed.key, listed.size, listed.etag.strip('"')) == (FINAL, len(content), info.etag.strip('"'))


def test_the_source_of_a_copy_stays(store: ObjectStore, place: Place) -> None:
    """Only HDFS renames it."""
    store.put(STAGED, b"content", metadata={"n": "1"})
    store.copy_if_absent(STAGED, FINAL)
    if place.kind == "webhdfs":
        assert keys_of(store) == [FINAL]
        return
    content, info = store.get(STAGED)
    assert (content, dict(info.metadata)) == (b"content", {"n": "1"})
    assert keys_of(store) == [FINAL, STAGED]


def test_a_copy_stays_after_its_source_is_deleted(store: ObjectStore) -> None:
    """Each name is removed alone."""
    store.put(STAGED, b"content", metadata={"n": "1"})
    store.copy_if_absent(STAGED, FINAL)
    store.delete([STAGED])
    assert store.get(FINAL)[0] == b"content"
    assert keys_of(store) == [FINAL]
    store.delete([FINAL])
    assert keys_of(store) == []


def test_a_source_that_is_overwritten_leaves_its_copy(store: ObjectStore) -> None:
    """A copy has the content that the source had; to overwrite the copy leaves the source."""
    store.put("a", b"first", metadata={"n": "1"})
    etag = store.copy_if_absent("a", "b").etag
    store.put("a", b"second", metadata={"n": "2"})
    assert store.get("b")[0] == b"first"
    store.put("b", b"third", metadata={"n": "3"}, condition=IfMatch(etag))
    assert (store.get("a")[0], store.get("b")[0]) == (b"second", b"third")
    assert [dict(store.head(key).metadata) for key in ("a", "b")] == [{"n": "2"}, {"n": "3"}]


def test_a_copy_to_an_existing_name_is_refused(store: ObjectStore) -> None:
    """Neither object changes, whatever wrote the target: a put or a copy."""
    store.put(STAGED, b"content")
    before = store.put(FINAL, b"other", metadata={"n": "1"})
    with pytest.raises(PreconditionFailed):
        store.copy_if_absent(STAGED, FINAL)
    content, info = store.get(FINAL)
    assert (content, info.etag, dict(info.metadata)) == (b"other", before.etag, {"n": "1"})
    assert store.get(STAGED)[0] == b"content"
    store.copy_if_absent(STAGED, "second")
    store.put(STAGED, b"newer")
    with pytest.raises(PreconditionFailed):
        store.copy_if_absent(STAGED, "second")
    assert store.get("second")[0] == b"content"


def test_a_copy_of_a_missing_source_is_not_found(store: ObjectStore) -> None:
    """Nothing is written; the same for a source that was deleted, and for a directory."""
    store.put(STAGED, b"content")
    store.delete([STAGED])
    store.put("staged/other", b"x")
    for source in (STAGED, "never/was", "staged"):
        with pytest.raises(ObjectNotFound):
            store.copy_if_absent(source, FINAL)
    assert keys_of(store) == ["staged/other"]
    with pytest.raises(ObjectNotFound):
        store.head(FINAL)
    store.put(FINAL, b"free", condition=IfAbsent())


def test_copies_of_sixteen_threads_to_one_name_have_one_winner(store: ObjectStore) -> None:
    """The target is the source of the one successful copy; all others are rejected."""
    for number in range(16):
        store.put(f"staged/{number}", b"%02d" % number)
    found = outcomes(16, lambda number: store.copy_if_absent(f"staged/{number}", FINAL).etag)
    (winner,) = [number for number, outcome in enumerate(found) if isinstance(outcome, str)]
    assert found.count(PreconditionFailed) == 15
    content, info = store.get(FINAL)
    assert (content, info.etag) == (b"%02d" % winner, found[winner])


@pytest.mark.parametrize("key", ["topic=a b%2F+ü/x?y#z&.parquet", ".hidden/~'()!*,;@$.parquet", "%/\u4e16\U0001f600"])
def test_keys_of_a_copy_are_encoded(store: ObjectStore, key: str) -> None:
    """Characters that URLs and headers reserve are part of the keys."""
    store.put(f"staged/{key}", b"content")
    assert store.copy_if_absent(f"staged/{key}", f"data/{key}").key == f"data/{key}"
    assert store.get(f"data/{key}")[0] == b"content"
    assert keys_of(store, "data/") == [f"data/{key}"]


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "."])
def test_a_copy_of_or_to_an_invalid_key_is_refused(store: ObjectStore, key: str) -> None:
    """Both keys are checked before anything is written."""
    store.put("a", b"x")
    for source, target in ((key, "b"), ("a", key)):
        with pytest.raises(ValueError, match="not a key") as raised:
            store.copy_if_absent(source, target)
        assert isinstance(raised.value, TieredStorageError)
    with pytest.raises(ValueError, match="another key"):
        store.copy_if_absent("a", "a")
    assert keys_of(store) == ["a"]


def test_a_copy_in_a_missing_bucket_or_directory_is_an_error(place: Place) -> None:
    """It is not a missing source, and nothing is created."""
    with open_store(place.missing) as store:
        with pytest.raises(BucketMissing, match="missing"):
            store.copy_if_absent("a", "b")
        with pytest.raises(BucketMissing, match="missing"):
            store.check()
