"""J, U40: several log dirs have a live directory of a partition. Their checkpoints decide, or the partition waits."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.uploader.checkpoint_files import written
from tests.uploader.local_directory import ID, TP, LocalDirectory
from tests.uploader.tracking.messages import bases, position_read
from ts_common.config.cluster_config import OffsetReset
from ts_uploader.log_dirs.directory_scan import list_partition
from ts_uploader.messages.observations import (
    DirectoryGone,
    EpochFile,
    HighWatermarks,
    LastEpoch,
    Leadership,
    Led,
    Listing,
    SeveralDirectories,
)
from ts_uploader.messages.tasks import AnyTask, ReadPosition
from ts_uploader.tracking.blocked import WaitReason
from ts_uploader.tracking.tracker import Tracker

DEAD, ALIVE = Path("/disk1"), Path("/disk2")
LEADERSHIP = Leadership(5, ID, 0)
NAMED = {(TP.topic, TP.partition): 50}
ENOUGH = 20  # rounds of the broker


def directory(log_dir: Path, *bases: int, epoch: int = 5) -> Listing:
    last = LastEpoch(EpochFile.READ, epoch)
    return Listing(TP, (hash(log_dir), 1), log_dir, bases, (), False, ID, 0, last)


TWO = SeveralDirectories(TP, (directory(DEAD, 0, 10, epoch=3), directory(ALIVE, 0, 10, 20, 30, 40, 50)))


@pytest.fixture
def tracker() -> Tracker:
    """A tracker whose partition is led here, and has two directories."""
    tracker = Tracker(OffsetReset.EARLIEST)
    tracker.observe(Led(TP, LEADERSHIP))
    tracker.observe(TWO)
    return tracker


def reason(tracker: Tracker) -> WaitReason | None:
    (backlog,) = tracker.backlog().values()
    return None if backlog.wait is None else backlog.wait.reason


def rounds(tracker: Tracker, *readings: HighWatermarks, count: int = ENOUGH) -> list[AnyTask]:
    """The broker rewrites the log dir of the directory in use; the other log dirs are read as they are."""
    tasks = []
    for _ in range(count):
        tasks += tracker.observe(written(ALIVE, NAMED))
        for reading in readings:
            tasks += tracker.observe(reading)
    return tasks


@pytest.mark.parametrize(
    "dead",
    [written(DEAD, {(TP.topic, TP.partition): 10}), HighWatermarks(DEAD, None, None)],
    ids=["names it", "cannot be read"],
)
def test_u40_the_directory_counts_whose_log_dir_is_still_rewritten(tracker: Tracker, dead: HighWatermarks) -> None:
    """A failed disk can still be listed; its files never change again."""
    assert rounds(tracker, dead, count=2) == []
    assert reason(tracker) is WaitReason.DIRECTORIES
    (ask,) = rounds(tracker, dead)
    assert isinstance(ask, ReadPosition)
    assert ask.listing == TWO.listings[1]
    assert bases(tracker.conclude(position_read(ask, 0))) == [0, 10, 20, 30]
    (backlog,) = tracker.backlog().values()
    assert (backlog.listing, backlog.segments) == (TWO.listings[1], 5)
    assert reason(tracker) is WaitReason.UPLOAD


def test_u40_a_log_dir_that_does_not_name_the_partition_any_more_does_not_count(tracker: Tracker) -> None:
    """A move was cut short: the broker still uses both disks, and has the partition on one."""
    tasks = []
    for _ in range(ENOUGH):
        tasks += tracker.observe(written(ALIVE, NAMED))
        tasks += tracker.observe(written(DEAD, {("other", 0): 7}))
    (ask,) = tasks
    assert isinstance(ask, ReadPosition)
    assert ask.listing.log_dir == ALIVE


@pytest.mark.parametrize(
    ("here", "other"),
    [({}, None), (None, {("other", 0): 7}), ({}, {("other", 0): 7})],
    ids=["neither names it and one is rewritten", "the one that does not name it is rewritten", "both are rewritten"],
)
def test_u40_one_that_is_not_rewritten_or_does_not_name_it_does_not_count(
    tracker: Tracker, here: dict[tuple[str, int], int] | None, other: dict[tuple[str, int], int] | None
) -> None:
    """By its files the broker has the partition on neither disk; both may have failed."""
    stand = written(ALIVE, NAMED), written(DEAD, {})
    for _ in range(ENOUGH):
        assert tracker.observe(stand[0] if here is None else written(ALIVE, here)) == []
        assert tracker.observe(stand[1] if other is None else written(DEAD, other)) == []
        assert reason(tracker) is WaitReason.DIRECTORIES


def test_u40_what_the_other_file_contained_before_both_directories_existed_is_not_enough(tracker: Tracker) -> None:
    """It does not name the partition, and the broker may have moved it there since."""
    rounds(tracker, written(DEAD, {}), count=3)
    assert reason(tracker) is WaitReason.DIRECTORIES


def test_u40_three_files_of_one_and_one_file_of_the_other_are_not_enough(tracker: Tracker) -> None:
    """The first was written before the other's and read after it, and the broker writes in any order."""
    first, dead = written(ALIVE, NAMED), written(DEAD, NAMED)
    for reading in (written(ALIVE, NAMED), dead, first, written(ALIVE, NAMED), written(ALIVE, NAMED), dead):
        assert tracker.observe(reading) == []
        assert reason(tracker) is WaitReason.DIRECTORIES


