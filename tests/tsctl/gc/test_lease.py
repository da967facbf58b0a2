"""The lease: one collector at a time writes to a store."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.made_archive import MadeArchive
from ts_common.errors import OutcomeUnknown, StaleStateError
from ts_common.store.contract import DeleteOutcome, ObjectInfo, ObjectStore
from ts_common.store.wrappers.wrapped import WrappedStore
from tsctl.gc.lease import LEASE_SECONDS, leased


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    return MadeArchive(tmp_path / "bucket")


def age(archive: MadeArchive, tmp_path: Path, seconds: float) -> None:
    """Make the lease older."""
    file = tmp_path / "bucket" / f"{archive.keys.gc_runs}lease.json"
    os.utime(file, (file.stat().st_mtime - seconds,) * 2)


def test_a_second_collector_is_refused_by_name_until_the_first_ends(archive: MadeArchive) -> None:
    """A released lease is free at once."""
    named = rf"{os.uname().nodename}:{os.getpid()}:.* delete .*lease.json"
    with (
        leased(archive.store, archive.keys),
        pytest.raises(StaleStateError, match=named),
        leased(archive.store, archive.keys),
    ):
        pass
    with leased(archive.store, archive.keys):
        pass


def test_the_lease_of_a_killed_collector_ends_by_itself(archive: MadeArchive, tmp_path: Path) -> None:
    """By the clock of the store."""
    killed = leased(archive.store, archive.keys)
    killed.__enter__()
    age(archive, tmp_path, LEASE_SECONDS - 60)
    with pytest.raises(StaleStateError, match="its lease ends at"), leased(archive.store, archive.keys):
        pass
    age(archive, tmp_path, 60)
    with leased(archive.store, archive.keys):
        pass


def test_a_suspended_collector_writes_nothing_more(archive: MadeArchive, tmp_path: Path) -> None:
    """Another one got the lease meanwhile: puts and deletes of the first fail before they are sent."""
    now = 0.0
    archive.store.put("a", b"1")
    with leased(archive.store, archive.keys, clock=lambda: now) as suspended:
        suspended.put("b", b"2")
        age(archive, tmp_path, LEASE_SECONDS)
        now = LEASE_SECONDS
        with leased(archive.store, archive.keys):
            for write in (
                lambda: suspended.put("c", b"3"),
                lambda: suspended.delete(["a"]),
                lambda: suspended.delete_matching({"a": archive.store.head("a").etag}),
            ):
                with pytest.raises(StaleStateError, match="another process runs tsctl gc now"):
                    write()
    assert [info.key for info in archive.store.list() if len(info.key) == 1] == ["a", "b"]


def test_a_collector_that_is_suspended_within_a_batch_deletes_only_a_few_more(
    archive: MadeArchive, tmp_path: Path
) -> None:
    """The rest of its batch fails before it is sent, once another one has the lease."""
    now, keys = 0.0, [f"{number:03d}" for number in range(100)]
    for key in keys:
        archive.store.put(key, b"1")

    class Suspended(WrappedStore):
        def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
            nonlocal now
            if not now:
                now = LEASE_SECONDS
                age(archive, tmp_path, LEASE_SECONDS)
                leased(archive.store, archive.keys).__enter__()
            return self._inner.delete_matching(etags)

    etags = {key: archive.store.head(key).etag for key in keys}
    with (
        leased(Suspended(archive.store, threads=1), archive.keys, clock=lambda: now) as store,
        pytest.raises(StaleStateError, match="another process runs tsctl gc now"),
    ):
        store.delete_matching(etags)
    assert [info.key for info in archive.store.list() if info.key in etags] == keys[32:]


@pytest.mark.parametrize(
    "content",
    [b"x" * 10_000, b'{"version":1,"holder":"h","milliseconds":9223372036854775807,"nonce":""}'],
    ids=["too large", "for ever"],
)
def test_a_damaged_lease_ends_as_any_other(archive: MadeArchive, tmp_path: Path, content: bytes) -> None:
    """Until then the message has its key."""
    archive.store.put(f"{archive.keys.gc_runs}lease.json", content)
    with pytest.raises(StaleStateError, match=r"delete .*lease.json"), leased(archive.store, archive.keys):
        pass
    age(archive, tmp_path, LEASE_SECONDS)
    with leased(archive.store, archive.keys):
        pass


def test_a_lease_is_renewed_while_it_is_used(archive: MadeArchive) -> None:
    """A long run keeps it: a write of each minute renews it."""
    now, key = 0.0, f"{archive.keys.gc_runs}lease.json"
    with leased(archive.store, archive.keys, clock=lambda: now) as store:
        first = archive.store.head(key).etag
        store.put("a", b"1")
        assert archive.store.head(key).etag == first
        now = 90.0
        store.put("a", b"2")
        assert archive.store.head(key).etag != first


def test_a_lost_response_of_a_renewal_ends_no_run(archive: MadeArchive) -> None:
    """The lease in the store is read: it is this process's own."""
    lost: list[str] = []

    class Losing(WrappedStore):
        def put(self, key: str, *arguments: Any, **named: Any) -> ObjectInfo:
            found = self._inner.put(key, *arguments, **named)
            if key.endswith("lease.json") and len(lost) < 2:
                lost.append(key)
                raise OutcomeUnknown("no response")
            return found

    now, store = 0.0, Losing(archive.store, threads=1)
    with leased(store, archive.keys, clock=lambda: now) as held:
        now = 90.0
        held.put("a", b"1")
    assert len(lost) == 2
    assert isinstance(held, ObjectStore)
