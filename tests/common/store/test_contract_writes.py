"""The contract of `ts_common.store.contract` for puts, conditions and deletes, checked with every driver."""

import io
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from awscrt.checksums import crc32c

from tests.common.store.conftest import Place
from tests.common.store.contract import LARGE, keys_of, outcomes
from ts_common.errors import (
    AccessDenied,
    BucketMissing,
    CorruptData,
    ObjectNotFound,
    PreconditionFailed,
    SegmentChanged,
    TieredStorageError,
)
from ts_common.store.contract import IfAbsent, IfMatch, ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.wrappers.bandwidth import Allowance


def test_what_is_put_is_got(store: ObjectStore) -> None:
    """Get and head return bytes, size, ETag, time and metadata of the put."""
    metadata = {"coverage": "0-100", "epochs": "[[1, 0], [2, 50]]"}
    put = store.put("topic-0/00000000000000000000.log", b"content", metadata=metadata)
    content, got = store.get("topic-0/00000000000000000000.log")
    head = store.head("topic-0/00000000000000000000.log")
    assert content == b"content"
    assert put.key == got.key == head.key == "topic-0/00000000000000000000.log"
    assert put.size == got.size == head.size == 7
    assert put.etag == got.etag == head.etag
    assert dict(put.metadata) == dict(got.metadata) == dict(head.metadata) == metadata
    assert got.modified == head.modified
    assert abs(put.modified - got.modified) < 5


def test_an_empty_object_is_an_object(store: ObjectStore) -> None:
    """A .txnindex may be empty; it is found, listed and read."""
    store.put("t-0/0.txnindex", b"", condition=IfAbsent())
    assert store.get("t-0/0.txnindex")[0] == b""
    assert store.head("t-0/0.txnindex").size == 0
    assert keys_of(store) == ["t-0/0.txnindex"]


def test_an_unconditional_put_replaces_content_and_metadata(store: ObjectStore) -> None:
    """Nothing of the former object is left, even if the new one has no metadata."""
    first = store.put("key", b"first", metadata={"number": "1", "old": "yes"})
    second = store.put("key", b"second", metadata={"number": "2"})
    assert first.etag != second.etag
    assert store.get("key")[0] == b"second"
    assert dict(store.head("key").metadata) == {"number": "2"}
    store.put("key", b"third")
    assert dict(store.get("key")[1].metadata) == {}


def test_if_absent_writes_once(store: ObjectStore) -> None:
    """The second writer is rejected, and neither content nor metadata changes."""
    first = store.put("key", b"first", metadata={"by": "one"}, condition=IfAbsent())
    with pytest.raises(PreconditionFailed):
        store.put("key", b"other", metadata={"by": "two"}, condition=IfAbsent())
    content, info = store.get("key")
    assert content == b"first"
    assert info.etag == first.etag
    assert dict(info.metadata) == {"by": "one"}
    assert keys_of(store) == ["key"]


def test_if_absent_of_sixteen_threads_has_one_winner(store: ObjectStore) -> None:
    """The object is that of the one successful writer; all others are rejected."""
    found = outcomes(
        16, lambda number: store.put("key", b"%d" % number, metadata={"by": str(number)}, condition=IfAbsent()).etag
    )
    (winner,) = [number for number, outcome in enumerate(found) if isinstance(outcome, str)]
    assert found.count(PreconditionFailed) == 15
    content, info = store.get("key")
    assert content == b"%d" % winner
    assert dict(info.metadata) == {"by": str(winner)}


def test_if_match_of_sixteen_threads_has_one_winner(store: ObjectStore) -> None:
    """Among sixteen agents with the same commit, one moves it and fifteen are rejected."""
    before = store.put("offset.wm", b"before").etag
    found = outcomes(16, lambda number: store.put("offset.wm", b"after %02d" % number, condition=IfMatch(before)).etag)
    (winner,) = [number for number, outcome in enumerate(found) if isinstance(outcome, str)]
    assert found.count(PreconditionFailed) == 15
    assert store.get("offset.wm")[0] == b"after %02d" % winner


def test_if_match_writes_over_what_it_names(store: ObjectStore) -> None:
    """A condition accepts the ETag of put, head, get and listing."""
    etag = store.put("key", b"put").etag
    etag = store.put("key", b"head", metadata={"n": "2"}, condition=IfMatch(etag)).etag
    assert store.head("key").etag == etag
    store.put("key", b"get", condition=IfMatch(store.head("key").etag))
    store.put("key", b"list", condition=IfMatch(store.get("key")[1].etag))
    store.put("key", b"last", metadata={"n": "5"}, condition=IfMatch(next(store.list()).etag))
    content, info = store.get("key")
    assert content == b"last"
    assert dict(info.metadata) == {"n": "5"}


