"""Rewritten copies next to the stored ones: which are put, what readers see, and what a killed run leaves."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.erased.canary import GONE, Canary, canary, log_of
from tests.made_archive import MadeArchive, batches, steps
from tests.tsctl.erase.killing import Killed, KilledAt, logs, not_held, not_locked, only_writes, shown, values
from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit, Lineage, LogStart
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.sealed_objects import SealedRange, SealJson
from ts_common.archive.segment_metadata import decode_metadata
from ts_common.errors import OutcomeUnknown
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_common.store.protection import Lock
from ts_common.store.wrappers.wrapped import WrappedStore
from tsctl.erase.erased_copies import Did, Held, Outcome
from tsctl.erase.replacing import replace_copies
from tsctl.gc.objects import Locked
from tsctl.gc.retention import LeftOut

FIRST, SECOND = SegmentName(0), SegmentName(100)


@pytest.fixture
def person(tmp_path: Path) -> Canary:
    """An archive whose two segments with the person are below the last one, and a list."""
    found = canary(tmp_path / "bucket")
    found.archive.put_segment("t", 200, batches(*steps(200, 220)))
    found.archive.commit("t", 220, highest_base=200)
    found.erase()
    return found


def run(
    person: Canary, *, store: ObjectStore | None = None, held: Held = not_held, locked: Locked = not_locked
) -> list[Outcome]:
    return [*replace_copies(store or person.archive.store, person.keys, held=held, locked=locked)]


def made_of(person: Canary, outcome: Outcome) -> dict[str, str]:
    assert outcome.made is not None
    return dict(person.archive.store.head(outcome.made).metadata)


def remove_list_and_originals(person: Canary, *names: SegmentName) -> None:
    """Show what the stored bytes alone have."""
    store, keys = person.archive.store, person.keys
    store.delete([*(keys.segment(name) for name in names), *(info.key for info in store.list(keys.erased))])
    store.put(keys.log_start, LogStart(0).encode())


def test_each_copy_with_a_listed_record_is_replaced(person: Canary) -> None:
    """Readers see the same before and after, also without the list once the originals are removed."""
    before = shown(person.archive)
    outcomes = run(person)
    assert [(each.key, each.did, each.reason) for each in outcomes] == [
        (person.keys.segment(name), Did.REWRITTEN, "") for name in (FIRST, SECOND)
    ]
    assert [(each.records, each.batches) for each in outcomes] == [(5, 4), (12, 3)]
    assert len({each.before for each in outcomes} | {each.after for each in outcomes}) == 4
    for name, outcome in zip((FIRST, SECOND), outcomes, strict=True):
        fields = made_of(person, outcome)
        assert (fields["ts-replaces"], fields["ts-erased"]) == (name.stem, "1")
        assert outcome.made == person.keys.segment(SegmentName(name.base, 0, int(fields["ts-crc32c"], 16)))
        indexes = [info.key for info in person.archive.store.list(outcome.made.removesuffix(".log"))]
        assert [key.rpartition(".")[2] for key in indexes] == ["index", "log", "timeindex"]
    assert shown(person.archive) == before
    remove_list_and_originals(person, FIRST, SECOND)
    assert shown(person.archive) == before
    assert not any(person.person in value for log in logs(person.archive).values() for value in values(log))


def test_a_second_run_puts_nothing(person: Canary) -> None:
    """What is replaced, and what obeys the list, is left as it is."""
    run(person)
    before = logs(person.archive)
    assert run(person) == []
    assert logs(person.archive) == before


def test_a_greater_list_rewrites_the_rewritten_copy(person: Canary) -> None:
    """The second copy replaces the first, which replaces the original: a chain."""
    (first, _) = run(person)
    person.erase({*GONE, 20}, number=2)
    before = shown(person.archive)
    (outcome,) = [each for each in run(person) if each.did is Did.REWRITTEN]
    assert outcome.key == first.made
    fields = made_of(person, outcome)
    assert (fields["ts-replaces"], fields["ts-erased"]) == (str(first.made).rpartition("/")[2][:-4], "2")
    assert shown(person.archive) == before
    assert run(person) == []


def test_a_list_that_changes_nothing_in_a_copy_puts_nothing(person: Canary) -> None:
    """The copy is read once more, and has no record of the greater list."""
    run(person)
    person.erase({*GONE, 205}, number=2)
    assert [(each.did, each.key) for each in run(person)] == [(Did.WAITS, person.keys.segment(SegmentName(200)))]


def test_overlapping_copies_and_dead_tails_are_rewritten(person: Canary) -> None:
    """An election can show the record of a dead tail again."""
    made = person.archive
    made.put_segment("t", 40, log_of(person.person, 40, 120, epoch=1))
    made.put_segment("t", 200, batches(*steps(200, 220), epoch=2))
    made.commit("t", 220, epochs=((0, 0), (2, 200)), highest_base=200, log_start=None)
    person.erase(epoch=1, number=2)
    before = shown(made)
    outcomes = run(person)
    names = [FIRST, SegmentName(40), SECOND]
    assert [(each.key, each.did) for each in outcomes] == [(person.keys.segment(name), Did.REWRITTEN) for name in names]
    assert shown(made) == before


def test_a_copy_below_the_start_is_rewritten_and_a_released_one_waits(person: Canary) -> None:
    """A hold can show hidden records; retention deletes released ones. Its copy decides: agents write `log.start`."""
    store, keys = person.archive.store, person.keys
    start = LogStart(150, floor=150, erased=1, written_by="gc-1")
    store.put(keys.log_start, start.encode())
    store.put(keys.cluster.log_start_copy(keys), replace(start, floor=100).encode())
    outcomes = {each.key: each for each in run(person)}
    assert outcomes[keys.segment(FIRST)].reason == "retention has released it, and deletes it"
    assert outcomes[keys.segment(SECOND)].did is Did.REWRITTEN
    store.delete([keys.cluster.log_start_copy(keys)])
    assert [(each.key, each.did) for each in run(person)] == [(keys.segment(FIRST), Did.REWRITTEN)]


def waits(person: Canary, **options: Any) -> dict[str, str]:
    """Return the reason of each copy that waits, by its name; no copy is put."""
    before = logs(person.archive)
    outcomes = run(person, **options)
    assert {each.did for each in outcomes} == {Did.WAITS}
    assert logs(person.archive) == before
    return {each.key.removeprefix(person.keys.prefix): each.reason for each in outcomes}


def test_what_the_log_of_the_leader_is_compared_with_waits(tmp_path: Path) -> None:
    """The segment of line 1, the last committed batch's, and what is above the commit."""
    person = canary(tmp_path / "bucket")
    person.erase()
    (first, second) = run(person)
    assert (first.did, second.did) == (Did.REWRITTEN, Did.WAITS)
    assert (
        second.reason
        == f"it is the last segment in {person.keys.commit}: it stays as it is until a later one is committed"
    )
    person.archive.put_segment("t", 120, log_of(person.person, 120, 200))
    person.archive.put_segment("t", 200, log_of(person.person, 200, 300, {205}))
    person.erase({*GONE, 205}, number=2)
    reasons = {each.key.rpartition("/")[2]: each.reason for each in run(person) if each.did is Did.WAITS}
    assert reasons[SegmentName(120).stem + ".log"].startswith("the log of the leader is compared with it")
    assert reasons[SegmentName(200).stem + ".log"].startswith("the log of the leader is compared with it")


