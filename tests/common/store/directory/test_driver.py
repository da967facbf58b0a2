"""The directory driver: its files, and errors of the system."""

import errno
import io
import os
import pwd
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.common.store.bodies import FailingBody
from ts_common.errors import (
    AccessDenied,
    CorruptData,
    ObjectNotFound,
    OperatorError,
    OutcomeUnknown,
    PreconditionFailed,
    StoreUnavailable,
    TieredStorageError,
)
from ts_common.store.contract import DeleteOutcome, IfAbsent, IfMatch, ObjectStore
from ts_common.store.directory.objects import locked
from ts_common.store.factory import open_store

NOBODY = 65534


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    with open_store(tmp_path.as_uri()) as opened:
        yield opened


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def fails_with(number: int) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@contextmanager
def nobody() -> Iterator[None]:
    """Run as a user that owns no file; for any user but root a mode of 0 suffices."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_an_object_is_a_file_of_its_name(store: ObjectStore, tmp_path: Path) -> None:
    """Any tool can read it; a file that was copied there is listed and has no metadata."""
    store.put("t-0/a.log", b"content", metadata={"n": "1"})
    assert (tmp_path / "t-0" / "a.log").read_bytes() == b"content"
    (tmp_path / "t-0" / "b.log").write_bytes(b"copied")
    assert [info.key for info in store.list()] == ["t-0/a.log", "t-0/b.log"]
    body, info = store.get("t-0/b.log")
    assert (body, dict(info.metadata)) == (b"copied", {})


def test_files_of_the_driver_are_never_listed(store: ObjectStore, tmp_path: Path) -> None:
    """Locks, metadata and unfinished puts have hidden names."""
    store.put("t-0/a.log", b"x", metadata={"n": "1"})
    (tmp_path / "t-0" / ".put-left").write_bytes(b"half")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "a").write_bytes(b"x")
    assert [info.key for info in store.list()] == ["t-0/a.log"]
    assert list(store.list_directories()) == ["t-0/"]


def test_no_key_meets_a_file_of_the_driver(store: ObjectStore, tmp_path: Path) -> None:
    """A part that begins with a dot has a second one on disk; other hidden files stay hidden."""
    keys = [".lock/a", ".meta/a.1.json", ".put-1-a"]
    for key in keys:
        store.put(key, b"x", metadata={"n": "1"})
    for name in (".nfs0001", ".put-left", "..."):
        (tmp_path / name).write_bytes(b"not ours")
    assert names(tmp_path) == {"..lock", "..meta", "..put-1-a", ".lock", ".meta", ".nfs0001", ".put-left", "..."}
    assert [info.key for info in store.list()] == keys


def test_metadata_is_replaced_and_deleted_with_its_object(store: ObjectStore, tmp_path: Path) -> None:
    """After a replacement, a rejection or a delete, no file of metadata is left without its object."""
    meta = tmp_path / ".meta"
    first = store.put("a", b"1", metadata={"n": "1"})
    store.put("a", b"2", metadata={"n": "2"})
    assert len(names(meta)) == 1
    with pytest.raises(PreconditionFailed):
        store.put("a", b"3", metadata={"n": "3"}, condition=IfAbsent())
    with pytest.raises(PreconditionFailed):
        store.put("a", b"3", metadata={"n": "3"}, condition=IfMatch(first.etag))
    with pytest.raises(CorruptData):
        store.put("a", b"3", metadata={"n": "3"}, crc32c=1)
    assert len(names(meta)) == 1
    store.delete(["a"])
    assert names(meta) == set()


def test_a_put_that_fails_leaves_no_file(store: ObjectStore, tmp_path: Path) -> None:
    """Neither the temporary file nor the object exists."""
    with pytest.raises(OSError, match="Input/output error"):
        store.put("a", FailingBody(b"content"), size=7)
    assert names(tmp_path) <= {".lock", ".meta"}


def test_files_of_a_killed_writer_are_removed_by_a_later_put(store: ObjectStore, tmp_path: Path) -> None:
    """Only files that are older than any put are removed; a younger one may still be written."""
    for name, age in ((".put-old-a", 7200), (".put-young-a", 60)):
        (tmp_path / name).write_bytes(b"half")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    store.put("a", b"x")
    assert names(tmp_path) - {".lock", ".meta"} == {".put-young-a", "a"}


def test_a_directory_without_objects_does_not_exist(store: ObjectStore) -> None:
    """As in S3, a directory disappears with its last object."""
    store.put("a/b/c", b"x")
    assert list(store.list_directories("a/")) == ["b/"]
    store.delete(["a/b/c"])
    assert list(store.list_directories()) == []
    assert list(store.list()) == []


def test_an_open_object_stays_as_it_was(store: ObjectStore) -> None:
    """A reader has the content that it opened, also after a replacement or a delete."""
    store.put("a", b"before", metadata={"n": "1"})
    with store.open("a") as stream:
        store.put("a", b"after!")
        store.delete(["a"])
        assert stream.read(100) == b"before"
        assert dict(stream.info.metadata) == {"n": "1"}


def test_a_file_that_is_cut_while_it_is_read_is_unavailable(store: ObjectStore, tmp_path: Path) -> None:
    """A reader never returns a short object."""
    store.put("a", b"content")
    with store.open("a") as stream:
        os.truncate(tmp_path / "a", 3)
        with pytest.raises(StoreUnavailable, match="4 bytes early"):
            stream.read(7)


def test_two_stores_on_one_directory_keep_to_one_lock(tmp_path: Path) -> None:
    """Sixteen threads of two stores count to 160 with IfMatch, and lose no step."""
    with open_store(tmp_path.as_uri()) as one, open_store(tmp_path.as_uri()) as other:
        one.put("count", b"0")
        barrier = threading.Barrier(16)

        def count(store: ObjectStore) -> None:
            barrier.wait()
            done = 0
            while done < 10:
                body, info = store.get("count")
                try:
                    store.put("count", str(int(body) + 1).encode(), condition=IfMatch(info.etag))
                except PreconditionFailed:
                    continue
                done += 1

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(count, [one, other] * 8))
        assert one.get("count")[0] == b"160"


def test_a_name_is_an_object_or_a_directory(store: ObjectStore) -> None:
    """S3 can store both, a directory cannot, and the error names the key."""
    store.put("a", b"x")
    store.put("d/a", b"x")
    for key in ("a/b", "d", "x" * 300):
        with pytest.raises(OperatorError, match="a directory store cannot store this key"):
            store.put(key, b"y")
        with pytest.raises(OperatorError, match="a directory store cannot store this key"):
            store.put(key, b"y", condition=IfAbsent())
    with pytest.raises(ObjectNotFound):
        store.head("d")
    assert [info.key for info in store.list()] == ["a", "d/a"]


def test_a_full_disk_is_unavailable(store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same put succeeds when the disk has space."""
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fails_with(errno.ENOSPC))
        with pytest.raises(StoreUnavailable, match="No space left"):
            store.put("a", b"x")
    assert names(tmp_path) <= {".lock", ".meta"}
    store.put("a", b"x")