def test_if_match_over_something_else_is_refused(store: ObjectStore) -> None:
    """A stale ETag writes nothing, and neither does one for a missing object."""
    stale = store.put("key", b"first").etag
    store.put("key", b"second", metadata={"n": "2"})
    with pytest.raises(PreconditionFailed):
        store.put("key", b"third", condition=IfMatch(stale))
    assert store.get("key")[0] == b"second"
    assert dict(store.head("key").metadata) == {"n": "2"}
    with pytest.raises(PreconditionFailed):
        store.put("never", b"third", condition=IfMatch(stale))
    assert keys_of(store) == ["key"]


def test_contents_of_one_size_have_different_etags(store: ObjectStore) -> None:
    """A commit that changes between two reads always has another ETag, however quickly it changes."""
    etags = [store.put("offset.wm", b"%04d" % number).etag for number in range(50)]
    assert len(set(etags)) == 50


def test_a_reader_never_meets_a_mix_of_content_and_metadata(store: ObjectStore) -> None:
    """While a writer replaces an object repeatedly, readers see content and metadata of one put."""
    store.put("key", b"0", metadata={"n": "0"})
    done = threading.Event()

    def write() -> None:
        try:
            for number in range(1, 60):
                store.put("key", b"%d" % number, metadata={"n": str(number)})
        finally:
            done.set()

    with ThreadPoolExecutor(1) as writer:
        written = writer.submit(write)
        while not done.is_set():
            content, info = store.get("key")
            assert dict(info.metadata) == {"n": content.decode()}
        written.result()


@pytest.mark.parametrize("content", [b"0123456789", LARGE], ids=["small", "large"])
@pytest.mark.parametrize("checked", [True, False])
def test_of_a_reader_only_its_size_is_sent(store: ObjectStore, tmp_path: Path, content: bytes, checked: bool) -> None:
    """A segment that grows while it is shipped is sent up to its size, from any position of the reader."""
    path = tmp_path / "segment.log"
    path.write_bytes(content + b"what was appended since")
    with path.open("rb") as reader:
        reader.seek(7)
        put = store.put("key", reader, size=len(content), crc32c=crc32c(content) if checked else None)
    assert put.size == len(content)
    assert store.get("key")[0] == content


def test_a_body_is_never_held_as_a_whole(store: ObjectStore) -> None:
    """A body is read at most three times, in pieces of at most a megabyte and on average at least 64 KiB."""
    asked = []

    class Large(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            asked.append(size)
            return super().read(size)

    store.put("key", Large(LARGE), size=len(LARGE), condition=IfAbsent(), crc32c=crc32c(LARGE))
    assert all(size is not None and 0 < size <= 1 << 20 for size in asked)
    assert len(asked) <= 3 * len(LARGE) // (64 << 10)
    assert store.get("key")[0] == LARGE


@pytest.mark.parametrize("content", [b"0123456789", LARGE], ids=["small", "large"])
def test_a_reader_that_ends_early_writes_nothing(store: ObjectStore, content: bytes) -> None:
    """A segment that was truncated while it was shipped is no longer that segment."""
    with pytest.raises(SegmentChanged, match=str(len(content))):
        store.put("key", io.BytesIO(content), size=len(content) + 1, crc32c=crc32c(content))
    assert keys_of(store) == []


@pytest.mark.parametrize("content", [b"0123456789", LARGE], ids=["small", "large"])
def test_an_error_of_the_reader_is_raised_unchanged(store: ObjectStore, content: bytes) -> None:
    """An error of the local disk is not an error of the store, and nothing was written."""

    class Failing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError(5, "the disk is broken")

    with pytest.raises(OSError, match="the disk is broken"):
        store.put("key", Failing(content), size=len(content), crc32c=crc32c(content))
    assert keys_of(store) == []


@pytest.mark.parametrize("content", [b"0123456789", LARGE], ids=["small", "large"])
def test_bytes_of_another_checksum_are_refused(store: ObjectStore, content: bytes) -> None:
    """The bytes are compared with the caller's checksum."""
    with pytest.raises(CorruptData):
        store.put("key", io.BytesIO(content), size=len(content), crc32c=crc32c(content) ^ 1)
    with pytest.raises(CorruptData):
        store.put("key", content, crc32c=crc32c(content) ^ 1)
    assert keys_of(store) == []


def test_asynchronous_puts_carry_results_and_errors(store: ObjectStore) -> None:
    """A future has the result of `put`, or its exception."""
    futures = [store.put_async(f"key-{n:02}", b"%d" % n, metadata={"n": str(n)}) for n in range(32)]
    assert [future.result().key for future in futures] == [f"key-{n:02}" for n in range(32)]
    refused = store.put_async("key-00", b"again", condition=IfAbsent())
    assert isinstance(refused.exception(), PreconditionFailed)
    assert len(keys_of(store)) == 32


def test_closing_waits_for_puts_that_have_begun(place: Place) -> None:
    """A put that has begun is complete after `close`, which may be called twice."""
    began = threading.Event()

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            began.set()
            return super().read(size)

    store = open_store(place.location)
    future = store.put_async("key", Slow(LARGE), size=len(LARGE))
    assert began.wait(20)
    store.close()
    store.close()
    assert future.done()
    with open_store(place.location) as again:
        assert again.head("key").etag == future.result().etag


def test_deleted_objects_are_removed_and_a_second_delete_has_no_effect(store: ObjectStore) -> None:
    """Content, metadata and key are removed; a missing object counts as removed."""
    for key in ("a/1", "a/2", "b/1"):
        store.put(key, b"x", metadata={"k": key})
    store.delete(iter(["a/1", "b/1", "never/was", "a"]))
    store.delete(["a/1"])
    store.delete([])
    assert keys_of(store) == ["a/2"]
    with pytest.raises(ObjectNotFound):
        store.head("a/1")
    store.put("a/1", b"anew", condition=IfAbsent())
    assert dict(store.head("a/1").metadata) == {}


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "a/../b", ".", "..", "a/.", "./a"])
def test_keys_that_some_store_cannot_hold_are_refused_by_all(store: ObjectStore, key: str) -> None:
    """Every method rejects parts that are empty, `.` or `..`."""
    for ask in (
        lambda: store.put(key, b"x"),
        lambda: store.head(key),
        lambda: store.get(key),
        lambda: store.delete([key]),
        lambda: store.delete_matching({key: "etag"}),
    ):
        with pytest.raises(ValueError, match="not a key") as raised:
            ask()
        assert isinstance(raised.value, TieredStorageError)  # the object of this key waits, and all others continue
    assert keys_of(store) == []


