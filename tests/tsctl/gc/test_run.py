"""Both phases of `tsctl gc`: log.start first, objects after the grace, and nothing that is in doubt."""

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.made_archive import MadeArchive, batches
from tests.tsctl.gc.archives import (
    GRACE,
    SETTINGS,
    FixedRetention,
    bases,
    go_back,
    keep_last,
    later,
    names,
    run,
    ship,
    start_of,
)
from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit, Lineage, LogStart
from ts_common.archive.gc_plans import planned_log_starts, read_moves
from ts_common.archive.gc_runs import list_runs
from ts_common.archive.object_keys import PartitionKeys, SegmentName
from ts_common.errors import AccessDenied, CorruptData, ObjectFrozen, QueryError
from ts_common.store.contract import ByteRange, DeleteOutcome, ObjectInfo, ObjectStore, ObjectStream
from ts_common.store.wrappers.wrapped import WrappedStore
from tsctl.gc.deletion import delete_planned
from tsctl.gc.deletion_log import Outcome
from tsctl.gc.due import Rule
from tsctl.gc.policy import Fuse
from tsctl.gc.retention import NeededFrom, Why
from tsctl.gc.run import Settings, run_once, store_time
from tsctl.gc.undo import choose_undone, undo

NOW = 4_000_000_000_000  # a whole second, later than any plan


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    return MadeArchive(tmp_path / "bucket")


def test_g03_log_start_moves_first_and_objects_follow_after_the_grace(archive: MadeArchive) -> None:
    """G03: readers leave out what is due before the first object is removed."""
    size = ship(archive, "t", 0, 100)
    first = run(archive, keep_last(3, size))
    assert start_of(archive) == 70
    assert bases(archive) == list(range(0, 100, 10))
    assert first.planned is not None
    assert first.planned.plan is not None
    assert first.planned.plan.objects == 21
    waits = run(archive, keep_last(3, size))
    assert waits.waits_until is not None
    assert waits.waits_until >= first.planned.plan.due
    assert bases(archive) == list(range(0, 100, 10))
    second = run(archive, keep_last(3, size), after=GRACE)
    assert second.deleted is not None
    assert second.deleted.objects == {Outcome.REMOVED: 21}
    assert [name for name in names(archive) if name[0] == "0"] == [
        f"{base:020d}{suffix}" for base in (70, 80, 90) for suffix in (".index", ".log", ".timeindex")
    ]
    assert start_of(archive) == 70
    assert not [each for each in list_runs(archive.store, archive.keys) if each.is_pending]


def test_g01_partition_10_is_not_touched_for_partition_1(archive: MadeArchive) -> None:
    """G01: only the exact directory is listed, also where a topic has the name of a partition."""
    size = ship(archive, "t", 0, 50, partition=1)
    for topic, partition in (("t", 10), ("t-1", 0)):
        archive.put_segment(topic, 0, batches((0, 10)), partition=partition)
    archive.put_incarnations("t-1", "A" * 22)
    run(archive, keep_last(1, size))
    run(archive, keep_last(1, size), after=GRACE)
    assert bases(archive, partition=1) == [40]
    assert bases(archive, partition=10) == [0]
    assert bases(archive, "t-1") == [0]
    archive.store.head(archive.keys.incarnations("t-1"))


def test_an_undo_of_a_run_that_moved_nothing_reports_no_partition_as_back(archive: MadeArchive) -> None:
    """Objects that another policy kept are planned again, below a `log.start` that the earlier run moved."""
    size = ship(archive, "t", 0, 100)
    run(archive, keep_last(3, size))
    run(archive, keep_last(100, size), after=GRACE)
    run(archive, keep_last(3, size))
    runs = list_runs(archive.store, archive.keys)
    undone = undo(archive.store, archive.keys, choose_undone(archive.store, archive.keys, runs, None), 0)
    assert (undone.lowered, undone.unchanged) == (0, 1)
    assert start_of(archive) == 70


def test_a_policy_that_keeps_more_meanwhile_deletes_nothing(archive: MadeArchive) -> None:
    """What is due is worked out again after the grace."""
    size = ship(archive, "t", 0, 100)
    run(archive, keep_last(3, size))
    second = run(archive, keep_last(8, size), after=GRACE)
    assert second.deleted is not None
    assert second.deleted.objects == {Outcome.REMOVED: 6, Outcome.LEFT: 15}
    assert bases(archive) == list(range(20, 100, 10))


