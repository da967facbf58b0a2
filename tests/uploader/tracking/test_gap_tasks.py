"""When the tracker records and fills gaps (protocol rule 10)."""

from dataclasses import replace

import pytest

from tests.uploader.tracking.led_partition import CHECKPOINT, LedPartition, gap_of, taken
from tests.uploader.tracking.messages import (
    LEADERSHIP,
    TP,
    bases,
    failed,
    listing,
    position,
    position_read,
    shipped,
    watermark,
    watermarks,
)
from ts_uploader.messages.observations import Led, Listing
from ts_uploader.messages.results import Committed, LookDue
from ts_uploader.messages.tasks import FillGap, PassGap, ReadPosition, Rescan, Ship, WriteCommit


def test_u07_a_missing_range_becomes_a_gap_when_two_listings_agree() -> None:
    """The listings are a checkpoint interval apart, and the gap ends at the lowest live segment."""
    led = LedPartition(100, 200)
    (gap,) = [task for task in gap_of(led, 50, 100, 200) if isinstance(task, PassGap)]
    assert (gap.position.next_offset, gap.end) == (50, 100)


def test_what_vanished_since_the_first_listing_is_no_part_of_the_gap() -> None:
    """Retention deleted another segment in between, so only one listing lacks it (histories, seed 99)."""
    led = LedPartition(100, 200, 300, high_watermark=100)
    (gap,) = [task for task in gap_of(led, 50, 200, 300) if isinstance(task, PassGap)]
    assert (gap.position.next_offset, gap.end) == (50, 100)
    led.tracker.observe(watermark(300))
    passed = Committed(TP, gap.generation, gap.leadership, position(100))
    assert [task for task in led.tracker.conclude(passed) if isinstance(task, PassGap)] == []
    tasks = led.tracker.observe(listing(200, 300, taken_at=100 + 2 * CHECKPOINT))
    assert [(task.position.next_offset, task.end) for task in tasks if isinstance(task, PassGap)] == [(100, 200)]


def test_a_gap_needs_two_whole_listings() -> None:
    """A listing that met renames can miss files. The agent schedules another, one at a time."""
    led = LedPartition(100, 200)
    torn = replace(listing(100, 200), whole=False)
    led.tracker.observe(torn)
    (rescan,) = [task for task in led.at(50) if isinstance(task, Rescan)]
    assert rescan.after_seconds == 5
    assert led.tracker.observe(replace(torn, taken_at=100 + 2 * CHECKPOINT)) == []
    assert led.tracker.conclude(LookDue(TP, rescan.generation)) == []
    assert led.tracker.observe(replace(torn, taken_at=101 + 2 * CHECKPOINT)) == [rescan]
    led.tracker.observe(listing(100, 200, taken_at=100 + 3 * CHECKPOINT))
    tasks = led.tracker.observe(listing(100, 200, taken_at=100 + 4 * CHECKPOINT))
    assert [type(task) for task in tasks] == [PassGap]


def test_a_gap_needs_a_checkpoint_interval_between_its_two_listings() -> None:
    """An earlier listing proves nothing."""
    led = LedPartition(100, 200)
    led.at(50)
    assert [t for t in led.tracker.observe(listing(100, 200, taken_at=99 + CHECKPOINT)) if isinstance(t, PassGap)] == []


@pytest.mark.parametrize(
    "between",
    [replace(listing(100, 200), swapping=True), listing(0, 100, 200), Led(TP, replace(LEADERSHIP, epoch=2))],
    ids=["renames under way", "the segment is back", "another leader epoch"],
)
def test_u25_an_event_between_two_listings_restarts_the_wait(between: Listing | Led) -> None:
    """Two listings with another event in between make no gap."""
    led = LedPartition(100, 200)
    led.at(50)
    led.tracker.observe(between)
    tasks = led.tracker.observe(listing(100, 200, taken_at=100 + CHECKPOINT))
    assert [task for task in tasks if isinstance(task, PassGap)] == []


