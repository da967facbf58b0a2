"""One object of a directory: its file, its metadata and its lock."""

import errno
import fcntl
import io
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ts_common.errors import CorruptData, PreconditionFailed, StoreUnavailable
from ts_common.store.contract import NO_METADATA, Condition, IfAbsent, IfMatch, ObjectInfo
from ts_common.store.directory.objects import (
    LEFT_BEHIND_SECONDS,
    LOCK,
    META,
    FileStream,
    etag_of,
    info_of,
    locked,
    metadata_path,
    open_object,
    publish,
    remove,
    remove_left_behind,
    write_beside,
)
from ts_common.store.file_names import WRITING


def written(path: Path, content: bytes, metadata: Mapping[str, str] = NO_METADATA, condition: Condition = None) -> str:
    """Write an object as the driver does, and return its ETag."""
    temporary = path.with_name(f"{WRITING}0123-{path.name}")
    write_beside(path, temporary, io.BytesIO(content), metadata, None)
    etag = etag_of(temporary.stat())
    try:
        publish(temporary, path, condition, path.name)
    finally:
        temporary.unlink(missing_ok=True)
    return etag


def read(path: Path) -> tuple[bytes, dict[str, str]]:
    file, info = open_object(path, path.name)
    with file:
        return file.read(), dict(info.metadata)


def files_of_metadata(directory: Path) -> list[str]:
    with suppress(FileNotFoundError):
        return sorted(path.name for path in (directory / META).iterdir())
    return []


def test_a_fifo_is_no_object(tmp_path: Path) -> None:
    """Opened as a file, it would wait for a writer for ever."""
    os.mkfifo(tmp_path / "a")
    with pytest.raises(IsADirectoryError, match="not a regular file"):
        open_object(tmp_path / "a", "a")
    remove(tmp_path / "a")


def test_an_object_is_opened_with_the_properties_of_its_content(tmp_path: Path) -> None:
    """Size, ETag, time and metadata are those of the file that was written."""
    etag = written(tmp_path / "a", b"content", {"n": "1"})
    file, info = open_object(tmp_path / "a", "d/a")
    with file:
        assert file.read() == b"content"
    assert info == ObjectInfo("d/a", 7, etag, (tmp_path / "a").stat().st_mtime, {"n": "1"})


def test_content_with_another_checksum_is_not_accepted(tmp_path: Path) -> None:
    """The caller publishes nothing then."""
    with pytest.raises(CorruptData, match=r"CRC-32C is e3069283; expected 00000001; nothing was written"):
        write_beside(tmp_path / "a", tmp_path / ".put-1-a", io.BytesIO(b"123456789"), {}, 1)
    write_beside(tmp_path / "a", tmp_path / ".put-2-a", io.BytesIO(b"123456789"), {}, 0xE3069283)
    assert (tmp_path / ".put-2-a").read_bytes() == b"123456789"


def test_metadata_of_an_earlier_file_does_not_appear_on_a_later_one(tmp_path: Path) -> None:
    """A file system may give a new file the inode of a removed one."""

    class Reused(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            stale = metadata_path(tmp_path / "a", (tmp_path / ".put-1-a").stat().st_ino)
            stale.parent.mkdir(exist_ok=True)
            stale.write_text('{"n": "stale"}')
            return super().read(size)

    write_beside(tmp_path / "a", tmp_path / ".put-1-a", Reused(b"content"), {}, None)
    publish(tmp_path / ".put-1-a", tmp_path / "a", None, "a")
    assert read(tmp_path / "a") == (b"content", {})


def test_equal_contents_that_are_written_twice_have_different_etags(tmp_path: Path) -> None:
    """The ETag has the inode, the time in nanoseconds and the size; the listing and the object have the same one."""
    path = tmp_path / "a"
    first = written(path, b"content")
    second = written(path, b"content")
    assert first != second == info_of("a", path.stat()).etag
    found = path.stat()
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + 1))
    assert etag_of(path.stat()) != second


def test_a_rejected_condition_changes_nothing(tmp_path: Path) -> None:
    """If-absent over an object, and if-match over another one or over none."""
    path = tmp_path / "a"
    stale = written(path, b"first", {"n": "1"}, IfAbsent())
    with pytest.raises(PreconditionFailed, match="the object exists; expected none"):
        written(path, b"other", condition=IfAbsent())
    current = written(path, b"second", {"n": "2"}, IfMatch(stale))
    with pytest.raises(PreconditionFailed, match="expected"):
        written(path, b"other", condition=IfMatch(stale))
    with pytest.raises(PreconditionFailed, match="ETag is None"):
        written(tmp_path / "b", b"other", condition=IfMatch(current))
    assert read(path) == (b"second", {"n": "2"})
    assert not (tmp_path / "b").exists()