@pytest.mark.parametrize("between", ["survey", "deletion"])
def test_a_hold_stops_both_phases(archive: MadeArchive, between: str) -> None:
    """A hold that is set between the phases stops the deletion, and readers see its records again."""
    size = ship(archive, "t", 0, 100)
    retention = keep_last(3, size)
    if between == "deletion":
        run(archive, retention)
        assert start_of(archive) == 70
    retention.held.add("t")
    found = run(archive, retention, after=GRACE)
    assert {skipped.why for skipped in found.left_out} == {Why.HELD}
    assert bases(archive) == list(range(0, 100, 10))
    assert start_of(archive) == 0


@pytest.mark.parametrize("begin", [80, 50])
def test_a_hold_after_an_election_that_went_back_shows_what_the_run_hid(archive: MadeArchive, begin: int) -> None:
    """The agent has written `log.start` again in the later lineage; the plan's objects are all there."""
    retention = keep_last(3, ship(archive, "t", 0, 100))
    run(archive, retention)
    go_back(archive, begin)
    retention.held.add("t")
    found = run(archive, retention, after=GRACE)
    assert "log.start is back" in found.left_out[0].reason
    assert start_of(archive) == 0


def test_records_that_a_hold_showed_again_stay_shown_if_log_start_is_lost(archive: MadeArchive) -> None:
    """The plan is done and the newest one, but it hides nothing of the partition any more."""
    keys, size = archive.partition("t"), ship(archive, "t", 0, 100)
    retention = keep_last(3, size)
    run(archive, retention)
    assert [each.content.offset for each in planned_log_starts(archive.store, keys, archive.keys)] == [70]
    retention.held.add("t")
    run(archive, retention, after=GRACE)
    assert [each.content.offset for each in planned_log_starts(archive.store, keys, archive.keys)] == [0]


def test_a_run_that_is_killed_while_a_hold_shows_records_again_deletes_nothing_of_them(archive: MadeArchive) -> None:
    """The hold is removed before the next run: a lost `log.start` must not show what that run would delete."""
    size = ship(archive, "t", 0, 100)
    retention = keep_last(3, size)
    run(archive, retention)
    retention.held.add("t")

    class Denying(WrappedStore):
        def put(self, key: str, *arguments: Any, **named: Any) -> ObjectInfo:
            if key.endswith("log.start"):
                raise AccessDenied("denied")
            return self._inner.put(key, *arguments, **named)

    later(archive, GRACE)
    store = Denying(archive.store, threads=1)
    with pytest.raises(AccessDenied):
        run_once(store, archive.keys, lambda _: True, retention, SETTINGS, store_time(store, archive.keys))
    retention.held.clear()
    found = run(archive, retention)
    assert found.deleted is not None
    assert found.deleted.objects == {Outcome.LEFT: 21}
    assert bases(archive) == list(range(0, 100, 10))


def test_a_hold_shows_nothing_again_where_a_deletion_began(archive: MadeArchive) -> None:
    """An earlier run was killed in its deletion: below `log.start` there would be a hole."""
    size = ship(archive, "t", 0, 100)
    retention = keep_last(3, size)
    run(archive, retention)
    archive.store.delete([archive.partition("t").segment(SegmentName(20))])
    retention.held.add("t")
    run(archive, retention, after=GRACE)
    assert start_of(archive) == 70


@pytest.mark.parametrize("fuse", [{"objects": 20, "share": "100%"}, {"bytes": 100, "share": "100%"}, {}], ids=str)
def test_g05_the_fuse_stops_a_run_before_anything_moves(archive: MadeArchive, fuse: dict[str, Any]) -> None:
    """G05: a policy with a mistake hides and deletes nothing."""
    size = ship(archive, "t", 0, 100)
    found = run(archive, keep_last(3, size), settings=Settings(GRACE, Fuse.model_validate(fuse), {}))
    assert found.fuse is not None
    assert (start_of(archive), bases(archive)) == (0, list(range(0, 100, 10)))


def test_g05_a_plan_that_ignored_the_fuse_once_is_deleted_by_a_run_with_it(archive: MadeArchive) -> None:
    """G05: the fuse bounds what is planned; the grace is the time to undo a plan."""
    size = ship(archive, "t", 0, 100)
    fused = Settings(GRACE, Fuse.model_validate({"objects": 10, "share": "100%"}), {})
    assert run(archive, keep_last(3, size), settings=fused).planned is None
    run(archive, keep_last(3, size))
    found = run(archive, keep_last(3, size), after=GRACE, settings=fused)
    assert found.deleted is not None
    assert found.fuse is None
    assert bases(archive) == [70, 80, 90]


