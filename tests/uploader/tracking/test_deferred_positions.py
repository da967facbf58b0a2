"""The read of a position that a row of the positions object defers (protocol rule 8)."""

from dataclasses import replace

import pytest

from tests.uploader.tracking.led_partition import LedPartition
from tests.uploader.tracking.messages import LEADERSHIP, TP, bases, listing, position_read, watermark, watermarks
from ts_common.archive.positions import Idle
from ts_common.archive.repair_requests import Damage, RepairRequest
from ts_common.config.cluster_config import OffsetReset
from ts_common.model import TopicPartition
from ts_uploader.messages.observations import Led, RepairWanted
from ts_uploader.messages.tasks import ReadPosition
from ts_uploader.tracking.contained_tracker import ContainedTracker
from ts_uploader.tracking.tracker import Tracker

ROW = Idle(LEADERSHIP.epoch, "id", 100)


def deferring(row: Idle, *live: int, high_watermark: int = 150) -> Tracker:
    """Return a tracker whose partition is led, listed and below a high watermark, with a row of an earlier process."""
    tracker = Tracker(OffsetReset.EARLIEST)
    tracker.defer({TP: row})
    tracker.observe(Led(TP, LEADERSHIP))
    tracker.observe(listing(*live))
    assert len(watermarks(tracker, high_watermark)) == (0 if tracker.backlog()[TP].is_deferred else 1)
    return tracker


def test_nothing_is_read_while_the_active_segment_begins_at_the_rows_offset() -> None:
    """The backlog has the row's offset, marked as deferred."""
    waiting = deferring(ROW, 0, 100).backlog()[TP]
    assert (waiting.next_offset, waiting.lag, waiting.segments, waiting.is_deferred) == (100, 50, 0, True)
    assert waiting.wait is None
    assert waiting.position is None


@pytest.mark.parametrize(
    ("row", "live", "high_watermark"),
    [
        (replace(ROW, epoch=0), (0, 100), 150),
        (replace(ROW, topic_id="other"), (0, 100), 150),
        (replace(ROW, next_offset=50), (0, 100), 150),  # the segment below 100 is not shipped
        (replace(ROW, next_offset=120), (0, 100), 150),  # the log was cut, or the row is forged
        (ROW, (0, 100, 140), 150),
        (ROW, (0, 100), 99),  # records were lost
    ],
)
def test_a_row_with_something_to_be_done_is_ignored(row: Idle, live: tuple[int, ...], high_watermark: int) -> None:
    """The position is read at once, as without a row."""
    waiting = deferring(row, *live, high_watermark=high_watermark).backlog()[TP]
    assert (waiting.next_offset, waiting.is_deferred) == (None, False)


def test_the_position_is_read_before_the_first_segment_is_shipped() -> None:
    """What the store has counts, and not the row."""
    tracker = deferring(ROW, 0, 100)
    (read,) = tracker.observe(listing(0, 100, 140))
    assert isinstance(read, ReadPosition)
    assert bases(tracker.conclude(position_read(read, 0))) == [0, 100]


def test_a_row_counts_once() -> None:
    """After a failure, and in a later leadership with the same epoch, the position is read."""
    tracker = deferring(ROW, 0, 100)
    (read,) = tracker.observe(listing(0, 100, 140))
    assert isinstance(read, ReadPosition)
    tracker.conclude(position_read(read, 140))
    tracker.observe(Led(TP, replace(LEADERSHIP, epoch=2)))
    tracker.observe(Led(TP, LEADERSHIP))
    assert not tracker.backlog()[TP].is_deferred


def test_a_request_to_repair_is_not_deferred() -> None:
    """A person waits for its answer."""
    tracker = deferring(ROW, 0, 100)
    request = RepairRequest("1-00000000", "t", 0, "t-0", Damage.MISSING, 0, 100, None, None, None, 1, "o")
    (read,) = tracker.observe(RepairWanted(TP, request))
    assert isinstance(read, ReadPosition)


def test_a_high_watermark_that_falls_ends_the_deferral() -> None:
    """The log may have lost what the archive has (protocol rule 5)."""
    tracker = deferring(ROW, 0, 100)
    (read,) = tracker.observe(watermark(90))
    assert isinstance(read, ReadPosition)


def test_each_position_is_read_in_turn_whatever_its_row_has() -> None:
    """So a forged row keeps a segment from the archive for minutes at most, also after thousands of other rows."""
    tracker = ContainedTracker(OffsetReset.EARLIEST)
    tracker.defer({TopicPartition("moved", 0): ROW, TP: ROW, TopicPartition("moved", 1): ROW})
    tracker.observe(Led(TP, LEADERSHIP))
    tracker.observe(listing(0, 100))
    assert watermarks(tracker, 150) == []
    (read,) = tracker.read_deferred(1)
    assert isinstance(read, ReadPosition)
    for _ in range(3):
        assert tracker.read_deferred(1) == []


def test_without_a_row_the_position_is_read() -> None:
    """As before there were rows."""
    assert isinstance(LedPartition(0, 100).read, ReadPosition)
