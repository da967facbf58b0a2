"""A store that counts."""

from pathlib import Path

import pytest

from ts_common.errors import BucketMissing, ObjectNotFound, StoreUnavailable
from ts_common.store.contract import ByteRange, ObjectInfo
from ts_common.store.factory import open_store
from ts_common.store.wrappers.counted import CountedStore, StoreCounts
from ts_common.store.wrappers.wrapped import WrappedStore


class Unavailable(WrappedStore):
    """A store that does not answer `head`."""

    def head(self, key: str) -> ObjectInfo:
        """Raise."""
        raise StoreUnavailable(f"no answer about {key}")


def test_requests_and_bytes_are_counted_by_operation(tmp_path: Path) -> None:
    """A missing object is an answer and no failure; the store still does what it promises."""
    counts = StoreCounts()
    with CountedStore(open_store(f"file://{tmp_path}"), counts) as store:
        store.put("a/one", b"0123456789")
        store.copy_if_absent("a/one", "a/two")
        assert store.get("a/one")[0] == b"0123456789"
        with store.open("a/two", ByteRange(2, 6)) as stream:
            buffer = bytearray(4)
            assert (stream.readinto(memoryview(buffer)), bytes(buffer), stream.info.size) == (4, b"2345", 10)
        assert store.head("a/one").size == 10
        assert [each.key for each in store.list("a/")] == ["a/one", "a/two"]
        assert [*store.list_directories()] == ["a/"]
        assert store.delete_matching({"a/one": "another"}).kept == ("a/one",)
        store.delete(["a/two"])
        with pytest.raises(ObjectNotFound):
            store.get("a/two")
    assert counts.requests == {"put": 1, "copy": 1, "get": 3, "head": 1, "list": 2, "delete": 2}
    assert counts.bytes_received == 14
    assert counts.failures == {}


def test_a_request_without_an_answer_is_a_failure(tmp_path: Path) -> None:
    """It is raised as before."""
    counts = StoreCounts()
    inner = Unavailable(open_store(f"file://{tmp_path}"), threads=1)
    with CountedStore(inner, counts) as store, pytest.raises(StoreUnavailable, match="no answer about a"):
        store.head("a")
    assert (counts.requests, counts.failures) == ({"head": 1}, {"head": 1})


def test_each_page_of_a_listing_is_a_request(tmp_path: Path) -> None:
    """A thousand objects are one page; the next object is on another."""
    counts = StoreCounts()
    with CountedStore(open_store(f"file://{tmp_path}"), counts) as store:
        for number in range(1001):
            (tmp_path / f"{number:04d}").write_bytes(b"")
        assert len([*store.list()]) == 1001
        assert counts.requests == {"list": 2}
        (tmp_path / "1000").unlink()
        assert len([*store.list()]) == 1000
        assert counts.requests == {"list": 3}


def test_the_check_of_a_store_is_that_of_the_inner_one(tmp_path: Path) -> None:
    """A missing directory is reported."""
    with CountedStore(open_store(f"file://{tmp_path}/none"), StoreCounts()) as store, pytest.raises(BucketMissing):
        store.check()
