"""The removal of what rewritten copies replace: its grace and its order, and what stops it."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.common.log_format.build import TRANSACTIONAL, batch, marker, record
from tests.erased.canary import GONE, Canary, canary, log_of
from tests.made_archive import BytesReader, batches, steps
from tests.tsctl.erase.killing import Killed, KilledAt, logs, not_held, not_locked, only_writes, shown, values
from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit, Lineage, LogStart
from ts_common.archive.object_keys import LOG_SUFFIX, SegmentName
from ts_common.archive.segment_inspection import metadata_of
from ts_common.archive.segment_metadata import decode_metadata
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.log_format.scan import scan_segment
from ts_common.store.contract import ByteRange, ObjectStore, ObjectStream
from ts_common.store.protection import Lock
from ts_common.store.wrappers.wrapped import WrappedStore
from tsctl.erase.erased_copies import Did, Held, Outcome
from tsctl.erase.removing import remove_replaced
from tsctl.erase.replacing import replace_copies
from tsctl.gc.objects import Locked
from tsctl.gc.retention import LeftOut

FIRST, SECOND = SegmentName(0), SegmentName(100)
NOW, HOUR = -1.0, 3600.0  # a grace that is over, and one that is not


def with_list(path: Path) -> Canary:
    """Return an archive whose two segments with the person are below the last one, and a list."""
    found = canary(path)
    found.archive.put_segment("t", 200, batches(*steps(200, 220)))
    found.archive.commit("t", 220, highest_base=200)
    found.erase()
    return found


@pytest.fixture
def person(tmp_path: Path) -> Canary:
    """The archive of `with_list` before a run."""
    return with_list(tmp_path / "bucket")


def rewrite(person: Canary) -> dict[str, str]:
    """Run a rewriting; return the key of each new copy, by that of the old one."""
    outcomes = replace_copies(person.archive.store, person.keys, held=not_held, locked=not_locked)
    return {each.key: each.made for each in outcomes if each.made is not None}


def remove(
    person: Canary,
    grace: float = NOW,
    *,
    store: ObjectStore | None = None,
    held: Held = not_held,
    locked: Locked = not_locked,
) -> list[Outcome]:
    return [*remove_replaced(store or person.archive.store, person.keys, grace=grace, held=held, locked=locked)]


def reasons(outcomes: Sequence[Outcome]) -> list[tuple[Did, str]]:
    return [(each.did, each.reason) for each in outcomes]


def names(person: Canary) -> list[str]:
    """Return the names of all segments and indexes."""
    listed = (info.key.removeprefix(person.keys.prefix) for info in person.archive.store.list(person.keys.prefix))
    return [name for name in listed if SegmentName.parse(name) is not None]


def without_list(person: Canary) -> list[int]:
    """Return the offsets that readers would show without a list."""
    store, keys = person.archive.store, person.keys
    lists = {info.key: store.get(info.key)[0] for info in store.list(keys.erased)}
    log_start = store.get(keys.log_start)[0]
    store.delete(lists)
    store.put(keys.log_start, LogStart(0).encode())
    found = [offset for offset, _ in shown(person.archive)]
    for key, data in lists.items():
        store.put(key, data)
    store.put(keys.log_start, log_start)
    return found


def damage(person: Canary, key: str) -> None:
    store = person.archive.store
    body, info = store.get(key)
    store.put(key, body[:-1] + bytes([body[-1] ^ 1]), metadata=dict(info.metadata))


def test_replaced_copies_are_removed_after_the_grace(person: Canary) -> None:
    """Their indexes too; readers see the same, and no stored byte has the person."""
    for name in (FIRST, SECOND):
        person.archive.store.put(person.keys.segment(name, ".index"), b"")
    before = shown(person.archive)
    made = rewrite(person)
    wait = "a query that was planned before can still read it"
    assert reasons(remove(person, HOUR)) == [(Did.WAITS, wait)] * 2
    outcomes = remove(person)
    assert [(each.key, each.did, each.made) for each in outcomes] == [
        (key, Did.REMOVED, made[key]) for key in map(person.keys.segment, (FIRST, SECOND))
    ]
    assert shown(person.archive) == before
    assert without_list(person) == [offset for offset in range(220) if offset not in GONE]
    assert not any(name.startswith((FIRST.stem + ".i", FIRST.stem + ".l")) for name in names(person))
    assert not any(person.person in value for log in logs(person.archive).values() for value in values(log))
    assert remove(person) == []
    assert rewrite(person) == {}


def test_before_a_rewriting_nothing_is_removed(person: Canary) -> None:
    """A list alone removes nothing, and neither does a partition without one."""
    assert remove(person) == []
    assert len(names(person)) == 3


def test_a_chain_is_removed_from_its_far_end(person: Canary) -> None:
    """X is damaged, R replaces X, E replaces R: without R, readers would choose X, and with it the person."""
    store, keys = person.archive.store, person.keys
    repair = person.put_repair(store.get(keys.segment(FIRST))[0], FIRST)
    damage(person, keys.segment(FIRST))
    before = shown(person.archive)
    rewrite(person)
    lock = Lock(4102444800.0, legal_hold=False, mode="COMPLIANCE")

    def locked(asked: Sequence[str]) -> Mapping[str, Lock]:
        return {key: lock for key in asked if key == keys.segment(FIRST)}

    outcomes = remove(person, locked=locked)
    assert [(each.key, each.did) for each in outcomes] == [
        (keys.segment(FIRST), Did.WAITS),
        (keys.segment(SECOND), Did.REMOVED),
        (keys.segment(repair), Did.WAITS),
    ]
    assert outcomes[0].reason == "retained until 2100-01-01 00:00:00 UTC (COMPLIANCE)"
    assert outcomes[2].reason.startswith(f"it replaces {FIRST.stem}.log, which stays")
    assert shown(person.archive) == before
    outcomes = remove(person)
    assert [each.key for each in outcomes] == [keys.segment(FIRST), keys.segment(repair)]
    assert {each.did for each in outcomes} == {Did.REMOVED}
    assert shown(person.archive) == before
    assert not GONE.intersection(without_list(person))


def test_a_ring_of_names_is_removed(person: Canary) -> None:
    """E replaces V, which is removed; E is damaged, and a repair puts V again, which then replaces E."""
    store, keys = person.archive.store, person.keys
    body = store.get(keys.segment(FIRST))[0]
    original = person.put_repair(body, FIRST)
    rewrite(person)
    assert {each.did for each in remove(person)} == {Did.REMOVED}
    (made,) = (name for name in logs(person.archive) if name.startswith(FIRST.stem))
    damage(person, keys.prefix + made)
    parsed = SegmentName.parse(made)
    assert parsed is not None
    assert person.put_repair(body, parsed[0]) == original
    before = shown(person.archive)
    assert [*rewrite(person)] == [keys.segment(original)]
    for _ in range(2):
        remove(person)
        assert shown(person.archive) == before
    assert remove(person) == []
    assert len([name for name in logs(person.archive) if name.startswith(FIRST.stem)]) == 1
    assert not GONE.intersection(without_list(person))


def test_the_copies_of_two_lists_are_removed_in_one_run(person: Canary) -> None:
    """The second eraser's copy replaces the first one's."""
    made = rewrite(person)
    person.erase({*GONE, 20}, number=2)
    key = person.keys.segment(FIRST)
    again = rewrite(person)
    assert [*again] == [made[key]]
    before = shown(person.archive)
    outcomes = remove(person)
    assert [each.key for each in outcomes] == [key, person.keys.segment(SECOND), made[key]]
    assert {each.did for each in outcomes} == {Did.REMOVED}
    assert shown(person.archive) == before
    assert 20 not in without_list(person)


def test_a_copy_with_records_of_a_later_list_removes_nothing(person: Canary) -> None:
    """It is rewritten first, and only then the last one."""
    made = rewrite(person)
    person.erase({*GONE, 20}, number=2)
    first, _ = remove(person)
    assert (first.did, first.reason) == (
        Did.WAITS,
        f"{made[person.keys.segment(FIRST)]}: rewrite it; it has records of the list",
    )


def test_a_hold_stops_it(person: Canary) -> None:
    """A hold that is set between the check and the deletion too."""
    rewrite(person)
    assert reasons(remove(person, held=lambda: "hold case-17")) == [(Did.WAITS, "hold case-17")] * 2
    answers = iter([None, "hold case-17"])
    with pytest.raises(LeftOut, match="hold case-17"):
        remove(person, held=lambda: next(answers))
    assert len([name for name in names(person) if name.endswith(LOG_SUFFIX)]) == 5


def test_a_damaged_copy_removes_nothing(person: Canary) -> None:
    """The original can be the only good one: a repair needs it."""
    damage(person, rewrite(person)[person.keys.segment(FIRST)])
    first, second = remove(person)
    assert (first.did, second.did) == (Did.HIDDEN, Did.REMOVED)
    assert ": it is damaged (CRC-32C" in first.reason
    assert FIRST.stem + LOG_SUFFIX in logs(person.archive)


def test_a_lost_txnindex_removes_nothing(person: Canary) -> None:
    """Without it, aborted records would be shown."""
    log = batch(0, [record(at, b"k") for at in range(99)], attributes=TRANSACTIONAL, producer_id=7) + marker(99, 7, 0)
    person.archive.put_segment("t", 0, log, txnindex=AbortedTransaction(7, 0, 99, 0).encode())
    made = rewrite(person)[person.keys.segment(FIRST)]
    person.archive.store.delete([made.removesuffix(LOG_SUFFIX) + ".txnindex"])
    first, _ = remove(person)
    assert first.did is Did.HIDDEN
    assert first.reason.startswith(f"{made}: it is damaged (its .txnindex is missing")


def test_a_repair_that_ends_below_the_damaged_copy_removes_nothing(person: Canary) -> None:
    """Readers read the damaged copy above the end of the good one."""
    key = person.keys.segment(FIRST)
    log = person.archive.store.get(key)[0]
    whole = decode_metadata(person.archive.store.head(key).metadata, key)
    assert whole is not None
    person.put_repair(log, FIRST)
    person.archive.store.put(key, log, metadata=replace(whole, end=110).encode())
    damage(person, key)
    rewrite(person)
    outcomes = {each.key: each for each in remove(person)}
    assert outcomes[key].did is Did.HIDDEN
    assert outcomes[key].reason == "no copy that replaces it has offset 100: repair it"


@pytest.mark.parametrize("is_of_two", [False, True])
def test_a_ring_is_removed_once_each_of_it_was_rewritten(person: Canary, is_of_two: bool) -> None:
    """Agents can write a `ts-replaces` of the copy itself; the first end of a chain would wait for ever."""
    body, info = person.archive.store.get(key := person.keys.segment(FIRST))
    other = person.put_repair(body, FIRST) if is_of_two else FIRST
    person.archive.store.put(key, body, metadata={**info.metadata, "ts-replaces": other.stem})
    before = shown(person.archive)
    rewrite(person)
    assert {each.did for each in remove(person)} == {Did.REMOVED}
    assert shown(person.archive) == before
    assert not any(person.person in value for log in logs(person.archive).values() for value in values(log))


class _Vanishing(WrappedStore):
    """Loses an object when it is read for the comparison, as if another process had removed it."""

    def __init__(self, inner: ObjectStore, key: str) -> None:
        super().__init__(inner, threads=1)
        self._key = key

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        if key == self._key:
            self._inner.delete([key])
        return self._inner.open(key, byte_range)


def test_a_copy_stays_and_is_named_if_what_replaces_it_is_removed_meanwhile(person: Canary) -> None:
    """Without an outcome the run would note that nothing remains, and the request would be erased."""
    made = rewrite(person)
    key = person.keys.segment(FIRST)
    outcomes = {each.key: each for each in remove(person, store=_Vanishing(person.archive.store, made[key]))}
    assert (outcomes[key].did, outcomes[key].reason) == (Did.WAITS, "an object next to it was removed meanwhile")
    assert person.archive.store.head(key).size


def test_a_copy_with_other_records_removes_nothing(person: Canary) -> None:
    """A broker that others took over can put any segment, and name any other one in its metadata."""
    key = person.keys.segment(FIRST)
    forged = person.put_repair(batches(*steps(0, 100)), FIRST)
    made = rewrite(person)[person.keys.segment(forged)]
    outcomes = {each.key: each for each in remove(person)}
    assert outcomes[key].did is Did.HIDDEN
    assert outcomes[key].reason == f"{made} has other records from offset 1 on: compare them with tsctl verify"
    assert outcomes[person.keys.segment(forged)].did is Did.WAITS


def test_two_repairs_that_have_all_offsets_together_remove_the_damaged_copy(person: Canary) -> None:
    """The leader's segments have other bounds. Only one of them has records of the list."""
    store, key = person.archive.store, person.keys.segment(FIRST)
    for base, end in ((0, 60), (60, 100)):
        log = log_of(person.person, base, end)
        scan = scan_segment(BytesReader(log), len(log), None)
        metadata = replace(metadata_of(scan, base, "x"), replaces=FIRST.stem)
        store.put(person.keys.segment(SegmentName(base, 0, scan.crc32c)), log, metadata=metadata.encode())
    damage(person, key)
    person.erase({13, 14, 57}, number=2)
    before = shown(person.archive)
    rewrite(person)
    outcomes = remove(person)
    assert (outcomes[0].key, outcomes[0].did) == (key, Did.REMOVED)
    assert shown(person.archive) == before
    assert not {13, 14, 57}.intersection(without_list(person))