@pytest.mark.parametrize(
    "metadata", [{"Upper": "x"}, {"": "x"}, {"x": "h\u00e9"}, {"x": "a\nb"}, {"x": " padded "}, {"x": "x" * 2048}]
)
def test_metadata_that_some_store_cannot_hold_is_refused_by_all(store: ObjectStore, metadata: dict[str, str]) -> None:
    """Metadata that S3 would change or reject is rejected before anything is written."""
    with pytest.raises(ValueError, match="metadata"):
        store.put("key", b"x", metadata=metadata)
    assert keys_of(store) == []


def test_a_body_without_its_size_is_refused(store: ObjectStore) -> None:
    """A reader requires a size, and bytes have their own."""
    with pytest.raises(ValueError, match="size"):
        store.put("key", io.BytesIO(b"x"))
    with pytest.raises(ValueError, match="size"):
        store.put("key", b"xyz", size=2)
    assert keys_of(store) == []


def test_a_body_is_sent_at_the_rate_of_the_allowance(place: Place) -> None:
    """All bodies of a process share one rate, with any driver; a slow body arrives whole."""
    content = bytes(range(256)) * 100
    allowance = Allowance(len(content))  # in ten pieces, the first five at once
    with open_store(place.location, allowance=allowance) as store:
        store.put("a", io.BytesIO(content), size=len(content), crc32c=crc32c(content))
        assert store.get("a")[0] == content
    assert allowance.waited_seconds > 0


def test_a_missing_bucket_or_directory_is_an_error_and_is_not_created(place: Place) -> None:
    """No call raises "not found", which would mean "no commit", and no call creates it."""
    with open_store(place.missing) as store:
        for ask in (
            store.check,
            lambda: store.put("key", b"x"),
            lambda: store.put("a/b/key", b"x", condition=IfAbsent()),
            lambda: store.get("key"),
            lambda: store.head("key"),
            lambda: list(store.list()),
            lambda: list(store.list_directories("a/")),
            lambda: store.delete(["key"]),
            lambda: store.delete_matching({"key": '"etag"'}),
            store.check,
        ):
            with pytest.raises(BucketMissing, match="missing"):
                ask()


def test_a_place_that_is_closed_to_this_identity_is_access_denied(place: Place) -> None:
    """The message names the operation, the object, and what to allow."""
    with open_store(place.closed) as store, pytest.raises(AccessDenied, match=r"key.*(allow|give) this"):
        store.put("key", b"x")
