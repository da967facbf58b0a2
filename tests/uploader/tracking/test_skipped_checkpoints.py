"""A checkpoint is applied to the partitions that it can change. A tracker that applies all to all decides the same."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.uploader.checkpoint_files import written
from tests.uploader.tracking.messages import (
    LEADERSHIP,
    LOG_DIR,
    TP,
    changed,
    elsewhere,
    failed,
    listing,
    position,
    position_read,
    succeeded,
)
from ts_common.archive.high_watermarks import End
from ts_common.archive.positions import Idle
from ts_common.config.cluster_config import OffsetReset
from ts_uploader.messages.observations import (
    DirectoryDeleted,
    DirectoryGone,
    EpochFile,
    HighWatermarks,
    LastEpoch,
    Led,
    NotLed,
    Observation,
    SeveralDirectories,
)
from ts_uploader.messages.results import Committed, Fenced, LookDue, Result
from ts_uploader.messages.tasks import AnyTask, ReadPosition, Rescan, Ship, WriteCommit
from ts_uploader.shipping.high_watermarks_writer import ends_in
from ts_uploader.tracking import tracker as tracker_module
from ts_uploader.tracking.blocked import WaitReason
from ts_uploader.tracking.contained_tracker import ContainedTracker
from ts_uploader.tracking.tracker import Tracker

LIVE: Final = frozenset({1})
NOW: Final = LastEpoch(EpochFile.READ, LEADERSHIP.epoch)


def checkpoint(offset: int | None, *, same: bool) -> HighWatermarks:
    """Return another file of the log dir, and whether the entry is that of the file before."""
    offsets = {} if offset is None else {("t", 0): offset}
    return replace(written(LOG_DIR, offsets), live=LIVE, changed=frozenset(() if same else {("t", 0)}))


def idle(high_watermark: int = 100, next_offset: int = 100) -> ContainedTracker:
    """Return a tracker whose partition has nothing to ship, and read a checkpoint after that."""
    tracker = ContainedTracker(OffsetReset.EARLIEST)
    tracker.observe(Led(TP, LEADERSHIP))
    tracker.observe(replace(listing(0, 100), last_epoch=NOW))
    tasks = [task for same in (False, True, True) for task in tracker.observe(checkpoint(high_watermark, same=same))]
    (ask,) = tasks
    assert tracker.conclude(position_read(ask, next_offset)) == []
    tracker.observe(checkpoint(high_watermark, same=True))
    return tracker


def test_a_partition_with_nothing_waiting_skips_a_checkpoint_with_an_equal_entry() -> None:
    """With ten thousand of them, the main thread would have little time for other work."""
    tracker = idle()
    assert tracker._tracker.note_checkpoint(checkpoint(100, same=True)) == []
    assert tracker._tracker.note_checkpoint(checkpoint(101, same=False)) == [TP]


def test_an_idle_brokers_checkpoints_count_although_no_entry_changes() -> None:
    """The files differ, and protocol rule 1 counts files."""
    tracker = Tracker(OffsetReset.EARLIEST)
    tracker.observe(NotLed(TP))
    tracker.observe(replace(listing(0, 100), last_epoch=NOW))
    tracker.observe(Led(TP, LEADERSHIP))
    tasks = [tracker.observe(checkpoint(100, same=number > 0)) for number in range(3)]
    assert [len(each) for each in tasks] == [0, 0, 1]


def test_a_segment_that_closes_is_shipped_although_the_high_watermark_stays() -> None:
    """The listing ships it: the last checkpoint is beyond its end."""
    tracker = idle(high_watermark=200)
    (ship,) = tracker.observe(replace(listing(0, 100, 200), last_epoch=NOW))
    assert isinstance(ship, Ship)
    assert ship.base == 100


def test_a_partition_whose_position_is_read_later_skips_a_checkpoint_too() -> None:
    """After a restart that is so for half an hour."""
    tracker = ContainedTracker(OffsetReset.EARLIEST)
    tracker.defer({TP: Idle(LEADERSHIP.epoch, "id", 100)})
    tracker.observe(Led(TP, LEADERSHIP))
    tracker.observe(replace(listing(0, 100), last_epoch=NOW))
    assert [tracker.observe(checkpoint(100, same=number > 0)) for number in range(3)] == [[], [], []]
    assert tracker._tracker.note_checkpoint(checkpoint(100, same=True)) == []
    assert [type(task) for task in tracker.read_deferred(1)] == [ReadPosition]


def test_checkpoints_below_the_end_of_a_closed_segment_are_counted_although_they_are_equal() -> None:
    """A follower lags permanently, or the broker is cut off: the partition is blocked, and no longer waits as usual."""
    tracker = idle(high_watermark=150)
    assert tracker.observe(replace(listing(0, 100, 200), last_epoch=NOW)) == []
    for _ in range(3):
        assert tracker.observe(checkpoint(150, same=True)) == []
    wait = tracker.backlog()[TP].wait
    assert wait is not None
    assert (wait.reason, wait.ordinary) == (WaitReason.BELOW_HIGH_WATERMARK, False)


def test_a_low_high_watermark_is_looked_at_again_after_a_commit_although_it_stays() -> None:
    """Protocol rule 5: the position is not dropped while the commit is written, so the next checkpoint does it."""
    tracker = idle(high_watermark=200)
    (ship,) = tracker.observe(replace(listing(0, 100, 200), last_epoch=NOW))
    (write,) = tracker.conclude(succeeded(ship, 0))
    assert isinstance(write, WriteCommit)
    assert tracker.observe(checkpoint(150, same=False)) == []
    assert tracker.conclude(Committed(TP, write.generation, write.leadership, position(200))) == []
    assert [type(task) for task in tracker.observe(checkpoint(150, same=True))] == [ReadPosition]


def test_ends_have_the_time_of_the_newest_checkpoint_although_no_entry_changes() -> None:
    """An end counts for a deleted directory only if it was written late enough."""
    tracker = idle()
    tracker.backlog()
    later = checkpoint(100, same=True)
    tracker.observe(replace(later, file=((9, 9_000_000_000_000, 0), 1)))
    assert ends_in(tracker.backlog(exact=True)) == {TP: End(100, 9_000_000)}


@pytest.mark.parametrize("event", [Led(TP, LEADERSHIP), NotLed(TP)], ids=["led", "not led"])
def test_a_report_that_repeats_the_last_one_causes_no_work(event: Observation) -> None:
    """Sources report everything again with each poll."""
    tracker = idle()
    tracker.observe(event)
    tracker.backlog()
    tracker._tracker.take_touched()
    assert tracker.observe(event) == []
    assert tracker._tracker.take_touched() == set()


def test_each_checkpoint_is_applied_while_several_directories_are_live() -> None:
    """A log dir that is no longer rewritten loses the partition, and no entry changes there."""
    other = elsewhere(0, 100)
    tracker = ContainedTracker(OffsetReset.EARLIEST)
    tracker.observe(Led(TP, LEADERSHIP))
    tracker.observe(SeveralDirectories(TP, (replace(listing(0, 100), last_epoch=NOW), other)))
    tasks: list[AnyTask] = []
    for same in (False, True, True, True, True, True):
        tracker.observe(replace(written(other.log_dir, {}), changed=frozenset()))
        tasks += tracker.observe(checkpoint(100, same=same))
    (ask,) = tasks
    tracker.conclude(position_read(ask, 100))
    tracker.observe(checkpoint(100, same=True))
    assert tracker._tracker.note_checkpoint(checkpoint(100, same=True)) == [TP]


class Twins:
    """Two trackers with the same messages; one of them applies each checkpoint and each report to everything."""

    def __init__(self) -> None:
        self.lean, self.whole = ContainedTracker(OffsetReset.EARLIEST), ContainedTracker(OffsetReset.EARLIEST)
        self.tasks: list[AnyTask] = []
        self._offset: int | None = None
        self._seconds = 0

    def observe(self, event: Observation) -> None:
        """Apply an observation to both."""
        lean = self.lean.observe(event)
        repeats = tracker_module._repeats
        tracker_module._repeats = lambda *_: False
        try:
            whole = self.whole.observe(replace(event, changed=None) if isinstance(event, HighWatermarks) else event)
        finally:
            tracker_module._repeats = repeats
        self._take(lean, whole)

    def checkpoint(self, offset: int | None, *, live: bool) -> None:
        """Write another checkpoint."""
        event = checkpoint(offset, same=offset == self._offset)
        self._offset = offset
        self.observe(event if live else replace(event, live=frozenset()))

    def end(self, number: int, how: str, next_offset: int) -> None:
        """End one of the tasks that are under way."""
        if not self.tasks:
            return
        task = self.tasks.pop(number % len(self.tasks))
        result: Result
        if isinstance(task, Rescan):
            result = LookDue(task.partition, task.generation)
        elif how == "fenced":
            result = Fenced(task.partition, task.generation, task.leadership, "later")
        elif how == "failed":
            result = failed(task)
        elif how == "changed" and isinstance(task, Ship):
            result = changed(task)
        else:
            try:
                result = succeeded(task, next_offset)
            except AssertionError:
                result = failed(task)
        self._take(self.lean.conclude(result), self.whole.conclude(result))

    def end_deferral(self) -> None:
        """Read the position whatever its row has."""
        self._take(self.lean.read_deferred(1), self.whole.read_deferred(1))

    def tick(self) -> None:
        """Let some time pass."""
        self._seconds += 40
        now = self._seconds * 10**9
        self._take(self.lean.tick(now), self.whole.tick(now))

    def _take(self, lean: list[AnyTask], whole: list[AnyTask]) -> None:
        assert lean == whole
        self.tasks += lean
        untimed = {each: replace(one, counted_at=None) for each, one in self.lean.backlog().items()}
        assert untimed == {each: replace(one, counted_at=None) for each, one in self.whole.backlog(exact=True).items()}
        assert self.lean.backlog(exact=True) == self.whole.backlog(exact=True)
        for epoch in (1, 2):  # the last high watermark of a directory that is deleted now
            gone = DirectoryDeleted(replace(listing(0, 100), last_epoch=LastEpoch(EpochFile.READ, epoch)), None)
            assert self.lean.observe(gone) == self.whole.observe(gone)


EPOCHS = st.sampled_from([LastEpoch(EpochFile.READ, 1), LastEpoch(EpochFile.READ, 2), LastEpoch(EpochFile.ABSENT)])
LISTINGS = st.builds(
    lambda bases, epoch, inode, whole: replace(listing(*bases, inode=inode), last_epoch=epoch, whole=whole),
    st.sampled_from([(0,), (0, 100), (0, 100, 200), (100, 200), (200,), ()]),
    EPOCHS,
    st.sampled_from([1, 1, 1, 2]),
    st.booleans(),
)
OBSERVED = st.one_of(
    LISTINGS,
    st.sampled_from([1, 1, 1, 2]).map(lambda epoch: Led(TP, replace(LEADERSHIP, epoch=epoch))),
    st.just(NotLed(TP)),
    st.just(DirectoryGone(TP)),
    st.just(SeveralDirectories(TP, (listing(0, 100), elsewhere(0, 100)))),
)
STEPS = st.one_of(
    st.tuples(st.just("observe"), OBSERVED),
    st.tuples(
        st.just("checkpoint"), st.sampled_from([100, 100, 100, 150, 200, None]), st.sampled_from([True, True, False])
    ),
    st.tuples(
        st.just("end"),
        st.integers(0, 3),
        st.sampled_from(["done", "done", "done", "failed", "changed", "fenced"]),
        st.sampled_from([0, 100, 100, 200]),
    ),
    st.just(("another log dir",)),
    st.just(("end deferral",)),
    st.just(("tick",)),
    st.just(("forget",)),
)


@settings(max_examples=200)
@given(st.lists(STEPS, max_size=60), st.booleans())
def test_what_is_skipped_decides_nothing(steps: list[tuple[Any, ...]], has_row: bool) -> None:
    """Tasks and backlog are those of a tracker that applies every message to everything."""
    twins = Twins()
    for tracker in (twins.lean, twins.whole) if has_row else ():
        tracker.defer({TP: Idle(LEADERSHIP.epoch, "id", 100)})
    twins.observe(Led(TP, LEADERSHIP))
    twins.observe(replace(listing(0, 100), last_epoch=NOW))
    for _ in range(3):
        twins.checkpoint(100, live=True)
    for step in steps:
        match step:
            case ("observe", event):
                twins.observe(event)
            case ("checkpoint", offset, live):
                twins.checkpoint(offset, live=bool(live))
            case ("end", number, how, next_offset):
                twins.end(number, str(how), next_offset)
            case ("end deferral",):
                twins.end_deferral()
            case ("another log dir",):  # where another directory has the same inode number
                twins.observe(replace(written(Path("/other"), {}), live=LIVE, changed=frozenset()))
            case ("tick",):
                twins.tick()
            case _:
                twins.lean.forget_absent()
                twins.whole.forget_absent()