def test_a_repair_with_the_same_records_removes_nothing(person: Canary) -> None:
    """It is rewritten first."""
    repair = person.put_repair(person.archive.store.get(person.keys.segment(FIRST))[0], FIRST)
    assert reasons(remove(person)) == [
        (Did.WAITS, f"{person.keys.segment(repair)}: rewrite it; it has records of the list")
    ]


@pytest.mark.parametrize("is_damaged", [True, False])
def test_what_a_repair_replaced_is_removed_if_it_may_have_records_of_the_list(person: Canary, is_damaged: bool) -> None:
    """The repair has none, so no run rewrites it. A damaged copy cannot be read, and may have some."""
    key = person.keys.segment(FIRST)
    person.put_repair(person.archive.store.get(key)[0], FIRST)
    person.erase({5}, epoch=-1, number=2)
    if is_damaged:
        damage(person, key)
    before = shown(person.archive)
    assert [(each.key, each.did) for each in remove(person)] == [(key, Did.REMOVED)] * is_damaged
    assert shown(person.archive) == before


def test_another_segment_under_the_name_of_a_removed_one_is_rewritten_and_removed(person: Canary) -> None:
    """A leader whose segments are longer ships the one with the next offset; the name is free again."""
    made, key = person.archive, person.keys.segment(FIRST)
    rewrite(person)
    remove(person)
    made.put_segment("t", 0, log_of(person.person, 0, 200) + batches(*steps(200, 250)))
    made.put_segment("t", 250, batches(*steps(250, 260)))
    made.commit("t", 260, highest_base=250, log_start=None)
    before = shown(made)
    assert [offset for offset, _ in before] == [offset for offset in range(260) if offset not in GONE]
    assert [*rewrite(person)] == [key]
    assert [(each.key, each.did) for each in remove(person)] == [(key, Did.REMOVED)]
    assert shown(made) == before
    assert not GONE.intersection(without_list(person))