def test_the_copy_with_the_batch_that_identifies_the_log_waits(person: Canary) -> None:
    """Compaction can have removed all batches above it."""
    store, keys = person.archive.store, person.keys
    commit, _ = read_commit(store, keys)
    assert isinstance(commit, Commit)
    store.put(keys.commit, replace(commit, tail=(199, 1)).encode())
    reasons = [each.reason for each in run(person) if each.did is Did.WAITS]
    assert [reason[:34] for reason in reasons] == ["the log of the leader is compared "]


def test_an_uncommitted_leaders_copy_waits(person: Canary) -> None:
    """Its leader has not committed yet which log the archive follows."""
    person.archive.put_segment("t", 60, log_of(person.person, 60, 100, epoch=3))
    person.erase(epoch=3, number=2)
    reasons = [each.reason for each in run(person) if each.did is Did.WAITS]
    assert reasons == ["a leader that has not committed yet shipped it"]


def test_a_hold_and_a_lock_stop_the_rewriting(person: Canary) -> None:
    """They are named, with the end of a lock."""
    assert set(waits(person, held=lambda: "hold case-17").values()) == {"hold case-17"}
    lock = Lock(4102444800.0, legal_hold=False, mode="GOVERNANCE")
    reasons = waits(person, locked=lambda keys: dict.fromkeys(keys, lock))
    assert set(reasons.values()) == {"retained until 2100-01-01 00:00:00 UTC (GOVERNANCE)"}