def test_u07_no_gap_while_a_segment_is_still_read_from_an_open_file() -> None:
    """Its names no longer exist, its bytes do."""
    led = LedPartition(0, 100, 200)
    first, second = (task for task in led.at(0) if isinstance(task, Ship))
    led.tracker.conclude(shipped(second))
    taken(led, 200, taken_at=100)
    assert [t for t in taken(led, 200, taken_at=100 + CHECKPOINT) if isinstance(t, PassGap)] == []
    (commit,) = led.tracker.conclude(shipped(first))
    assert isinstance(commit, WriteCommit)
    assert [done.base for done in commit.run] == [0, 100]


def test_u08_no_gap_above_the_high_watermark() -> None:
    """Uncommitted offsets cannot be passed."""
    led = LedPartition(100, 200, high_watermark=60)
    assert [task for task in gap_of(led, 50, 100, 200) if isinstance(task, PassGap)] == []
    assert [type(task) for task in led.tracker.observe(watermark(100))] == [PassGap]


def test_a_recorded_gap_that_this_log_holds_is_filled() -> None:
    """A new leader ships the segments and corrects the epochs of the gap; meanwhile the run continues."""
    led = LedPartition(0, 100, 200, 300, 400)
    assert isinstance(led.read, ReadPosition)
    where = replace(position(300), gaps=((150, 250),))
    tasks = led.tracker.conclude(replace(position_read(led.read, 0), position=where))
    assert bases(tasks) == [100, 200, 300]
    first, second, ahead = (task for task in tasks if isinstance(task, Ship))
    assert led.tracker.conclude(shipped(first)) == []
    (fill,) = led.tracker.conclude(shipped(second))
    assert isinstance(fill, FillGap)
    assert (fill.gap, [done.base for done in fill.run]) == ((150, 250), [100, 200])
    assert led.tracker.conclude(shipped(ahead)) == []
    after = led.tracker.conclude(Committed(TP, fill.generation, fill.leadership, replace(where, gaps=())))
    (commit,) = [task for task in after if isinstance(task, WriteCommit)]
    assert [done.base for done in commit.run] == [300]


@pytest.mark.parametrize("leaderships_on", [True, False])
def test_a_gap_is_filled_once_in_a_leadership(leaderships_on: bool) -> None:
    """Its record stays, so each read of the position returns it; a new leader epoch fills it once more."""
    led = LedPartition(0, 100, 200, 300)
    where = replace(position(300), gaps=((100, 200),))
    tasks = led.tracker.conclude(replace(position_read(led.read, 0), position=where))
    (ship,) = (task for task in tasks if isinstance(task, Ship))
    (fill,) = led.tracker.conclude(shipped(ship))
    assert isinstance(fill, FillGap)
    assert led.tracker.conclude(Committed(TP, fill.generation, fill.leadership, replace(where, gaps=()))) == []
    if leaderships_on:
        led.tracker.observe(watermark(250))  # below the next offset, so the position is read again
        assert led.tracker.conclude(replace(position_read(led.read, 0), position=where)) == []
    else:
        led.tracker.observe(Led(TP, replace(LEADERSHIP, epoch=2)))
        (ask,) = watermarks(led.tracker, 300)
        assert bases(led.tracker.conclude(replace(position_read(ask, 0), position=where))) == [100]


def test_a_gap_that_could_not_be_filled_is_filled_later() -> None:
    """Only its own commit ends it, not one that moves along the run."""
    led = LedPartition(0, 100, 200, 300)
    where = replace(position(200), gaps=((100, 200),))
    inside, ahead = (
        t for t in led.tracker.conclude(replace(position_read(led.read, 0), position=where)) if isinstance(t, Ship)
    )
    (fill,) = led.tracker.conclude(shipped(inside))
    assert isinstance(fill, FillGap)
    assert led.tracker.conclude(shipped(ahead)) == []
    (ask,) = led.tracker.conclude(failed(fill))
    (commit,) = led.tracker.conclude(replace(position_read(ask, 0), position=where))
    assert isinstance(commit, WriteCommit)
    moved = replace(position(300), gaps=where.gaps)
    (again,) = led.tracker.conclude(Committed(TP, commit.generation, commit.leadership, moved))
    assert isinstance(again, FillGap)
