"""A `log.start` that was lost: it shows again neither less than the archive has, nor what retention hid."""

import os
import time
from pathlib import Path

import pytest

from tests.uploader.committing.lineages import ask, put_segment, stored, write_commit, write_log_start
from tests.uploader.local_directory import CLUSTER, KEYS, TP, LocalDirectory
from ts_common.archive.catalog import read_catalog, read_commit
from ts_common.archive.commit import Commit, Lineage
from ts_common.archive.gc_plans import Plan, PlannedPartition
from ts_common.archive.gc_runs import PART, PLAN_NAME, numbered_key, run_directory
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.plan import Hole
from ts_common.archive.view import open_view
from ts_common.store.contract import ObjectStore
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.committing.log_start import restore_log_start

Pairs = tuple[tuple[int, int], ...]

RUN = "20261127T020000000Z-1f2e3d4c"
BACK = Lineage(3, 100, 250)


def plan_a_move(store: ObjectStore, offset: int, lineage: Lineage | None) -> None:
    """Write a pending plan that moved `log.start` of the partition."""
    moved = PlannedPartition(TP, TP.topic, 0, offset, "n", lineage)
    store.put(numbered_key(CLUSTER, RUN, PART, 0), f"{moved.encode()}\n".encode())
    plan = Plan(RUN, 0, 10, 1, 1, 0, 0, {})
    store.put(run_directory(CLUSTER, RUN) + PLAN_NAME, plan.encode())


def make_later(tmp_path: Path, name: SegmentName) -> None:
    """Let a segment be written a minute after the run of the plan."""
    now = time.time() + 60
    os.utime(tmp_path / "store" / KEYS.segment(name), (now, now))


def restore(store: ObjectStore, local: LocalDirectory) -> None:
    commit, _ = read_commit(store, KEYS)
    assert isinstance(commit, Commit)
    restore_log_start(store, CLUSTER, KEYS, commit, local.listing())


@pytest.mark.parametrize(
    ("planned", "lineage", "expected"),
    [(None, None, 40), (120, None, 120), (20, None, 40), (900, None, 300), (120, BACK, 40)],
    ids=["no plan", "a plan", "a plan below", "a plan above the end", "a plan of another lineage"],
)
def test_a_lost_log_start_gets_what_a_plan_moved_it_to(
    store: ObjectStore, local: LocalDirectory, planned: int | None, lineage: Lineage | None, expected: int
) -> None:
    """The plan is pending, so the segments below are there still; readers do not see them again."""
    put_segment(store, 40, 300, (1, 0))
    write_commit(store, 300, (1, 0))
    if planned is not None:
        plan_a_move(store, planned, lineage)
    restore(store, local)
    assert stored(store)[1].offset == expected


@pytest.mark.parametrize(
    ("planned", "lineage", "expected"),
    [(120, None, 100), (70, None, 70), (20, None, 40), (120, BACK, 120), (120, Lineage(4, 0, 0), 40)],
    ids=["above the begin", "below the begin", "below", "of this lineage", "of a later lineage"],
)
def test_a_plan_of_an_earlier_lineage_moved_a_lost_log_start_up_to_the_begin_of_this_one(
    store: ObjectStore, local: LocalDirectory, planned: int, lineage: Lineage | None, expected: int
) -> None:
    """When the commit goes back, `log.start` falls to no less than the lower of the two numbers."""
    put_segment(store, 40, 300, (1, 0))
    write_commit(store, 300, (1, 0), (3, 100), lineage=BACK)
    local.segments(40)
    plan_a_move(store, planned, lineage)
    restore(store, local)
    assert stored(store)[1].offset == expected


@pytest.mark.parametrize(("end", "expected"), [(120, 40), (121, 120)], ids=["below", "over the offset"])
def test_a_plan_from_before_the_archive_began_again_is_void(
    store: ObjectStore, local: LocalDirectory, tmp_path: Path, end: int, expected: int
) -> None:
    """A segment below was written after the run; one that reaches above is a repair's, or of the next leader."""
    for base in (40, 60, 90, 150):
        put_segment(store, base, base + 10, (1, 0))
    write_commit(store, 300, (1, 0))
    plan_a_move(store, 120, None)
    later = SegmentName(60, 1, 7)
    put_segment(store, 60, end, (1, 0), name=later)
    make_later(tmp_path, later)
    restore(store, local)
    assert stored(store)[1].offset == expected


def test_a_damaged_plan_is_no_reason_to_stop(store: ObjectStore, local: LocalDirectory) -> None:
    """The archive is shown from its lowest segment on."""
    put_segment(store, 40, 300, (1, 0))
    write_commit(store, 300, (1, 0))
    plan_a_move(store, 120, None)
    store.put(numbered_key(CLUSTER, RUN, PART, 0), b"x")
    restore(store, local)
    assert stored(store)[1].offset == 40


def test_an_index_without_its_segment_does_not_lower_a_lost_log_start(
    store: ObjectStore, local: LocalDirectory
) -> None:
    """The deletion of its segment was cut off; the archive is as long as readers see it without `log.start`."""
    put_segment(store, 40, 300, (1, 0))
    store.put(KEYS.segment(SegmentName(20), ".index"), b"i")
    write_commit(store, 300, (1, 0))
    shown = read_catalog(store, KEYS).start
    restore(store, local)
    assert stored(store)[1].offset == shown == 40