def test_a_hold_that_is_set_meanwhile_stops_the_put(person: Canary) -> None:
    """Rewriting a segment takes minutes."""
    answers = iter([None, "hold case-17", "hold case-17"])
    assert len(waits(person, held=lambda: next(answers))) == 2


def test_a_java_uploaders_partition_is_left_out(person: Canary) -> None:
    """It writes over segments without a condition."""
    person.archive.store.put(person.keys.commit, b"%020d" % 100)
    with pytest.raises(LeftOut, match="is not of an agent"):
        run(person)


def test_without_a_list_nothing_is_read(tmp_path: Path) -> None:
    """Most partitions have none."""
    person = canary(tmp_path / "bucket")
    assert run(person) == []


def test_what_cannot_be_rewritten_is_named(person: Canary) -> None:
    """A damaged segment; the other one is rewritten."""
    store, key = person.archive.store, person.keys.segment(FIRST)
    body, info = store.get(key)
    store.put(key, body[:-1] + bytes([body[-1] ^ 1]), metadata=dict(info.metadata))
    first, second = run(person)
    assert (first.key, first.did, second.did) == (key, Did.HIDDEN, Did.REWRITTEN)
    assert first.reason.startswith("it is damaged (")


def test_a_replaced_copy_is_not_rewritten_and_its_repair_is(person: Canary) -> None:
    """Readers do not choose the damaged one, so nothing would be gained."""
    store, key = person.archive.store, person.keys.segment(FIRST)
    body, info = store.get(key)
    repair = person.put_repair(body, FIRST)
    store.put(key, body[:-1] + bytes([body[-1] ^ 1]), metadata=dict(info.metadata))
    before = shown(person.archive)
    outcomes = run(person)
    assert sorted(each.key for each in outcomes) == sorted(map(person.keys.segment, (repair, SECOND)))
    assert shown(person.archive) == before


def test_equal_bytes_that_replace_different_copies_have_names_of_their_own(person: Canary) -> None:
    """`ts-replaces` names one object."""
    person.archive.put_segment("t", 0, log_of(person.person, 0, 100), variant=True)
    before = shown(person.archive)
    outcomes = [each for each in run(person) if "/00000000000000000000." in each.key]
    names = {SegmentName.parse(str(each.made).rpartition("/")[2])[0] for each in outcomes}  # type: ignore[index]
    assert {name.repair for name in names} == {None, 1}
    assert len({name.crc32c for name in names}) == 1
    assert shown(person.archive) == before
    assert run(person) == []


class Watching(WrappedStore):
    """Calls a function before each put of a key with an end."""

    def __init__(self, inner: ObjectStore, end: str, call: Callable[[], None]) -> None:
        super().__init__(inner, threads=1)
        self._end, self._call = end, call

    def put(self, key: str, *arguments: Any, **named: Any) -> ObjectInfo:
        if key.endswith(self._end):
            self._call()
        return self._inner.put(key, *arguments, **named)


