"""The broker's answer for a high watermark stands for the checkpoint (protocol rule 1), and the tail's messages."""

from dataclasses import replace

import pytest

from tests.uploader.tracking.messages import (
    KEYS,
    LEADERSHIP,
    LOG_DIR,
    TP,
    bases,
    listing,
    position,
    position_read,
    watermark,
    watermarks,
)
from ts_common.archive.commit import Commit, Live
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.positions import Idle
from ts_common.config.cluster_config import OffsetReset
from ts_uploader.messages.observations import (
    Answered,
    DirectoryDeleted,
    EpochFile,
    FormerCovered,
    HighWatermarks,
    LastEpoch,
    Led,
    Listing,
)
from ts_uploader.messages.results import Committed
from ts_uploader.messages.tasks import AnyTask, ForgetFormer, Position, ReadPosition, ShipDeleted
from ts_uploader.tracking.blocked import WaitReason
from ts_uploader.tracking.contained_tracker import ContainedTracker
from ts_uploader.tracking.tracker import Tracker

EPOCH = LEADERSHIP.epoch
HERE = listing(0).identity


def in_epoch(*live: int, epoch: int | None = EPOCH, file: EpochFile = EpochFile.READ) -> Listing:
    return replace(listing(*live), last_epoch=LastEpoch(file, epoch))


def answered(high_watermark: int, epoch: int = EPOCH, identity: tuple[int, int] = HERE) -> Answered:
    return Answered(TP, epoch, identity, high_watermark)


def led_in(*live: int, has_tail: bool = True) -> Tracker:
    tracker = Tracker(OffsetReset.EARLIEST, has_tail=lambda _: has_tail)
    tracker.observe(Led(TP, LEADERSHIP))
    assert tracker.observe(in_epoch(*live)) == []
    return tracker


def high_watermark(tracker: Tracker) -> int | None:
    return tracker.backlog()[TP].high_watermark


def test_an_answer_counts_at_once() -> None:
    """No checkpoint file is needed: the position is read, and closed segments below it are shipped."""
    tracker = led_in(0, 100, 200)
    (read,) = tracker.observe(answered(150))
    assert bases(tracker.conclude(position_read(read, 0))) == [0]
    assert bases(tracker.observe(answered(200))) == [100]


@pytest.mark.parametrize(
    "other",
    [
        answered(150, epoch=EPOCH - 1),  # the answer of an earlier leadership, which arrives late
        answered(150, epoch=EPOCH + 1),
        answered(150, identity=(1, 2)),  # of a topic that was created again
    ],
)
def test_an_answer_of_another_leadership_or_directory_does_not_count(other: Answered) -> None:
    """Its records can be others."""
    tracker = led_in(0, 100)
    assert tracker.observe(other) == []
    assert high_watermark(tracker) is None


@pytest.mark.parametrize(
    "found",
    [
        in_epoch(0, 100, epoch=EPOCH - 1),
        in_epoch(0, 100, epoch=None),
        in_epoch(0, 100, epoch=None, file=EpochFile.UNREADABLE),
        in_epoch(0, 100, epoch=None, file=EpochFile.ABSENT),
    ],
)
def test_an_answer_does_not_count_before_the_log_ends_with_the_epoch(found: Listing) -> None:
    """A directory without that epoch can be another one than the broker appends to."""
    tracker = Tracker(OffsetReset.EARLIEST)
    tracker.observe(Led(TP, LEADERSHIP))
    tracker.observe(found)
    assert tracker.observe(answered(150)) == []
    assert high_watermark(tracker) is None
    tracker.observe(in_epoch(0, 100))
    assert high_watermark(tracker) is None  # the next answer counts
    (read,) = tracker.observe(answered(150))
    assert isinstance(read, ReadPosition)


def test_no_answer_counts_without_a_leadership() -> None:
    """The leadership source reports it first."""
    tracker = Tracker(OffsetReset.EARLIEST)
    tracker.observe(in_epoch(0, 100))
    assert tracker.observe(answered(150)) == []
    assert tracker.observe(Led(TP, LEADERSHIP)) == []


def test_checkpoints_that_can_be_older_than_an_answer_do_not_lower_it() -> None:
    """Else each commit that moves beyond them reads the position again."""
    tracker = led_in(0, 100, 200)
    for _ in range(4):
        tracker.observe(watermark(20))  # these count
    tracker.observe(answered(150))
    for _ in range(2):  # unread at the answer; collected before it
        tracker.observe(watermark(20))
        assert high_watermark(tracker) == 150
    tracker.observe(watermark(20))
    assert high_watermark(tracker) == 20  # the broker returned with a shorter log


def test_a_checkpoint_without_the_entry_keeps_an_answer() -> None:
    """A missing entry means unknown."""
    tracker = led_in(0, 100)
    for _ in range(4):
        tracker.observe(watermark(20))
    tracker.observe(answered(150))
    tracker.observe(HighWatermarks(LOG_DIR, ((99, 1, 1), 1), {}))
    assert high_watermark(tracker) == 150


def test_a_later_checkpoint_raises_it() -> None:
    """Each of the two is a lower bound."""
    tracker = led_in(0, 100)
    for _ in range(4):
        tracker.observe(watermark(20))
    tracker.observe(answered(150))
    tracker.observe(watermark(170))
    assert high_watermark(tracker) == 170
    tracker.observe(answered(160))
    assert high_watermark(tracker) == 170