def test_the_metadata_of_a_replaced_or_removed_object_is_removed(tmp_path: Path) -> None:
    """So the directory does not grow with each put."""
    path = tmp_path / "a"
    written(path, b"first", {"n": "1"})
    written(path, b"second", {"n": "2"})
    assert files_of_metadata(tmp_path) == [f"a.{path.stat().st_ino}.json"]
    remove(path)
    remove(path)
    assert not path.exists()
    assert files_of_metadata(tmp_path) == []


def test_a_directory_is_no_object(tmp_path: Path) -> None:
    """It is neither opened, replaced nor removed."""
    (tmp_path / "d").mkdir()
    with pytest.raises(IsADirectoryError):
        open_object(tmp_path / "d", "d")
    with pytest.raises(IsADirectoryError):
        written(tmp_path / "d", b"x", condition=IfAbsent())
    remove(tmp_path / "d")
    assert (tmp_path / "d").is_dir()
    with pytest.raises(FileNotFoundError):
        open_object(tmp_path / "absent", "absent")


@pytest.mark.parametrize("content", ["", "[]", '{"n": 1}', '{"n": "' + "x" * 40_000 + '"}'])
def test_damaged_metadata_is_an_error_with_its_file(tmp_path: Path, content: str) -> None:
    """An object without its metadata would be another one."""
    path = tmp_path / "a"
    written(path, b"content", {"n": "1"})
    metadata_path(path, path.stat().st_ino).write_text(content)
    with pytest.raises(CorruptData, match=r"\.meta/a\.\d+\.json.* metadata"):
        open_object(path, "a")


def test_files_of_a_killed_writer_are_removed_and_those_of_objects_stay(tmp_path: Path) -> None:
    """With their metadata; a younger file may still be written, and one with a second link was published."""
    for name, age in (
        ("a", LEFT_BEHIND_SECONDS + 60),
        ("b", LEFT_BEHIND_SECONDS - 60),
        ("c", LEFT_BEHIND_SECONDS + 60),
    ):
        temporary = tmp_path / f"{WRITING}0123-{name}"
        write_beside(tmp_path / name, temporary, io.BytesIO(b"content"), {"n": name}, None)
        os.utime(temporary, (time.time() - age,) * 2)
    publish(tmp_path / f"{WRITING}0123-c", tmp_path / "c", IfAbsent(), "c")  # a hard link
    remove_left_behind(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {META, f"{WRITING}0123-b", "c"}
    assert [name.partition(".")[0] for name in files_of_metadata(tmp_path)] == ["b", "c"]
    assert read(tmp_path / "c") == (b"content", {"n": "c"})


def test_a_directory_has_one_lock(tmp_path: Path) -> None:
    """Any other open file of it, of this process or of another one, waits until the block ends."""
    with locked(tmp_path), (tmp_path / LOCK).open("w") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with (tmp_path / LOCK).open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    """It would create a file outside of the store."""
    (tmp_path / LOCK).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)), locked(tmp_path):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_a_stream_ends_with_its_range_and_never_early(tmp_path: Path) -> None:
    """A file that became shorter is an error with the number of missing bytes."""
    path = tmp_path / "a"
    written(path, b"0123456789")
    file, info = open_object(path, "a")
    with file:
        stream = FileStream(file, info, 6)
        buffer = bytearray(4)
        assert (stream.read(3), stream.readinto(memoryview(buffer)), bytes(buffer[:3])) == (b"012", 3, b"345")
        assert (stream.read(1), stream.readinto(memoryview(buffer))) == (b"", 0)
        file.seek(0)
        with pytest.raises(StoreUnavailable, match="a: the file ended 2 bytes early"):
            FileStream(file, info, 12).read(100)


class _InParts(io.FileIO):
    """A file of a network file system, which returns fewer bytes than a read requests."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(3, size or 0)) or b""

    def readinto(self, buffer: Any, /) -> int:
        return super().readinto(memoryview(buffer)[:3]) or 0


def test_a_short_answer_of_the_file_system_is_no_end(tmp_path: Path) -> None:
    """The rest is read until the bytes of the request are complete."""
    path = tmp_path / "a"
    written(path, b"0123456789")
    with _InParts(path) as file:
        stream = FileStream(file, ObjectInfo("a", 10, "", 0.0), 10)
        buffer = bytearray(4)
        assert (stream.read(5), stream.readinto(memoryview(buffer)), bytes(buffer)) == (b"01234", 4, b"5678")
        assert (stream.read(5), stream.read(5)) == (b"9", b"")