@pytest.mark.parametrize("before", [True, False], ids=["one was shipped before", "none was"])
def test_u40_until_the_directory_is_certain_nothing_is_shipped_and_the_wait_is_shown(before: bool) -> None:
    """High watermarks from before the second directory do not count: the broker may no longer use the first."""
    tracker = Tracker(OffsetReset.EARLIEST)
    tracker.observe(Led(TP, LEADERSHIP))
    if before:
        tracker.observe(directory(DEAD, 0, 10))
        for _ in range(3):
            tracker.observe(written(DEAD, NAMED))
        assert [backlog.segments for backlog in tracker.backlog().values()] == [1]
    tracker.observe(TWO)
    (backlog,) = tracker.backlog().values()
    assert (backlog.base, backlog.segments, backlog.lag) == (None, 0, None)
    assert reason(tracker) is WaitReason.DIRECTORIES
    assert str(DEAD) in (backlog.waits_for or "")
    assert str(ALIVE) in (backlog.waits_for or "")
    assert tracker.observe(TWO) == []
    for _ in range(2):
        tracker.forget_absent()
    assert reason(tracker) is WaitReason.DIRECTORIES


def test_u40_one_that_is_rewritten_after_all_ends_what_was_sure(tracker: Tracker) -> None:
    """Both log dirs are written now, and both name the partition, so neither is chosen."""
    rounds(tracker, written(DEAD, NAMED))
    assert reason(tracker) is not WaitReason.DIRECTORIES
    tracker.observe(written(DEAD, NAMED))
    assert reason(tracker) is WaitReason.DIRECTORIES


@pytest.mark.parametrize("gone", [DirectoryGone(TP), directory(DEAD, 0, 10), directory(ALIVE, 0, 10)])
def test_u40_it_ends_with_the_second_directory(tracker: Tracker, gone: DirectoryGone | Listing) -> None:
    """The broker or an operator removed it. The remaining one counts, by its own log dir's checkpoint."""
    tracker.observe(gone)
    tasks = rounds(tracker, written(DEAD, NAMED), count=2)
    if isinstance(gone, Listing):
        assert reason(tracker) is WaitReason.HIGH_WATERMARK
        tasks += rounds(tracker, written(DEAD, NAMED))
        assert [backlog.listing for backlog in tracker.backlog().values()] == [gone]
    assert len(tasks) == (isinstance(gone, Listing) and gone.log_dir == ALIVE)


def test_u40_another_second_directory_is_another_question(tracker: Tracker) -> None:
    """Readings of the first two prove nothing about a directory that was created later."""
    rounds(tracker, written(DEAD, NAMED))
    created = replace(TWO.listings[0], identity=(9, 9))
    tracker.observe(replace(TWO, listings=(created, TWO.listings[1])))
    assert reason(tracker) is WaitReason.DIRECTORIES


@given(st.integers(min_value=0, max_value=2**32), st.lists(st.booleans(), min_size=10, max_size=200))
def test_u40_of_two_that_are_both_rewritten_none_counts_at_any_moment(seed: int, looks: Sequence[bool]) -> None:
    """This holds in any order of the broker's writes, and however rarely the agent reads either file."""
    random = Random(seed)
    tracker = Tracker(OffsetReset.EARLIEST)
    tracker.observe(Led(TP, LEADERSHIP))
    standing = {log_dir: written(log_dir, NAMED) for log_dir in (DEAD, ALIVE)}
    for log_dir in standing:
        tracker.observe(standing[log_dir])
    tracker.observe(TWO)
    steps: list[Path] = []
    for both in looks:
        if not steps:
            steps = random.sample([DEAD, ALIVE], 2)
        log_dir = steps.pop()
        standing[log_dir] = written(log_dir, NAMED)
        for read in (DEAD, ALIVE) if both else (random.choice([DEAD, ALIVE]),):
            assert tracker.observe(standing[read]) == []
            assert reason(tracker) is WaitReason.DIRECTORIES


def test_u40_a_disk_that_failed_and_the_replica_on_another(tmp_path: Path) -> None:
    """With real directories: nothing is shipped from the dead one, even if it has the right epoch."""
    dead, alive = LocalDirectory(tmp_path / "disk1"), LocalDirectory(tmp_path / "disk2")
    dead.segments(0, 10)
    dead.epochs((3, 0), (5, 12))
    alive.segments(0, 10, 20, 30, 40, 50)
    alive.epochs((3, 0), (5, 12))
    tracker = Tracker(OffsetReset.EARLIEST)
    tracker.observe(Led(TP, LEADERSHIP))
    listings = [list_partition(TP, local.log_dir) for local in (dead, alive)]
    tracker.observe(SeveralDirectories(TP, tuple(listing for listing in listings if listing is not None)))
    tasks = []
    stands = written(dead.log_dir, NAMED)
    for _ in range(ENOUGH):
        tasks += tracker.observe(written(alive.log_dir, NAMED))
        tasks += tracker.observe(stands)
    (ask,) = tasks
    assert isinstance(ask, ReadPosition)
    assert ask.listing.directory == alive.path