def test_a_segment_that_was_shipped_again_waits_for_a_grace_of_its_own(person: Canary) -> None:
    """After a lost commit an agent ships it under its name; it is replaced from its put on."""
    store, key = person.archive.store, person.keys.segment(FIRST)
    body, info = store.get(key)
    rewrite(person)
    remove(person)
    before = shown(person.archive)
    person.archive.age(2 * HOUR)
    store.put(key, body, metadata=dict(info.metadata))
    assert shown(person.archive) == before
    assert rewrite(person) == {}
    assert [each.did for each in remove(person, HOUR)] == [Did.WAITS]
    assert [each.did for each in remove(person)] == [Did.REMOVED]
    assert shown(person.archive) == before


def test_line_1_that_went_back_to_it_keeps_it(person: Canary) -> None:
    """An election moved the commit back into the copy."""
    rewrite(person)
    person.archive.commit("t", 150, highest_base=100, log_start=None)
    first, second = remove(person)
    assert (first.did, second.did) == (Did.REMOVED, Did.WAITS)
    assert (
        second.reason
        == f"it is the last segment in {person.keys.commit}: it stays as it is until a later one is committed"
    )


def test_a_commit_that_goes_back_meanwhile_ends_it(person: Canary) -> None:
    """It is read before each deletion."""
    store, keys = person.archive.store, person.keys
    commit, _ = read_commit(store, keys)
    assert isinstance(commit, Commit)
    rewrite(person)

    def held() -> str | None:
        store.put(keys.commit, replace(commit, lineage=Lineage(1, 50, 220)).encode())
        return None

    with pytest.raises(LeftOut, match="went back meanwhile"):
        remove(person, held=held)
    assert len(logs(person.archive)) == 5


