"""Undo next to another collector, and during the run that it undoes."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.made_archive import MadeArchive, batches
from tests.tsctl.gc.archives import (
    GRACE,
    SETTINGS,
    bases,
    go_back,
    keep_last,
    later,
    run_killed_after_its_move,
    ship,
    start_of,
)
from ts_common.archive import plan
from ts_common.archive.commit import encode_log_start
from ts_common.archive.gc_runs import list_runs
from ts_common.archive.object_keys import SegmentName
from ts_common.errors import CorruptData
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_common.store.wrappers.wrapped import WrappedStore
from tsctl.gc.deletion import delete_planned
from tsctl.gc.deletion_log import Outcome
from tsctl.gc.run import RunResult, run_once, store_time
from tsctl.gc.undo import Undone, choose_undone, undo


class Killed(BaseException):
    """The process ends, with no handler."""


class Watched(WrappedStore):
    """A store that calls a function before or after each put."""

    def __init__(
        self,
        inner: ObjectStore,
        after_put: Callable[[str], None] = lambda _: None,
        before_put: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(inner, threads=1)
        self._after_put = after_put
        self._before_put = before_put

    def put(self, key: str, *arguments: Any, **named: Any) -> ObjectInfo:
        self._before_put(key)
        found = self._inner.put(key, *arguments, **named)
        self._after_put(key)
        return found


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    """Two partitions of ten segments."""
    made = MadeArchive(tmp_path / "bucket")
    for partition in (0, 1):
        ship(made, "t", 0, 100, partition=partition)
    return made


def collect(archive: MadeArchive, store: ObjectStore | None = None, *, keep: int = 3) -> RunResult:
    used = store or archive.store
    retention = keep_last(keep, archive.store.head(archive.partition("t").prefix + "00000000000000000000.log").size)
    return run_once(used, archive.keys, lambda _: True, retention, SETTINGS, store_time(used, archive.keys))


def undo_newest(archive: MadeArchive) -> Undone:
    run = choose_undone(archive.store, archive.keys, list_runs(archive.store, archive.keys), None)
    return undo(archive.store, archive.keys, run, 0)


def undo_newest_again(archive: MadeArchive) -> Undone:
    """Repeat an undo that is complete, by the name of its run."""
    (run,) = list_runs(archive.store, archive.keys)
    return undo(archive.store, archive.keys, choose_undone(archive.store, archive.keys, [run], run.run), 0)


def plan_twice(archive: MadeArchive) -> None:
    """Let two collectors plan at once, so that both have a plan: the first moves t-0, the second t-1."""
    began: list[str] = []

    def act(key: str) -> None:
        if key == archive.partition("t").log_start and not began:
            began.append(key)
            collect(archive)

    collect(archive, Watched(archive.store, act))
    assert len([run for run in list_runs(archive.store, archive.keys) if run.is_pending]) == 2


def delete_by(archive: MadeArchive, number: int) -> dict[Outcome, int]:
    """Delete what one of the plans names, whose grace is over; return the number of objects by outcome."""
    later(archive, GRACE)
    run = list_runs(archive.store, archive.keys)[number]
    return delete_planned(archive.store, archive.keys, run, keep_last(3, 51), int(time.time() * 1000)).objects


def test_a_run_reports_both_of_two_plans(archive: MadeArchive) -> None:
    """Both have the objects of t-0, which the first one deletes; the second one has those of t-1 too."""
    plan_twice(archive)
    later(archive, GRACE)
    found = collect(archive)
    assert [each.objects for each in found.finished] == [
        {Outcome.REMOVED: 21},
        {Outcome.MISSING: 21, Outcome.REMOVED: 21},
    ]


def test_g03_an_undo_after_another_collectors_deletion_opens_no_hole(archive: MadeArchive) -> None:
    """G03: log.start stays above what was deleted by the plan of another collector."""
    plan_twice(archive)
    assert delete_by(archive, 0) == {Outcome.REMOVED: 21}
    assert undo_newest(archive) == Undone(lowered=1, unchanged=1)
    assert (start_of(archive), start_of(archive, partition=1)) == (70, 0)


def test_g03_an_undo_stops_the_plan_of_another_collector_too(archive: MadeArchive) -> None:
    """G03: no deletion begins below the log.start that an undo lowered; the next run undoes the other plan as well."""
    plan_twice(archive)
    assert undo_newest(archive).lowered == 2
    assert not delete_by(archive, 0)
    assert bases(archive) == bases(archive, partition=1) == list(range(0, 100, 10))
    assert start_of(archive) == start_of(archive, partition=1) == 0


@pytest.mark.parametrize("plans", [1, 2])
def test_a_run_completes_an_undo_that_was_killed_within_the_grace(archive: MadeArchive, plans: int) -> None:
    """Its claim decides at once, also that of the newer one of two plans, where the other has none yet."""
    collect(archive) if plans == 1 else plan_twice(archive)

    def act(key: str) -> None:
        if key.endswith("claim.json"):
            raise Killed

    run = list_runs(archive.store, archive.keys)[-1]
    with pytest.raises(Killed):
        undo(Watched(archive.store, act), archive.keys, run, 0)
    found = collect(archive, keep=100)
    assert found.deleted is not None
    assert found.deleted.undone
    assert all(each.done and each.claimed for each in list_runs(archive.store, archive.keys))
    assert start_of(archive) == start_of(archive, partition=1) == 0
    assert collect(archive, keep=100).waits_until is None


def test_an_undo_that_left_a_partition_out_stays_open_until_it_is_complete(archive: MadeArchive) -> None:
    """Until then runs report the partition and plan nothing; a run completes it once `log.start` is mended."""
    collect(archive)
    log_start = archive.partition("t", 1).log_start
    content, _ = archive.store.get(log_start)
    archive.store.put(log_start, b"garbage\n")
    assert undo_newest(archive).lowered == 1
    later(archive, GRACE)
    found = collect(archive)
    assert [skipped.where for skipped in found.left_out] == ["t-1"]
    assert found.planned is None
    archive.store.put(log_start, content)
    collect(archive, keep=100)
    assert start_of(archive) == start_of(archive, partition=1) == 0
    assert [run.done for run in list_runs(archive.store, archive.keys)] == [True]


@pytest.mark.parametrize("begin", [80, 50])
def test_an_undo_after_an_election_that_went_back_shows_what_the_run_hid(archive: MadeArchive, begin: int) -> None:
    """The agent has written `log.start` again, so the plan is void for the partition; what it hid stays hidden."""
    collect(archive)
    go_back(archive, begin)
    assert start_of(archive) == min(70, begin)
    assert undo_newest(archive) == Undone(lowered=2)
    assert start_of(archive) == start_of(archive, partition=1) == 0
    assert undo_newest_again(archive) == Undone(unchanged=2)


def test_g03_an_undo_after_an_election_that_went_back_opens_no_hole(archive: MadeArchive) -> None:
    """G03: below `log.start` an object is missing, so that records appear only above it."""
    collect(archive)
    go_back(archive, 80)
    archive.store.delete([archive.partition("t").segment(SegmentName(20))])
    assert undo_newest(archive) == Undone(lowered=2)
    assert start_of(archive) == 30
    assert undo_newest_again(archive) == Undone(unchanged=2)


def test_an_undo_lowers_a_log_start_that_the_next_leaders_agent_has_not_written_yet(archive: MadeArchive) -> None:
    """`log.start` of the former lineage goes back; the agent then writes it with the lineage of the commit."""
    collect(archive)
    keys = archive.partition("t")
    before, _ = archive.store.get(keys.log_start)
    go_back(archive, 80)
    archive.store.put(keys.log_start, before)
    assert undo_newest(archive) == Undone(lowered=2)
    assert start_of(archive) == 0


def test_an_undo_leaves_a_partition_out_whose_commit_is_behind_log_start(archive: MadeArchive) -> None:
    """A commit of another lineage than a later `log.start` is a doubt; the undo stays open."""
    collect(archive)
    keys = archive.partition("t")
    before, _ = archive.store.get(keys.commit)
    go_back(archive, 80)
    archive.store.put(keys.commit, before)
    assert [each.where for each in undo_newest(archive).skipped] == ["t-0"]


def test_a_run_moves_nothing_more_after_its_undo(archive: MadeArchive) -> None:
    """What a run moves after its undo, and is killed, no undo would bring back."""
    first, second = (archive.partition("t", number).log_start for number in (0, 1))

    def act(key: str) -> None:
        if key == first and not list_runs(archive.store, archive.keys)[-1].claimed:
            undo_newest(archive)
        elif key == second:
            raise Killed

    found = collect(archive, Watched(archive.store, act))
    assert found.planned is not None
    assert found.planned.plan is None
    assert start_of(archive) == start_of(archive, partition=1) == 0


def test_g03_a_run_leaves_out_what_was_moved_since_its_survey(archive: MadeArchive) -> None:
    """Its plan would have a former start, below what another collector deleted: a hold would open a hole."""
    surveyed: list[str] = []

    def act(key: str) -> None:
        if "/moves-" in key and not surveyed:
            surveyed.append(key)
            collect(archive)
            delete_by(archive, 0)

    found = collect(archive, Watched(archive.store, before_put=act))
    assert found.planned is not None
    assert found.planned.plan is None
    assert [each.where for each in found.planned.skipped] == ["t-0", "t-1"]


def test_g03_a_late_write_of_an_undo_does_not_hold(archive: MadeArchive) -> None:
    """The same number was moved to again meanwhile, and what is below was deleted: its ETag is another one."""
    collect(archive)
    runs = list_runs(archive.store, archive.keys)
    written: list[str] = []

    def act(key: str) -> None:
        if key == archive.partition("t").log_start and not written:
            written.append(key)
            undo_newest(archive)
            collect(archive)
            delete_by(archive, 1)

    found = undo(Watched(archive.store, before_put=act), archive.keys, runs[0], 0)
    assert [each.where for each in found.skipped] == ["t-0"]
    assert start_of(archive) == start_of(archive, partition=1) == 70


def test_g03_a_plan_deletes_nothing_below_a_log_start_that_a_later_run_wrote(archive: MadeArchive) -> None:
    """A collector that was suspended would delete before the grace of the later run is over."""
    collect(archive)
    undo_newest(archive)
    collect(archive)
    first, second = list_runs(archive.store, archive.keys)
    archive.store.delete([f"{first.directory}{name}" for name in ("claim.json", "done.json")])
    assert delete_by(archive, 0) == {Outcome.LEFT: 42}
    assert not second.claimed


def test_a_move_after_an_undo_is_undone_by_the_runs_name(archive: MadeArchive) -> None:
    """The run did not see the undo, and was killed; every other start stays as it is."""

    def before(key: str) -> None:
        if key == archive.partition("t").log_start and not list_runs(archive.store, archive.keys)[-1].claimed:
            undo_newest(archive)

    def after(key: str) -> None:
        if key == archive.partition("t").log_start:
            raise Killed

    with pytest.raises(Killed):
        collect(archive, Watched(archive.store, after, before))
    assert start_of(archive) == 70
    runs = list_runs(archive.store, archive.keys)
    assert (
        undo(archive.store, archive.keys, choose_undone(archive.store, archive.keys, runs, runs[0].run), 0).lowered == 1
    )
    assert start_of(archive) == start_of(archive, partition=1) == 0


def test_an_undo_shows_what_an_agent_hid_again_after_log_start_was_lost(archive: MadeArchive) -> None:
    """The agent wrote the number of the plan, without the name of the run."""
    collect(archive)
    keys = archive.partition("t")
    archive.store.put(keys.log_start, encode_log_start(70))
    assert undo_newest(archive) == Undone(lowered=2)
    assert start_of(archive) == 0


@pytest.mark.parametrize("second", [3, 2])
@pytest.mark.parametrize("first", ["killed", "void"])
def test_undos_show_again_what_a_run_without_a_plan_hid(archive: MadeArchive, first: str, second: int) -> None:
    """The next run moved `log.start` further, or left it: its plan has the start before both."""
    if first == "killed":
        run_killed_after_its_move(archive, keep_last(3, 51))
    else:
        collect(archive)
        archive.store.delete([list_runs(archive.store, archive.keys)[0].directory + "part-00000.jsonl"])
    later(archive, GRACE)
    collect(archive, keep=second)
    assert undo_newest(archive).skipped == []
    assert start_of(archive) == start_of(archive, partition=1) == 0


def test_a_run_completes_the_undo_of_a_run_without_a_plan(archive: MadeArchive) -> None:
    """The undo was killed after its claim. Otherwise the next plan would delete what was to be shown."""
    run_killed_after_its_move(archive, keep_last(3, 51))

    def act(key: str) -> None:
        if key.endswith("claim.json"):
            raise Killed

    (run,) = list_runs(archive.store, archive.keys)
    with pytest.raises(Killed):
        undo(Watched(archive.store, act), archive.keys, run, 0)
    found = collect(archive, keep=100)
    assert found.deleted is not None
    assert found.deleted.undone
    assert start_of(archive) == 0


@pytest.mark.parametrize("content", [None, b"garbage\n"], ids=["lost", "damaged"])
def test_an_undo_without_its_moves_has_those_of_the_plan(archive: MadeArchive, content: bytes | None) -> None:
    """Without them, an undo would move nothing and report success."""
    collect(archive)
    break_object(archive, "moves-00000.jsonl", content)
    assert undo_newest(archive) == Undone(lowered=2)
    assert start_of(archive) == start_of(archive, partition=1) == 0


def test_an_undo_without_moves_and_plan_changes_nothing(archive: MadeArchive) -> None:
    """It fails before it decides; the next run discards the plan."""
    collect(archive)
    break_object(archive, "moves-00000.jsonl", b"garbage\n")
    break_object(archive, "part-00000.jsonl", None)
    with pytest.raises(CorruptData, match=r"part-00000\.jsonl"):
        undo_newest(archive)
    later(archive, GRACE)
    assert len(collect(archive, keep=100).damaged) == 1


def test_a_partition_that_was_removed_keeps_no_undo_open(archive: MadeArchive) -> None:
    """Its directory was deleted by hand; no agent writes its `log.start` again."""
    collect(archive)
    archive.store.delete([info.key for info in archive.store.list(archive.partition("t").prefix)])
    assert undo_newest(archive) == Undone(lowered=1, unchanged=1)
    assert [run.done for run in list_runs(archive.store, archive.keys)] == [True]


@pytest.mark.parametrize("name", ["claim.json", "junk"])
def test_a_run_that_is_named_far_ahead_is_not_the_newest(archive: MadeArchive, name: str) -> None:
    """A host and a store had a wrong clock once, or another process wrote the object."""
    archive.store.put(f"{archive.keys.gc_runs}99991231T235959999Z-0badc10c/{name}", b'{"version":1,"use":"delete"}')
    archive.store.put(f"{archive.keys.gc_runs}99991231T235959999Z-0badc10c/done.json", b"{}")
    collect(archive)
    assert undo_newest(archive) == Undone(lowered=2)


def test_an_undo_leaves_a_partition_out_that_cannot_be_read(
    archive: MadeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are shown again, and the undo stays open."""
    monkeypatch.setattr(plan, "MAX_COPIES", 5)
    collect(archive)
    for number in range(6):
        archive.put_segment("t", 0, batches((0, 10), value=b"%d" % number), variant=True)
    found = undo_newest(archive)
    assert ([each.where for each in found.skipped], found.lowered) == (["t-0"], 1)
    assert start_of(archive, partition=1) == 0
    assert not list_runs(archive.store, archive.keys)[0].done


