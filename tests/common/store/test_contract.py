"""What the contract of stores has itself: ranges, and the methods that drivers inherit."""

import io
import threading
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from ts_common.errors import PreconditionFailed
from ts_common.store.contract import ByteRange, IfAbsent, ObjectInfo
from ts_common.store.directory.driver import FileStore


@pytest.mark.parametrize(("start", "end"), [(5, 5), (5, 3), (0, 0), (-1, 3), (-3, -1)])
def test_a_range_without_bytes_is_rejected(start: int, end: int) -> None:
    """So is a suffix with an end: no request can contain it."""
    with pytest.raises(ValueError, match=r"empty byte range|suffix range has no end"):
        ByteRange(start, end)


@pytest.mark.parametrize(("start", "end"), [(0, None), (0, 1), (7, 100), (-1, None)])
def test_a_range_has_a_start_and_perhaps_an_end(start: int, end: int | None) -> None:
    """A suffix has only a start, below zero."""
    assert (ByteRange(start, end).start, ByteRange(start, end).end) == (start, end)


def test_properties_without_metadata_share_none() -> None:
    """A caller that adds to the default would change every other object's."""
    info = ObjectInfo("a", 1, "e", 0.0)
    assert info.metadata == {}
    with pytest.raises(TypeError):
        info.metadata["a"] = "b"  # type: ignore[index]  # it is read-only


def test_get_returns_all_bytes_of_an_object_and_its_properties(tmp_path: Path) -> None:
    """It joins the pieces of a stream, of the whole object or of a range."""
    content = bytes(range(256)) * (3 << 12)
    with FileStore(tmp_path) as store:
        info = store.put("a", content)
        assert store.get("a") == (content, info)
        assert store.get("a", ByteRange(100, 2 << 20)) == (content[100 : 2 << 20], info)
        assert store.get("a", ByteRange(len(content))) == (b"", info)


def test_an_asynchronous_put_has_the_result_or_the_error_of_put(tmp_path: Path) -> None:
    """All arguments are passed on."""
    with FileStore(tmp_path) as store:
        body = io.BytesIO(b"123456789 and more")
        future = store.put_async("a", body, size=9, metadata={"n": "1"}, condition=IfAbsent(), crc32c=0xE3069283)
        assert future.result() == store.head("a")
        assert store.get("a")[0] == b"123456789"
        assert dict(store.head("a").metadata) == {"n": "1"}
        assert isinstance(store.put_async("a", b"", condition=IfAbsent()).exception(), PreconditionFailed)


def test_closing_waits_for_the_put_that_has_begun_and_cancels_the_next(tmp_path: Path) -> None:
    """So a process ends after one object, whatever is queued; leaving the block closes the store."""
    began, released = threading.Event(), threading.Event()

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            began.set()
            released.wait(20)
            return super().read(size)

    with FileStore(tmp_path, threads=1) as store:
        first = store.put_async("a", Slow(b"x"), size=1)
        second = store.put_async("b", b"x")
        assert began.wait(20)
        threading.Timer(0.1, released.set).start()
    assert first.done()
    assert first.result().key == "a"
    with pytest.raises(CancelledError):
        second.result(20)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["a"]
    with pytest.raises(RuntimeError):
        store.put_async("c", b"x")