def test_a_copy_with_another_etag_than_the_listing_is_kept(person: Canary) -> None:
    """Another process wrote it since."""
    store, key = person.archive.store, person.keys.segment(FIRST)
    rewrite(person)
    body, info = store.get(key)

    def held() -> str | None:
        store.put(key, body + b"\0", metadata=dict(info.metadata))
        return None

    first, *_ = remove(person, held=held)
    assert (first.did, first.reason) == (Did.WAITS, f"{key}: kept")


def test_killed_after_each_request_and_repeated_it_ends_the_same(tmp_path: Path) -> None:
    """Readers see the same after each kill; an index that is left is removed by retention, as any without a `.log`."""

    def made(path: Path) -> Canary:
        found = canary(path)
        found.archive.store.put(found.keys.segment(FIRST, ".index"), b"")
        found.erase(each for each in GONE if each < 100)
        rewrite(found)
        return found

    first = made(tmp_path / "counted")
    counted = KilledAt(first.archive.store, only_writes=only_writes())
    assert [each.did for each in remove(first, store=counted)] == [Did.REMOVED]
    assert counted.count > (1 if only_writes() else 8)
    for at in range(1, counted.count + 1):
        person = made(tmp_path / f"{at}")
        before = shown(person.archive)
        with suppress(Killed):
            remove(person, store=KilledAt(person.archive.store, at, after=True, only_writes=only_writes()))
        assert shown(person.archive) == before
        remove(person)
        assert shown(person.archive) == before
        assert [name for name in logs(person.archive) if "e" not in name] == [SECOND.stem + LOG_SUFFIX]
        assert not GONE.intersection(offset for offset in without_list(person) if offset < 100)
