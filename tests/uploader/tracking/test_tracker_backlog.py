"""The backlog that the tracker reports."""

from dataclasses import replace

from tests.uploader.tracking.led_partition import LedPartition
from tests.uploader.tracking.messages import LEADERSHIP, TP, bases, failed, listing, position, position_read, shipped
from ts_uploader.messages.observations import DirectoryGone, Led, NotLed
from ts_uploader.messages.results import Changed, Committed, Fenced
from ts_uploader.messages.tasks import ReadPosition, Ship, WriteCommit


def test_a_hole_is_shown_and_nothing_is_shipped_over_it() -> None:
    """If the next offset is below every live segment, the backlog shows a hole."""
    led = LedPartition(100, 200, 300)
    assert bases(led.at(50)) == [100, 200]
    waiting = led.tracker.backlog()[TP]
    assert waiting.hole
    assert LedPartition(100, 200, 300).at(100) != []


def test_the_backlog_names_the_oldest_segment_that_waits() -> None:
    """Operators need the oldest unshipped segment, the count and the lag."""
    led = LedPartition(0, 100, 200, 300, high_watermark=350)
    led.at(100)
    waiting = led.tracker.backlog()[TP]
    assert (waiting.base, waiting.segments, waiting.lag, waiting.hole) == (100, 2, 250, False)


def test_while_the_next_offset_is_not_known_all_that_is_closed_counts_as_waiting() -> None:
    """After a start, and in a new leader epoch until the position is read, the upper bound is shown."""
    led = LedPartition(0, 100, 200)
    waiting = led.tracker.backlog()[TP]
    assert (waiting.base, waiting.segments, waiting.next_offset, waiting.hole) == (0, 2, None, False)
    led.at(100)
    assert led.tracker.backlog()[TP].base == 100
    led.tracker.observe(Led(TP, replace(LEADERSHIP, epoch=2)))
    assert led.tracker.backlog()[TP].base == 0


def test_a_question_that_keeps_failing_is_shown_with_its_reason() -> None:
    """One failure is normal in a new leader epoch; two are not, and a successful read ends the wait."""
    led = LedPartition(0, 100)
    ask = led.read
    for waits_for in (None, "the position in the store: because", "the position in the store: because"):
        assert isinstance(ask, ReadPosition)
        (ask,) = led.tracker.conclude(failed(ask))
        assert led.tracker.backlog()[TP].waits_for == waits_for
    led.tracker.conclude(position_read(ask, 0))
    assert led.tracker.backlog()[TP].waits_for is None


def test_an_upload_that_keeps_failing_is_no_question_that_fails() -> None:
    """The next offset is known then, and the segments count as unshipped."""
    led = LedPartition(0, 100, 200, 300)
    for ship in led.at(0):
        assert isinstance(ship, Ship)
        led.tracker.conclude(failed(ship))
    assert led.tracker.backlog()[TP].waits_for is None


def test_a_fenced_partition_is_shown_until_the_source_reports_that_it_is_not_led() -> None:
    """An operator who trusts the source expects the partition to be shipped from here."""
    led = LedPartition(0, 100, 200)
    led.at(100)
    led.tracker.conclude(Fenced(TP, led.read.generation, LEADERSHIP, "later"))
    led.tracker.observe(Led(TP, LEADERSHIP))
    waiting = led.tracker.backlog()[TP]
    assert waiting.waits_for is not None
    assert "the store shows a later leader epoch" in waiting.waits_for
    assert (waiting.base, waiting.segments) == (0, 2)
    led.tracker.observe(NotLed(TP))
    assert led.tracker.backlog() == {}


def test_a_partition_remains_visible_while_its_directory_is_listed_again() -> None:
    """A segment that changes at each attempt would otherwise hide the partition most of the time."""
    led = LedPartition(0, 100, 200)
    task = led.at(0)[0]
    assert isinstance(task, Ship)
    led.tracker.conclude(Changed(TP, task.generation, task.leadership, task.base, "cleaner"))
    assert led.tracker.backlog()[TP].segments == 2
    led.tracker.observe(DirectoryGone(TP))
    assert led.tracker.backlog() == {}


def test_a_lost_tail_is_shown_as_a_hole() -> None:
    """A torn closed segment covers less than its name implies, and the partition waits visibly (fault U13)."""
    led = LedPartition(0, 100, 200)
    first = next(task for task in led.at(0) if isinstance(task, Ship))
    (commit,) = [t for t in led.tracker.conclude(shipped(first, end=90)) if isinstance(t, WriteCommit)]
    again = led.tracker.conclude(Committed(TP, commit.generation, commit.leadership, position(90)))
    (retry,) = [task for task in again if isinstance(task, Ship) and task.base == 0]
    led.tracker.conclude(shipped(retry, end=90))
    assert led.tracker.backlog()[TP].hole


def test_compaction_leaves_no_segment_to_ship_behind() -> None:
    """If a base disappears while a lower one is live, the cleaner merged it into that one."""
    led = LedPartition(0, 100, 200, 300)
    led.at(0)
    led.tracker.observe(replace(listing(0, 200, 300), deleted=(0, 100)))
    led.tracker.observe(replace(listing(200, 300), deleted=(0, 100)))
    assert led.tracker.backlog()[TP].base == 0
