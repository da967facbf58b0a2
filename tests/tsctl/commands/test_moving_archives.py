"""`verify` during changes of the archive, and with objects that this identity may not read."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.made_archive import batches
from tests.spark.archives import Archive
from ts_common.archive.commit import encode_log_start
from ts_common.archive.object_keys import SegmentName
from ts_common.errors import AccessDenied
from ts_common.store.contract import ByteRange, ObjectInfo, ObjectStore, ObjectStream
from ts_common.store.wrappers.wrapped import WrappedStore
from tsctl.verify.segment_check import Depth
from tsctl.verify.verifier import Scope, Verified, Verifier

READING = pytest.mark.parametrize("depth", [Depth.HEADERS, Depth.FULL])


class Watched(WrappedStore):
    """A store that calls a function before each HEAD and each read of a whole object."""

    def __init__(
        self, inner: ObjectStore, before: Callable[[str], None], before_get: Callable[[str], None] = lambda _: None
    ) -> None:
        super().__init__(inner, threads=1)
        self._before = before
        self._before_get = before_get

    def head(self, key: str) -> ObjectInfo:
        """Read as the inner store."""
        self._before(key)
        return self._inner.head(key)

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        """Open as the inner store."""
        if byte_range is None:
            self._before_get(key)
        return self._inner.open(key, byte_range)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """Return an archive of `[0,100) [100,200) [200,300)`."""
    made = Archive(tmp_path / "store")
    for base in (0, 100, 200):
        made.put_segment("t", base, batches((base, base + 100)), index=b"", timeindex=b"")
    made.commit("t", 300, highest_base=200)
    return made


def verify(archive: Archive, depth: Depth, *before: Callable[[str], None]) -> Verified:
    scope = Scope(depth, in_flight_seconds=0, requests=1)
    store = Watched(archive.store, *before)
    verifier = Verifier(store, archive.keys, scope, clock=lambda: time.time() + 60)
    verifier.find()
    return verifier.run()


@READING
def test_an_object_that_retention_deletes_meanwhile_is_no_damage(archive: Archive, depth: Depth) -> None:
    """Retention moves `log.start` first, which explains the missing object."""
    keys = archive.partition("t")

    def collect(_: str) -> None:
        archive.store.put(keys.log_start, encode_log_start(100))
        archive.store.delete(keys.segment(SegmentName(0), suffix) for suffix in (".log", ".index", ".timeindex"))

    assert verify(archive, depth, collect).all_findings == []


@READING
def test_an_object_that_another_program_deletes_meanwhile_is_named(archive: Archive, depth: Depth) -> None:
    """Above log start, retention removes nothing, so the missing object is a finding."""
    keys = archive.partition("t")
    archive.store.put(keys.log_start, encode_log_start(50))
    found = verify(archive, depth, lambda key: archive.store.delete([key] if "0100" in key else []))
    assert [(each.kind.code, each.start) for each in found.all_findings] == [("unreadable", 100)]


@READING
def test_what_an_agent_ships_meanwhile_is_no_finding(archive: Archive, depth: Depth) -> None:
    """The snapshot is consistent, because it reads the commit before the listing."""

    def ship(_: str) -> None:
        archive.put_segment("t", 300, batches((300, 400)), index=b"", timeindex=b"")
        archive.commit("t", 400, highest_base=300)

    assert verify(archive, depth, ship).all_findings == []


@READING
def test_an_object_that_may_not_be_read_is_a_finding(archive: Archive, depth: Depth) -> None:
    """The object may be in cold storage or encrypted with another key; the other objects are checked."""

    def refuse(key: str) -> None:
        if "0100" in key:
            raise AccessDenied(f"{key}: the store refuses this identity")

    found = verify(archive, depth, refuse)
    assert [(each.kind.code, each.start) for each in found.all_findings] == [("unreadable", 100)]
    assert found.coverages[0].segments == 3


@READING
def test_an_identity_that_may_read_nothing_any_more_ends_it(archive: Archive, depth: Depth) -> None:
    """Credentials that expire during the run are not reported as damage of every segment."""
    asked: list[str] = []

    def expire(key: str) -> None:
        asked.append(key)
        if any(each.endswith(".log") for each in asked):
            raise AccessDenied("expired")

    with pytest.raises(AccessDenied, match="expired"):
        verify(archive, depth, expire, expire)
