"""A store where a process deletes below one prefix only."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import AccessDenied
from ts_common.store.contract import ObjectVersion
from ts_common.store.directory.driver import FileStore
from ts_common.store.validation import KeyRefused
from ts_common.store.wrappers.deletable import DeletesBelow

KEYS = ClusterKeys("prod")
PACK = KEYS.tail("1") + "packs/ffffffffffff"
OTHERS = (
    "prod/t-0/00000000000000000000.log",
    "prod/tail/1/packs/0",
    KEYS.layout,
    KEYS.tails[:-1],
    KEYS.tails[:-1] + "s/1",
    ClusterKeys("prod2").tail("1") + "packs/0",
    "x/" + PACK,
)


@pytest.fixture
def inner(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path)


@pytest.fixture
def store(inner: FileStore) -> Iterator[DeletesBelow]:
    with DeletesBelow(inner, KEYS.tails, threads=1) as opened:
        yield opened


def test_no_version_is_deleted(store: DeletesBelow) -> None:
    """Not of a pack either: a rule of the bucket removes those."""
    version = ObjectVersion(store.put(PACK, b"x"), "v", is_latest=False, is_delete_marker=False)
    with pytest.raises(AccessDenied, match="deletes no version"):
        store.delete_version(version)


def test_objects_below_the_prefix_are_deleted(store: DeletesBelow) -> None:
    """By both methods; an object that does not exist counts as deleted."""
    first, second = (store.put(PACK + end, b"x") for end in "ab")
    store.delete(iter([first.key, PACK]))
    store.delete_matching({second.key: second.etag})
    assert list(store.list()) == []


@pytest.mark.parametrize("other", OTHERS)
def test_no_other_object_is_deleted(store: DeletesBelow, inner: FileStore, other: str) -> None:
    """Nor any with it in the same call."""
    for key in (PACK, other):
        if key != KEYS.tails[:-1]:  # a directory here
            inner.put(key, b"x")
    before = {info.key: info.etag for info in inner.list()}
    with pytest.raises(AccessDenied, match="only objects below ts-uploader~cluster~prod/tail/"):
        store.delete([PACK, other])
    with pytest.raises(AccessDenied):
        store.delete_matching({PACK: before[PACK], other: before.get(other, "1")})
    assert {info.key: info.etag for info in inner.list()} == before


@pytest.mark.parametrize("way", ["../../prod/t-0/0.log", "../tail", "/x", "1//x", "1/./x"])
def test_no_name_leads_out_of_the_prefix(store: DeletesBelow, inner: FileStore, way: str) -> None:
    """Indexes of packs have names of objects, and others can write there."""
    inner.put("prod/t-0/0.log", b"x")
    with pytest.raises(KeyRefused):
        store.delete([KEYS.tails + way])
    assert [info.key for info in inner.list()] == ["prod/t-0/0.log"]


def test_an_empty_prefix_is_refused(inner: FileStore) -> None:
    """It would allow all."""
    for prefix in ("", "tail"):
        with pytest.raises(ValueError, match="prefix"):
            DeletesBelow(inner, prefix, threads=1)
