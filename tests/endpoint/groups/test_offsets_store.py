"""The object of a group: how two writers share it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.endpoint.groups.client import BEGAN, KEYS, directory_store, offsets_store
from tests.endpoint.groups.unsteady_store import UnsteadyStore
from ts_common.archive.group_offsets import Committed, StoredGroup
from ts_common.errors import CorruptData, NewerFormat, StoreUnavailable
from ts_common.model import TopicPartition
from ts_endpoint.groups.offsets import GroupOffsets, Unwritten
from ts_endpoint.groups.offsets_store import OffsetsStore, can_be_stored

ORDERS = TopicPartition("orders", 0)
PAYMENTS = TopicPartition("payments", 11)
KEY = KEYS.offsets_of("g")


@pytest.fixture
def inner(tmp_path: Path) -> Iterator[UnsteadyStore]:
    store = UnsteadyStore(directory_store(tmp_path))
    yield store
    store.close()


@pytest.fixture
def store(inner: UnsteadyStore) -> OffsetsStore:
    return offsets_store(inner)


def at(offset: int, time: int = 1) -> Committed:
    return Committed(offset, -1, time, "")


def first(offsets: dict[TopicPartition, Committed]) -> Unwritten:
    """Return a write of a process that has read that there is no object."""
    return Unwritten("g", offsets, frozenset(offsets), 0, None, is_read=True)


def test_an_object_of_a_later_release_is_refused_and_kept(inner: UnsteadyStore, store: OffsetsStore) -> None:
    """It is neither read nor overwritten."""
    later = b'{"version":2,"group":"g","partitions":{}}'
    inner.put(KEY, later)
    with pytest.raises(NewerFormat):
        store.read("g")
    with pytest.raises(NewerFormat):
        store.write(replace(first({ORDERS: at(1)}), is_read=False))
    with pytest.raises(NewerFormat):
        store.write(first({ORDERS: at(1)}))
    assert inner.get(KEY)[0] == later


def test_an_object_that_is_too_large_is_refused(inner: UnsteadyStore, store: OffsetsStore) -> None:
    """Before its bytes are read."""
    inner.put(KEY, bytes(33 << 20))
    with pytest.raises(CorruptData, match="at most"):
        store.read("g")


def test_a_group_without_an_object_has_no_offsets(store: OffsetsStore) -> None:
    """And a first write creates the object."""
    assert store.read("g").offsets == {}
    written = store.write(first({ORDERS: at(1)}))
    assert store.read("g") == written
    assert written.offsets == {ORDERS: at(1)}


def test_commits_of_two_processes_are_merged(store: OffsetsStore) -> None:
    """For each partition the commit with the later time stays, whichever process writes last."""
    base = store.write(first({ORDERS: at(1, 10), PAYMENTS: at(1, 10)}))
    both = frozenset({ORDERS, PAYMENTS})
    store.write(Unwritten("g", {ORDERS: at(5, 30), PAYMENTS: at(9, 20)}, both, 0, base.etag, is_read=True))
    merged = store.write(Unwritten("g", {ORDERS: at(9, 20), PAYMENTS: at(5, 30)}, both, 0, base.etag, is_read=True))
    assert merged.offsets == {ORDERS: at(5, 30), PAYMENTS: at(5, 30)}
    assert store.read("g") == merged


def test_what_a_process_did_not_change_never_wins(store: OffsetsStore) -> None:
    """It is what the other process read too, or has replaced, even with an earlier time."""
    base = store.write(first({ORDERS: at(1, 50)}))
    store.write(Unwritten("g", {ORDERS: at(2, 40)}, frozenset({ORDERS}), 0, None, is_read=True))
    ours = {ORDERS: at(1, 50), PAYMENTS: at(3, 60)}
    merged = store.write(Unwritten("g", ours, frozenset({PAYMENTS}), 0, base.etag, is_read=True))
    assert merged.offsets == {ORDERS: at(1, 50), PAYMENTS: at(3, 60)}


def test_an_object_that_another_process_deleted_is_written_again_with_new_commits_only(
    inner: UnsteadyStore, store: OffsetsStore
) -> None:
    """The others were deleted with the group."""
    base = store.write(first({ORDERS: at(1, 10)}))
    inner.delete([KEY])
    ours = {ORDERS: at(1, 10), PAYMENTS: at(3, 60)}
    merged = store.write(Unwritten("g", ours, frozenset({PAYMENTS}), 0, base.etag, is_read=True))
    assert merged.offsets == {PAYMENTS: at(3, 60)}


def test_a_deleted_offset_stays_deleted_but_for_a_later_commit(inner: UnsteadyStore, store: OffsetsStore) -> None:
    """Whichever process writes last; without the last offset there is no object."""
    base = store.write(first({ORDERS: at(1, 10), PAYMENTS: at(1, 30)}))
    deleted = Unwritten("g", {}, frozenset(), 0, base.etag, is_read=True, removed={ORDERS: 20, PAYMENTS: 20})
    assert store.write(deleted).offsets == {PAYMENTS: at(1, 30)}
    assert store.write(replace(deleted, removed={PAYMENTS: 30})).offsets == {}
    assert list(inner.list()) == []


def test_a_deletion_removes_the_object_but_no_later_commit(inner: UnsteadyStore, store: OffsetsStore) -> None:
    """Commits of another process after the deletion stay."""
    base = store.write(first({ORDERS: at(1, 10), PAYMENTS: at(1, 30)}))
    deleted = Unwritten("g", {}, frozenset(), 20, base.etag, is_read=True)
    assert store.write(deleted).offsets == {PAYMENTS: at(1, 30)}
    assert store.write(replace(deleted, deleted_at=30)).offsets == {}
    assert list(inner.list()) == []
    assert store.write(replace(deleted, deleted_at=30)).offsets == {}


@pytest.mark.parametrize(("silent", "dropped", "puts"), [(1, 0, 1), (0, 1, 2), (2, 0, 1), (1, 1, 2)])
def test_a_write_without_a_response_is_resolved_by_reading(
    inner: UnsteadyStore, store: OffsetsStore, silent: int, dropped: int, puts: int
) -> None:
    """The store has it afterwards, and the process the ETag for the next write. What the store has is not put again."""
    base = store.write(first({ORDERS: at(1)}))
    inner.silent, inner.dropped = silent, dropped
    changed = Unwritten("g", {ORDERS: at(2, 2)}, frozenset({ORDERS}), 0, base.etag, is_read=True)
    written = store.write(changed)
    assert store.read("g") == written
    assert written.offsets == {ORDERS: at(2, 2)}
    assert inner.calls.count("put") == 1 + puts


def test_a_writer_that_loses_every_race_gives_up(inner: UnsteadyStore, store: OffsetsStore) -> None:
    """The next flush tries again."""
    writes = iter(range(100))

    def another() -> None:
        inner.before_put = lambda: None
        data = StoredGroup("g", BEGAN, {PAYMENTS: at(next(writes))}).encode()
        inner.put(KEY, data)
        inner.before_put = another

    inner.before_put = another
    with pytest.raises(StoreUnavailable, match="other processes changed it"):
        store.write(first({ORDERS: at(1)}))
    assert 2 < next(writes) < 10


@pytest.mark.parametrize("group", ["", ".", "..", ".meta", "a/b", "a b%2Fü", "~", "x" * 200, "\x00\n"])
def test_each_group_has_an_object_of_its_own(store: OffsetsStore, group: str) -> None:
    """Every name that is not too long is stored, listed and read back."""
    assert can_be_stored(group)
    store.write(replace(first({ORDERS: at(1)}), group=group))
    store.write(first({ORDERS: at(2)}))
    assert store.read(group).offsets == {ORDERS: at(1)}
    assert {name for name, _ in store.groups()} == {group, "g"}


def test_other_objects_are_not_listed_as_groups(inner: UnsteadyStore, store: OffsetsStore) -> None:
    """Such as one whose name is not encoded as this project does it."""
    for name in ("a%2fb.json", "%61.json", "a.txt", "a/b.json"):
        inner.put(KEYS.groups + name, b"")
    assert list(store.groups()) == []


def test_a_check_leaves_nothing_and_shows_a_store_that_rejects_writes(
    store: OffsetsStore, inner: UnsteadyStore
) -> None:
    """The object of the check is of no group, also while it exists."""
    found: list[list[str]] = []
    inner.before_delete = lambda: found.append([name for name, _ in store.groups()])
    store.check()
    assert found == [[]]
    assert list(inner.list("")) == []
    inner.is_read_only = True
    with pytest.raises(StoreUnavailable):
        store.check()


def test_a_check_whose_write_has_no_response_succeeds(store: OffsetsStore, inner: UnsteadyStore) -> None:
    """The store may have done it, and clients need not wait for the answer."""
    inner.silent = 1
    store.check()
    assert list(inner.list("")) == []


def test_a_stored_time_that_has_no_later_one_does_not_damage_the_group() -> None:
    """A commit after it can be read again."""
    found = GroupOffsets("g")
    found.read({ORDERS: Committed(1, 0, 2**63 - 1, "")}, "etag")

    found.commit(ORDERS, 2, 0, "", BEGAN)
    data = StoredGroup("g", BEGAN, found.unwritten().merged({ORDERS: Committed(1, 0, 2**63 - 1, "")})).encode()

    assert StoredGroup.decode(data, KEY, group="g").partitions[ORDERS].offset == 2
