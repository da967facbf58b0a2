"""The base class of wrappers: each call and each argument reaches the inner store."""

import io
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from ts_common.errors import BucketMissing, CorruptData, ObjectNotFound, PreconditionFailed
from ts_common.store.contract import (
    NO_METADATA,
    Body,
    ByteRange,
    Condition,
    IfAbsent,
    ObjectInfo,
    ObjectStream,
    ObjectVersion,
)
from ts_common.store.directory.driver import FileStore
from ts_common.store.lifecycle import LifecycleRule
from ts_common.store.protection import HiddenBytes, Lock, Protection
from ts_common.store.wrappers.wrapped import WrappedStore

RULE = LifecycleRule("r", "", "", frozenset(), "after 1 day", None)
PROTECTION = Protection(versioned=True, locks=True, default_retention="1 day (COMPLIANCE)")
LOCK = Lock(9, legal_hold=False, mode="COMPLIANCE")


class Inner(FileStore):
    """A directory with a rule, which records the arguments that a directory ignores."""

    archived: bool | None = None

    def put(
        self,
        key: str,
        body: bytes | Body,
        *,
        size: int | None = None,
        metadata: Mapping[str, str] = NO_METADATA,
        condition: Condition = None,
        crc32c: int | None = None,
        archived: bool = False,
    ) -> ObjectInfo:
        self.archived = archived
        return super().put(key, body, size=size, metadata=metadata, condition=condition, crc32c=crc32c)

    def lifecycle_rules(self) -> tuple[LifecycleRule, ...] | None:
        return (RULE,)

    def enforces_deletes(self) -> bool | None:
        return None

    def protection(self) -> Protection:
        return PROTECTION

    def locked_until(self, key: str) -> Lock | None:
        return LOCK if key == "d/a" else None

    def versions(self, prefix: str) -> Iterator[ObjectVersion] | None:
        return iter([ObjectVersion(info, "v", True, False) for info in self.list(prefix)])

    def open_version(
        self, version: ObjectVersion, byte_range: ByteRange | None = None
    ) -> AbstractContextManager[ObjectStream]:
        return self.open(version.info.key, byte_range)

    def version_lock(self, version: ObjectVersion) -> Lock | None:
        return LOCK if version.id == "v" else None

    def delete_version(self, version: ObjectVersion) -> None:
        self.delete([version.info.key])


@pytest.fixture
def inner(tmp_path: Path) -> Inner:
    (tmp_path / "root").mkdir()
    return Inner(tmp_path / "root")


@pytest.fixture
def outer(inner: Inner) -> Iterator[WrappedStore]:
    with WrappedStore(inner, threads=1) as opened:
        yield opened


def test_a_put_reaches_the_inner_store_with_all_its_arguments(outer: WrappedStore, inner: Inner) -> None:
    """Size, metadata, condition, checksum and storage class."""
    put = outer.put("a", io.BytesIO(b"content and more"), size=7, metadata={"n": "1"}, archived=True)
    assert put == inner.head("a")
    assert (inner.get("a")[0], dict(inner.head("a").metadata), inner.archived) == (b"content", {"n": "1"}, True)
    outer.put("b", b"x")
    assert inner.archived is False
    with pytest.raises(PreconditionFailed):
        outer.put("a", b"x", condition=IfAbsent())
    with pytest.raises(CorruptData):
        outer.put("a", b"x", crc32c=1)


def test_reads_and_deletes_are_those_of_the_inner_store(outer: WrappedStore, inner: Inner) -> None:
    """With ranges, prefixes and errors."""
    for key in ("d/a", "d/b", "e/a"):
        inner.put(key, b"content")
    assert outer.location == inner.location
    assert outer.identity() == inner.identity() is not None
    assert outer.get("d/a", ByteRange(2, 4)) == (b"nt", inner.head("d/a"))
    assert outer.head("d/a") == inner.head("d/a")
    assert [info.key for info in outer.list("d/", start_after="d/a")] == ["d/b"]
    assert list(outer.list_directories()) == ["d/", "e/"]
    assert outer.lifecycle_rules() == (RULE,)
    assert outer.protection() == PROTECTION
    assert outer.locked_until("d/a") == LOCK
    assert outer.locked(["d/a", "d/b"], 8) == {"d/a": LOCK}
    assert outer.enforces_deletes() is None
    assert outer.hidden_bytes("d/") == HiddenBytes(0, 0, 0)
    (version,) = list(outer.versions("e/") or ())
    with outer.open_version(version) as stream:
        assert (stream.info.key, stream.read(9)) == ("e/a", b"content")
    with outer.open_version(version, ByteRange(2, 4)) as stream:
        assert stream.read(9) == b"nt"
    assert outer.version_lock(version) == LOCK
    assert outer.copy_if_absent("d/a", "c") == inner.head("c")
    assert outer.delete_matching({"d/b": inner.head("d/a").etag, "never": "e"}).kept == ("d/b",)
    outer.delete_version(version)
    outer.delete(["c", "d/a"])
    assert [info.key for info in inner.list()] == ["d/b"]
    with pytest.raises(ObjectNotFound):
        outer.head("d/a")


def test_the_check_is_that_of_the_inner_store(outer: WrappedStore, tmp_path: Path) -> None:
    """A wrapper has no bucket of its own."""
    outer.check()
    (tmp_path / "root").rmdir()
    with pytest.raises(BucketMissing):
        outer.check()


def test_closing_a_wrapper_closes_its_store(outer: WrappedStore, inner: Inner) -> None:
    """Its asynchronous puts are complete before; no more are accepted by either."""
    future = outer.put_async("a", b"x")
    outer.close()
    assert future.result().key == "a"
    for store in (outer, inner):
        with pytest.raises(RuntimeError):
            store.put_async("b", b"x")