def test_a_put_whose_name_may_not_be_on_disk_is_undecided(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object exists, but a crash might remove it."""
    store.put("a", b"before")
    real = os.fsync

    def fail_for_directories(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").resolve() == tmp_path:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fail_for_directories)
    with pytest.raises(OutcomeUnknown, match="the sync of its directory failed"):
        store.put("a", b"after")
    assert store.get("a")[0] == b"after"


def test_a_copy_whose_name_may_not_be_on_disk_is_undecided(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target exists, but a crash might remove it."""
    store.put("a", b"x")
    monkeypatch.setattr(os, "fsync", fails_with(errno.EIO))
    with pytest.raises(OutcomeUnknown, match=f"copy to file://{tmp_path}/b: written, but the sync"):
        store.copy_if_absent("a", "b")
    assert store.get("b")[0] == b"x"


def test_a_copy_has_the_metadata_of_its_source_and_keeps_it(store: ObjectStore, tmp_path: Path) -> None:
    """Each name has its own file of metadata; a rejected copy and a delete change no other one."""
    store.put("a", b"x", metadata={"n": "1"})
    first = store.copy_if_absent("a", "d/b")
    assert dict(store.head("d/b").metadata) == {"n": "1"}
    with pytest.raises(PreconditionFailed):
        store.copy_if_absent("a", "d/b")
    store.delete(["a"])
    assert store.get("d/b") == (b"x", store.head("d/b"))
    assert (store.head("d/b").etag, dict(store.head("d/b").metadata)) == (first.etag, {"n": "1"})
    store.delete(["d/b"])
    assert names(tmp_path / ".meta") | names(tmp_path / "d" / ".meta") == set()


def test_a_conditional_delete_compares_under_the_lock_of_puts(store: ObjectStore, tmp_path: Path) -> None:
    """While another process holds the lock and overwrites the object, the delete waits, and then keeps the new one."""
    etag = store.put("a", b"former", metadata={"n": "1"}).etag
    with ThreadPoolExecutor(1) as thread:
        with locked(tmp_path):
            deleted = thread.submit(store.delete_matching, {"a": etag})
            with pytest.raises(TimeoutError):
                deleted.result(0.2)
            (tmp_path / "other").write_bytes(b"new")
            (tmp_path / "other").rename(tmp_path / "a")
        assert deleted.result() == DeleteOutcome((), ("a",), {})
    assert store.get("a")[0] == b"new"
    assert store.delete_matching({"a": store.head("a").etag}).removed == ("a",)


def test_a_conditional_delete_removes_the_metadata_too(store: ObjectStore, tmp_path: Path) -> None:
    """Only that of the removed object."""
    removed, kept = (store.put(key, b"x", metadata={"n": key}).etag for key in ("a", "b"))
    assert store.delete_matching({"a": removed, "b": removed}) == DeleteOutcome(("a",), ("b",), {})
    assert len(names(tmp_path / ".meta")) == 1
    assert (store.head("b").etag, dict(store.head("b").metadata)) == (kept, {"n": "b"})


def test_metadata_that_a_killed_process_left_is_not_that_of_a_copy(store: ObjectStore, tmp_path: Path) -> None:
    """A removed object of the target's name may have had the inode that the source has now."""
    store.put("a", b"x")
    (tmp_path / ".meta").mkdir()
    (tmp_path / ".meta" / f"b.{(tmp_path / 'a').stat().st_ino}.json").write_text('{"left": "behind"}')
    store.copy_if_absent("a", "b")
    assert dict(store.head("b").metadata) == {}


def test_a_copy_of_a_source_that_is_overwritten_meanwhile_has_no_foreign_metadata(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metadata that the driver read is that of the former content, and its file is removed."""
    store.put("a", b"former", metadata={"n": "former"})
    real = os.link

    def overwrite_first(*arguments: Any, **named: Any) -> None:
        monkeypatch.setattr(os, "link", real)
        store.put("a", b"newer", metadata={"n": "newer"})
        real(*arguments, **named)

    monkeypatch.setattr(os, "link", overwrite_first)
    store.copy_if_absent("a", "d/b")
    content, info = store.get("d/b")
    assert (content, dict(info.metadata)) == (b"newer", {})
    assert names(tmp_path / "d" / ".meta") == set()


def test_a_copy_of_a_source_that_is_removed_meanwhile_is_not_found(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left at the target, its metadata included."""
    store.put("a", b"x", metadata={"n": "1"})
    real = os.link

    def remove_first(*arguments: Any, **named: Any) -> None:
        store.delete(["a"])
        real(*arguments, **named)

    monkeypatch.setattr(os, "link", remove_first)
    with pytest.raises(ObjectNotFound, match="no longer exists"):
        store.copy_if_absent("a", "d/b")
    assert [info.key for info in store.list()] == []
    assert names(tmp_path / "d" / ".meta") == set()


def test_a_copy_to_or_from_a_link_or_to_a_directory_is_an_error(store: ObjectStore, tmp_path: Path) -> None:
    """A link could lead out of the root."""
    store.put("a", b"x")
    store.put("d/a", b"x")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for source, target in (("link", "b"), ("a", "link"), ("a", "d"), ("a", "a/b")):
        with pytest.raises(OperatorError):
            store.copy_if_absent(source, target)
    assert sorted(names(tmp_path) - {".lock"}) == ["a", "d", "link"]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_refusing_file_system_denies_access(store: ObjectStore, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Missing permission, or a read-only mount."""
    monkeypatch.setattr(os, "fsync", fails_with(number))
    with pytest.raises(AccessDenied, match="allow this user"):
        store.put("a", b"x")


def test_a_user_without_rights_is_denied() -> None:
    """First reading without writing, then nothing is allowed."""
    with tempfile.TemporaryDirectory(prefix="store-", dir="/tmp") as name:
        root = Path(name)
        with open_store(root.as_uri()) as store:
            store.put("d/a", b"x")
            root.chmod(0o555)
            (root / "d").chmod(0o555)
            with nobody():
                store.check()
                assert store.get("d/a")[0] == b"x"
                _denied(lambda: store.put("d/b", b"x"), lambda: store.put("e/b", b"x"), lambda: store.delete(["d/a"]))
            root.chmod(0)
            with nobody():
                _denied(
                    store.check,
                    lambda: store.put("d/b", b"x"),
                    lambda: store.get("d/a"),
                    lambda: store.head("d/a"),
                    lambda: list(store.list()),
                    lambda: list(store.list_directories()),
                    lambda: store.delete(["d/a"]),
                )
            root.chmod(0o755)
            (root / "d").chmod(0o755)
            assert [info.key for info in store.list()] == ["d/a"]


def test_a_directory_above_that_may_not_be_entered_is_no_missing_root() -> None:
    """The error does not request to create an existing directory."""
    with tempfile.TemporaryDirectory(prefix="store-", dir="/tmp") as name:
        root = Path(name) / "closed" / "root"
        root.mkdir(parents=True)
        root.parent.chmod(0)
        with open_store(root.as_uri()) as store, nobody():
            _denied(store.check, lambda: store.get("a"), lambda: store.put("a", b"x"), lambda: list(store.list()))
        root.parent.chmod(0o755)


def _denied(*asks: Callable[[], object]) -> None:
    for ask in asks:
        with pytest.raises(TieredStorageError) as raised:
            ask()
        assert type(raised.value) is AccessDenied


def test_a_body_is_not_held_in_memory(store: ObjectStore) -> None:
    """It is read in pieces of at most a megabyte."""

    class Watched(io.BytesIO):
        largest = 0

        def read(self, size: int | None = -1, /) -> bytes:
            piece = super().read(size)
            self.largest = max(self.largest, len(piece))
            return piece

    body = Watched(bytes(5 << 20))
    store.put("a", body, size=5 << 20)
    assert body.largest <= 1 << 20


@pytest.fixture
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory outside of the store, with one file."""
    directory = tmp_path_factory.mktemp("outside")
    (directory / "a").write_bytes(b"secret")
    return directory


@pytest.mark.parametrize("link", ["prod/t-0/a", "prod/t-0", "prod"])
def test_no_link_leads_out_of_the_root(store: ObjectStore, tmp_path: Path, outside: Path, link: str) -> None:
    """No target of a link is read, listed, written or removed, object or directory, and the error names the link."""
    path = tmp_path / link
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(outside / "a" if link.endswith("/a") else outside)
    key = "prod/t-0/a" if link != "prod" else "prod/a"
    asks: list[Callable[[], object]] = [
        lambda: store.get(key),
        lambda: store.head(key),
        lambda: store.put(key, b"x"),
        lambda: store.put(key, b"x", condition=IfAbsent(), metadata={"a": "b"}),
        lambda: store.delete([key]),
        lambda: list(store.list("prod/t-0/" if link != "prod" else "prod/")),
        lambda: list(store.list()),
    ]
    for ask in asks:
        with pytest.raises(OperatorError, match="symbolic link"):
            ask()
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"a": b"secret"}


def test_a_link_in_place_of_the_drivers_own_files_is_not_followed(
    store: ObjectStore, tmp_path: Path, outside: Path
) -> None:
    """Links in place of metadata and lock: no file elsewhere is created or changed."""
    (tmp_path / "t-0").mkdir()
    for name in (".meta", ".lock"):
        (tmp_path / "t-0" / name).symlink_to(outside / "made" if name == ".lock" else outside)
        with pytest.raises(TieredStorageError):
            store.put("t-0/b", b"x", metadata={"a": "b"})
        (tmp_path / "t-0" / name).unlink()
    assert names(outside) == {"a"}
    store.put("t-0/b", b"x", metadata={"a": "b"})


def test_the_root_itself_may_be_a_link(tmp_path: Path, outside: Path) -> None:
    """An operator may link it to another disk."""
    (tmp_path / "archive").symlink_to(outside)
    with open_store((tmp_path / "archive").as_uri()) as linked:
        linked.put("b/c", b"x")
        assert [info.key for info in linked.list()] == ["a", "b/c"]


@pytest.mark.parametrize("key", ["../a", "b/../../a", "/etc/passwd", "b//a", ".", ".."])
def test_no_key_leads_out_of_the_root(store: ObjectStore, outside: Path, key: str) -> None:
    """Even if a caller builds it from a foreign name."""
    for ask in (lambda: store.get(key), lambda: store.put(key, b"x"), lambda: store.delete([key])):
        with pytest.raises(OperatorError, match="not a key"):
            ask()
    assert names(outside) == {"a"}


def test_the_user_of_the_process_is_the_identity(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a name of the environment. A user without a name has its number."""
    monkeypatch.setenv("LOGNAME", "somebody-else")
    name = pwd.getpwuid(os.geteuid()).pw_name
    assert store.identity() == f"{name} uid:{os.geteuid()}"
    monkeypatch.setattr("os.geteuid", lambda: 4_000_000_000)
    assert store.identity() == "uid:4000000000"