@pytest.mark.parametrize("name", ["offset.wm", "log.start"])
def test_g05_an_unreadable_mark_leaves_the_partition_out(archive: MadeArchive, name: str) -> None:
    """G05: other partitions are collected, and the run reports this one."""
    size = ship(archive, "t", 0, 100)
    ship(archive, "t", 0, 100, partition=1)
    archive.store.put(archive.partition("t").prefix + name, b"x")
    found = run(archive, keep_last(3, size))
    assert [(skipped.where, skipped.why) for skipped in found.left_out] == [("t-0", Why.DOUBT)]
    run(archive, keep_last(3, size), after=GRACE)
    assert (bases(archive), bases(archive, partition=1)) == (list(range(0, 100, 10)), [70, 80, 90])


def test_an_object_that_was_replaced_stays(archive: MadeArchive) -> None:
    """The plan has another ETag, so the deletion keeps the object, and the next plan includes it."""
    size = ship(archive, "t", 0, 100)
    run(archive, keep_last(3, size))
    archive.put_segment("t", 0, batches((0, 10), value=b"other"))
    found = run(archive, keep_last(3, size), after=GRACE)
    assert found.deleted is not None
    assert found.deleted.objects == {Outcome.REMOVED: 20, Outcome.LEFT: 1}
    assert bases(archive) == [0, 70, 80, 90]


def test_a_segment_of_a_leader_that_has_not_committed_stays(archive: MadeArchive) -> None:
    """Its epoch is above the commit's: that leader can move the commit back."""
    size = ship(archive, "t", 0, 100)
    archive.put_segment("t", 0, batches((0, 10), epoch=3), variant=True)
    run(archive, keep_last(3, size))
    run(archive, keep_last(3, size), after=GRACE)
    assert bases(archive) == [0, 70, 80, 90]
    assert [name for name in names(archive) if ".e3." in name]


def test_marks_and_caches_below_log_start_are_removed(archive: MadeArchive) -> None:
    """Gap records, cache objects and indexes that belong to no segment any more are deleted with the segments."""
    size = ship(archive, "t", 0, 100)
    keys = archive.partition("t")
    kept = [keys.gap(65, 75), keys.cache_object(60), keys.prefix + "00000000000000000015.index"]
    for key in (keys.gap(0, 10), keys.cache_object(0), keys.prefix + "chapters/x.json", *kept):
        archive.store.put(key, b"{}")
    run(archive, keep_last(3, size))
    run(archive, keep_last(3, size), after=GRACE)
    left = [keys.prefix + name for name in names(archive)]
    assert [key for key in left if "json" in key or "15.index" in key] == sorted(kept)


def test_a_run_by_age_needs_the_least_time_in_the_store(archive: MadeArchive) -> None:
    """Records of 1970 that were shipped today stay for the least time."""
    ship(archive, "t", 0, 100)
    day = 86_400_000
    found = run(archive, FixedRetention(Rule(age=30 * day, least=day)))
    assert found.survey is not None
    assert not found.survey.candidates
    found = run(archive, FixedRetention(Rule(age=30 * day)))
    assert start_of(archive) == 90


def test_g02_a_clock_that_differs_from_the_store_stops_the_run(archive: MadeArchive) -> None:
    """G02: nothing is deleted by the age that a wrong clock computes; of two clocks the earlier counts."""
    with pytest.raises(QueryError, match="clock"):
        store_time(archive.store, archive.keys, lambda: time.time() + 3600)
    assert store_time(archive.store, archive.keys, lambda: 60 + time.time()) <= time.time() * 1000 + 1
    assert store_time(archive.store, archive.keys, lambda: time.time() - 60) <= time.time() * 1000 - 59_000