def test_the_put_is_within_a_token_of_seal_json(person: Canary) -> None:
    """A reader that lists no sealed offsets would not see what is put there; other ranges stay sealed."""
    store, keys = person.archive.store, person.keys
    ranges = tuple(SealedRange(start, start + 100, f"{start}-{start + 100}.00000001.seal") for start in (0, 100, 200))
    store.put(keys.seal_json, SealJson("n", None, ranges, {}).encode())
    seen = list[tuple[tuple[SealedRange, ...], list[tuple[int, int]]]]()

    def look() -> None:
        found = SealJson.read(store, keys.seal_json)
        assert found is not None
        seen.append((found.sealed, [*found.open.values()]))

    run(person, store=Watching(store, ".log", look))
    assert seen == [(ranges[1:], [(0, 100)]), (ranges[2:], [(100, 200)])]
    after = SealJson.read(store, keys.seal_json)
    assert after is not None
    assert (after.sealed, after.open) == (ranges[2:], {})


def test_a_commit_that_goes_back_meanwhile_ends_it(person: Canary) -> None:
    """The name has the leader epoch of the commit, and a lineage has rules of its own for names."""
    store, keys = person.archive.store, person.keys
    commit, _ = read_commit(store, keys)
    assert isinstance(commit, Commit)

    def go_back() -> None:
        store.put(keys.commit, replace(commit, lineage=Lineage(1, 50, 220)).encode())

    before = logs(person.archive)
    with pytest.raises(LeftOut, match="went back meanwhile"):
        run(person, store=Watching(store, "seal.json", go_back))
    assert logs(person.archive) == before


def test_a_segment_that_is_written_again_meanwhile_ends_it(person: Canary) -> None:
    """What was rewritten is not what the new copy would replace."""
    store, key = person.archive.store, person.keys.segment(FIRST)
    body, info = store.get(key)

    def write() -> None:
        store.put(key, body + b"\0", metadata=dict(info.metadata))

    with pytest.raises(LeftOut, match="written again meanwhile"):
        run(person, store=Watching(store, "seal.json", write))


def test_a_put_whose_answer_is_lost_is_found_by_the_next_run(person: Canary) -> None:
    """The token stays, as after a kill: the store can complete the put later."""

    class Losing(WrappedStore):
        def put(self, key: str, *arguments: Any, **named: Any) -> ObjectInfo:
            info = self._inner.put(key, *arguments, **named)
            if key.endswith(".log"):
                raise OutcomeUnknown("no answer")
            return info

    with pytest.raises(OutcomeUnknown):
        run(person, store=Losing(person.archive.store, threads=1))
    (outcome,) = run(person)
    assert outcome.key == person.keys.segment(SECOND)
    assert run(person) == []


def with_one_copy(path: Path) -> Canary:
    """Return an archive with one copy to rewrite."""
    found = canary(path)
    found.erase(each for each in GONE if each < 100)
    return found


def test_killed_after_each_request_and_repeated_it_ends_the_same(tmp_path: Path) -> None:
    """Readers see the same after each kill, and the copies are those of a run that was not killed."""
    counted = KilledAt(with_one_copy(tmp_path / "counted").archive.store, only_writes=only_writes())
    (outcome,) = replace_copies(
        counted, MadeArchive(tmp_path / "counted").partition("t"), held=not_held, locked=not_locked
    )
    assert outcome.did is Did.REWRITTEN
    assert counted.count > (3 if only_writes() else 12)
    for at in range(1, counted.count + 1):
        person = with_one_copy(tmp_path / f"{at}")
        before = shown(person.archive)
        with suppress(Killed):  # a list that this process has read is not read again
            run(person, store=KilledAt(person.archive.store, at, after=True, only_writes=only_writes()))
        assert shown(person.archive) == before
        run(person)
        assert shown(person.archive) == before
        assert run(person) == []
        found = [
            decode_metadata(person.archive.store.head(person.keys.prefix + name).metadata, name)
            for name in logs(person.archive)
        ]
        assert [each.replaces for each in found if each is not None] == [FIRST.stem, None, None]