@pytest.mark.parametrize(
    ("bases", "expected"),
    [
        ((0, 30), ((1, 0), (2, 40))),
        ((30,), ((1, 30), (2, 40))),
        ((60, 70), ((2, 60),)),
        ((70,), ((2, 70),)),
        ((90,), ((2, 70),)),
        ((), ((2, 70),)),
    ],
    ids=["all", "some", "one below", "none below", "a hole", "none"],
)
def test_a_commit_keeps_the_epochs_of_what_is_stored_below_log_start(
    store: ObjectStore, commits: CommitLog, local: LocalDirectory, bases: tuple[int, ...], expected: Pairs
) -> None:
    """Retention cut the broker's list, and moved `log.start` up; the next leader's commit is the first one after it."""
    for base in bases:
        put_segment(store, base, base + 10, (1 if base < 40 else 2, base))
    store.put(KEYS.segment(SegmentName(0), ".index"), b"of a segment that was deleted")
    write_commit(store, 100, (1, 0), (2, 40))
    write_log_start(store, 70)
    local.segments(60, 100)
    local.epochs((2, 60), (3, 100))
    ask(commits, local, 3)
    assert stored(store)[0].epochs.pairs == expected


def test_an_undo_after_a_change_of_leader_shows_no_lost_records(
    store: ObjectStore, commits: CommitLog, local: LocalDirectory
) -> None:
    """An election lost 40 to 49 of the first leader; its copy ends in them, and retention had hidden it."""
    back = Lineage(2, 40, 50)
    put_segment(store, 0, 50, (1, 0))
    put_segment(store, 30, 100, (1, 30), (2, 40), name=SegmentName(30, 2, 7))
    write_commit(store, 100, (1, 0), (2, 40), lineage=back)
    write_log_start(store, 70, back)
    local.segments(60, 100)
    local.epochs((2, 60), (3, 100))
    ask(commits, local, 3)
    write_log_start(store, 0, back)
    view = open_view(store, read_catalog(store, KEYS))
    assert [(step.start, step.end) for step in view.plan(0, 100)] == [(0, 40), (40, 100)]


@pytest.mark.usefixtures("no_waits")
class TestCommitLostToo:
    """`log.start` is lost together with the commit, so that its lineage is lost too."""

    @pytest.fixture
    def archive(self, store: ObjectStore) -> ObjectStore:
        """Segments up to 50, and a pending plan that hid those below 30."""
        for base in range(0, 50, 10):
            put_segment(store, base, base + 10, (1, 0))
        plan_a_move(store, 30, None)
        return store

    def test_what_a_plan_hid_stays_hidden(
        self, archive: ObjectStore, commits: CommitLog, local: LocalDirectory
    ) -> None:
        """The broker has no longer what the plan hid; the commit is rebuilt as if it alone were lost."""
        local.segments(30, 40, 50)
        local.epochs((1, 30))
        ask(commits, local, 1, first=30)
        commit, start = stored(archive)
        assert (start.offset, commit.next_offset, start.lineage) == (30, 50, Lineage(1, 50, 50))

    def test_a_deletion_in_progress_leaves_no_hole(
        self, archive: ObjectStore, commits: CommitLog, local: LocalDirectory
    ) -> None:
        """The collector compared both objects before they were lost; the broker still has all records."""
        local.segments(0, 10, 20, 30, 40, 50)
        local.epochs((1, 0))
        ask(commits, local, 1)
        archive.delete([KEYS.segment(SegmentName(base)) for base in (0, 10, 20)])
        view = open_view(archive, read_catalog(archive, KEYS))
        assert not [step for step in view.plan(view.start, view.end) if isinstance(step, Hole)]

    def test_a_plan_of_an_earlier_lineage_hides_nothing(
        self, archive: ObjectStore, commits: CommitLog, local: LocalDirectory, tmp_path: Path
    ) -> None:
        """A segment below the plan's offset is of a later leader: it was shipped after the commit went back."""
        late = SegmentName(20, 2, 7)
        put_segment(archive, 20, 30, (2, 20), name=late)
        make_later(tmp_path, late)
        local.segments(30, 40)
        local.epochs((2, 30))
        ask(commits, local, 2, first=30)
        assert stored(archive)[1].offset == 0

    def test_a_repaired_segment_that_reaches_above_does_not_void_a_plan(
        self, archive: ObjectStore, commits: CommitLog, local: LocalDirectory, tmp_path: Path
    ) -> None:
        """The agent put a good copy of a damaged segment, which begins below the plan's offset."""
        archive.delete([KEYS.segment(SegmentName(30))])
        good = SegmentName(20, 1, 7, 1)
        put_segment(archive, 20, 40, (1, 0), name=good)
        make_later(tmp_path, good)
        local.segments(40, 50)
        local.epochs((1, 40))
        ask(commits, local, 1, first=40)
        assert stored(archive)[1].offset == 30