@pytest.mark.parametrize("content", [LogStart(20), LogStart(70, Lineage(2, 60, 100)), LogStart(70)], ids=str)
def test_g05_a_log_start_that_is_not_the_plans_voids_it(archive: MadeArchive, content: LogStart) -> None:
    """G05: it was moved down, or its number is the same in another lineage or by another writer."""
    size = ship(archive, "t", 0, 100)
    run(archive, keep_last(3, size))
    keys = archive.partition("t")
    archive.store.put(keys.log_start, content.encode())
    if content.lineage is not None:
        commit, _ = read_commit(archive.store, keys)
        assert isinstance(commit, Commit)
        archive.store.put(keys.commit, replace(commit, lineage=content.lineage).encode())
    held = FixedRetention(Rule(size=3 * size), held=set())
    later(archive, GRACE)
    (planned,) = list_runs(archive.store, archive.keys)
    found = delete_planned(archive.store, archive.keys, planned, held, int(time.time() * 1000))
    assert found.objects == {Outcome.LEFT: 21}
    assert bases(archive) == list(range(0, 100, 10))


class Refusing(WrappedStore):
    """A store that refuses to delete one object for ever."""

    def __init__(self, inner: ObjectStore, name: str) -> None:
        super().__init__(inner, threads=1)
        self._name = name

    def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
        refused = {key for key in etags if key.endswith(self._name)}
        found = self._inner.delete_matching({key: etag for key, etag in etags.items() if key not in refused})
        return replace(found, failed=dict.fromkeys(refused, AccessDenied("locked")))


def test_an_object_that_cannot_be_deleted_stops_no_later_plan(archive: MadeArchive) -> None:
    """Each run reports it; the second one that fails ends the plan, and the next plan has the object again."""
    size = ship(archive, "t", 0, 100)
    refusing = Refusing(archive.store, "t-0/00000000000000000000.log")
    for _ in range(3):
        found = run_once(
            refusing, archive.keys, lambda _: True, keep_last(3, size), SETTINGS, store_time(refusing, archive.keys)
        )
        later(archive, GRACE)
    assert found.deleted is not None
    assert found.deleted.errors
    assert found.planned is not None
    assert found.planned.plan is not None
    assert found.planned.plan.objects == 1
    run(archive, keep_last(3, size))
    assert bases(archive) == [70, 80, 90]


def test_damage_of_what_a_reader_wrote_ends_the_run_and_keeps_the_plan(archive: MadeArchive) -> None:
    """The plan is not damaged: the next run continues with it."""
    size = ship(archive, "t", 0, 100)
    run(archive, keep_last(3, size))

    class Unreadable(FixedRetention):
        def needed(self, keys: PartitionKeys) -> NeededFrom | None:
            raise CorruptData("claims")

    with pytest.raises(CorruptData, match="claims"):
        run(archive, Unreadable(Rule(size=3 * size)), after=GRACE)
    assert run(archive, keep_last(3, size)).deleted is not None
    assert bases(archive) == [70, 80, 90]


@pytest.mark.parametrize("name", ["offset.wm", "log.start", "00000000000000000050.log"])
def test_a_frozen_object_leaves_only_its_partition_out(archive: MadeArchive, name: str) -> None:
    """A lifecycle rule that moved an object to an archive class stops no other partition."""
    size = ship(archive, "t", 0, 100)
    ship(archive, "t", 0, 100, partition=1)
    key = archive.partition("t").prefix + name
    archive.store.put(key, archive.store.get(key)[0])  # a segment of the Java uploader, which has no metadata

    class Frozen(WrappedStore):
        def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
            if key.endswith(f"t-0/{name}"):
                raise ObjectFrozen("thaw it")
            return self._inner.open(key, byte_range)

    store = Frozen(archive.store, threads=1)
    now = store_time(store, archive.keys)
    found = run_once(store, archive.keys, lambda _: True, keep_last(3, size), SETTINGS, now)
    assert [(each.where, each.why) for each in found.left_out] == [("t-0", Why.DOUBT)]
    assert start_of(archive, partition=1) == 70


def test_a_run_by_a_clock_that_is_behind_is_the_newest(archive: MadeArchive) -> None:
    """`tsctl gc undo` undoes the newest run by its name; the host of the run before had a clock that is ahead."""
    keys, size = archive.keys, ship(archive, "t", 0, 100)
    now = store_time(archive.store, keys)
    archive.store.put(f"{keys.gc_runs}99991231T235959999Z-00000000/moves-00000.jsonl", b"")
    for keep, at in ((8, now + 600_000), (5, now), (3, now + 300_000)):
        run_once(archive.store, keys, lambda _: True, keep_last(keep, size), SETTINGS, at)
        later(archive, 2 * GRACE)
    _, *runs = list_runs(archive.store, keys)
    moved = [move.after for run in runs for move in read_moves(archive.store, run)]
    assert moved == [20, 50, 70]