def test_an_undo_passes_over_a_damaged_plan_of_another_collector(archive: MadeArchive) -> None:
    """Nothing is deleted by that plan any more."""
    plan_twice(archive)
    delete_by(archive, 0)
    first, _ = list_runs(archive.store, archive.keys)
    for name in ("moves-00000.jsonl", "part-00000.jsonl"):
        archive.store.put(first.directory + name, b"garbage\n")
    assert undo_newest(archive).skipped == []
    assert (start_of(archive), start_of(archive, partition=1)) == (70, 0)


def test_a_claim_of_a_later_release_in_an_old_run_stops_no_run(archive: MadeArchive) -> None:
    """What that run hid is not shown again."""
    collect(archive)
    later(archive, GRACE)
    collect(archive, keep=100)
    (run,) = list_runs(archive.store, archive.keys)
    archive.store.put(f"{run.directory}claim.json", b'{"version":9,"use":"delete"}\n')
    found = collect(archive, keep=2)
    assert found.planned is not None
    assert found.planned.moved == 2


def break_object(archive: MadeArchive, name: str, content: bytes | None) -> None:
    """Overwrite an object of the only run, or delete it."""
    (run,) = list_runs(archive.store, archive.keys)
    if content is None:
        archive.store.delete([run.directory + name])
    else:
        archive.store.put(run.directory + name, content)