def test_a_new_leadership_forgets_the_answer() -> None:
    """The broker answers again once it leads; no checkpoint of the new leadership is raised by the former answer."""
    tracker = led_in(0, 100)
    tracker.observe(answered(150))
    tracker.observe(Led(TP, replace(LEADERSHIP, epoch=EPOCH + 1)))
    tracker.observe(in_epoch(0, 100, epoch=EPOCH + 1))
    seen = [high_watermark(tracker)]
    for _ in range(4):
        tracker.observe(watermark(20))
        seen.append(high_watermark(tracker))
    assert seen == [None, None, None, 20, 20]


def test_an_answer_below_the_next_offset_has_the_position_read_again() -> None:
    """The archive may no longer be this log's past (protocol rule 5)."""
    tracker = led_in(0, 100, has_tail=False)
    (read,) = tracker.observe(answered(150))
    tracker.conclude(position_read(read, 200))
    (read,) = tracker.observe(answered(160))
    assert isinstance(read, ReadPosition)


def test_a_deleted_topic_has_the_high_watermark_of_a_checkpoint() -> None:
    """An answer can be of a topic that was created again under the name (protocol rule 14)."""
    tracker = led_in(0, 100)
    tracker.observe(answered(150))
    (ship,) = tracker.observe(DirectoryDeleted(replace(in_epoch(0, 100), renamed="t-0.0-delete"), 30))
    assert isinstance(ship, ShipDeleted)
    assert ship.high_watermark == 30


def test_a_stopped_partition_ignores_answers() -> None:
    """It starts over by a listing."""
    tracker = ContainedTracker(OffsetReset.EARLIEST, has_tail=lambda _: True)
    tracker.observe(Led(TP, LEADERSHIP))
    tracker.observe(in_epoch(0, 100))
    tracker._contained(TP, lambda: 1 / 0, 0.0)
    assert tracker.observe(answered(150)) == tracker.observe(FormerCovered(TP, EPOCH, 0)) == []
    wait = tracker.backlog()[TP].wait
    assert wait is not None
    assert wait.reason is WaitReason.DEFECT


@pytest.mark.parametrize(("has_tail", "high", "reads"), [(True, 150, 1), (True, 100, 0), (False, 150, 0)])
def test_a_read_is_not_deferred_if_the_tail_has_records(has_tail: bool, high: int, reads: int) -> None:
    """A row only means that no closed segment is to be shipped."""
    tracker = Tracker(OffsetReset.EARLIEST, has_tail=lambda _: has_tail)
    tracker.defer({TP: Idle(EPOCH, "id", 100)})
    tracker.observe(Led(TP, LEADERSHIP))
    tracker.observe(listing(0, 100))
    assert len(watermarks(tracker, high)) == reads
    if has_tail and not reads:
        assert len(tracker.observe(watermark(101))) == 1


def at(live: Live | None, next_offset: int = 100) -> Position:
    commit = Commit(0, next_offset, EPOCH, EpochHistory(), 0, "id", 1, 0, "n", live=live)
    return replace(position(next_offset), etag="e", commit=commit, keys=KEYS)


def continuing(live: Live | None) -> tuple[Tracker, list[AnyTask]]:
    """Return a tracker whose position was read, and its tasks then."""
    tracker = led_in(0, 100)
    (read,) = tracker.observe(answered(150))
    return tracker, tracker.conclude(replace(position_read(read, 100), position=at(live)))


def test_a_commit_from_before_the_switch_is_read_again() -> None:
    """The read writes one that names the log."""
    tracker, (read,) = continuing(None)
    assert isinstance(read, ReadPosition)
    assert tracker.conclude(replace(position_read(read, 100), position=at(Live("1", (), EpochHistory())))) == []


FORMER = Live("1", (("2", 0),), EpochHistory())


def test_former_leaderships_are_forgotten_once_own_entries_cover_them() -> None:
    """One commit, and not while another is under way."""
    tracker, _ = continuing(FORMER)
    (task,) = tracker.observe(FormerCovered(TP, EPOCH, 100))
    assert isinstance(task, ForgetFormer)
    assert tracker.observe(FormerCovered(TP, EPOCH, 100)) == []
    done = Committed(TP, task.generation, LEADERSHIP, at(Live("1", (), EpochHistory())))
    assert tracker.conclude(done) == []
    assert tracker.observe(FormerCovered(TP, EPOCH, 100)) == []


@pytest.mark.parametrize(
    ("live", "covered"),
    [
        (FORMER, FormerCovered(TP, EPOCH, 101)),  # not from the next offset on
        (FORMER, FormerCovered(TP, EPOCH - 1, 100)),
        (Live("1", (("1.group", EPOCH),), EpochHistory()), FormerCovered(TP, EPOCH, 100)),
        (Live("1", (), EpochHistory()), FormerCovered(TP, EPOCH, 100)),
    ],
)
def test_nothing_else_is_forgotten(live: Live, covered: FormerCovered) -> None:
    """Readers would see less."""
    tracker, _ = continuing(live)
    assert tracker.observe(covered) == []
