"""A partition that this broker leads, up to the read of its position."""

from dataclasses import replace

from tests.uploader.tracking.messages import LEADERSHIP, TP, listing, position, position_read, watermarks
from ts_common.config.cluster_config import OffsetReset
from ts_uploader.messages.observations import Led
from ts_uploader.messages.tasks import AnyTask, LookBelow, ReadPosition, Rescan
from ts_uploader.tracking.tracker import Tracker

CHECKPOINT = 5_000_000_000  # ns


class LedPartition:
    """A tracker whose partition is led, listed and below a high watermark, and whose position has to be read."""

    def __init__(self, *live: int, high_watermark: int = 10**6, reset: OffsetReset = OffsetReset.EARLIEST) -> None:
        self.tracker = Tracker(reset)
        assert self.tracker.observe(Led(TP, LEADERSHIP)) == []
        assert self.tracker.observe(listing(*live)) == []
        (self.read,) = watermarks(self.tracker, high_watermark)

    def at(self, next_offset: int) -> list[AnyTask]:
        """End the read of the position: the run ends at this offset."""
        return self.tracker.conclude(position_read(self.read, next_offset))


def taken(led: LedPartition, *live: int, deleted: tuple[int, ...] = (), taken_at: int = 200) -> list[AnyTask]:
    """List a directory whose lowest segments retention has renamed."""
    return led.tracker.observe(replace(listing(*live, taken_at=taken_at), deleted=deleted))


def begun_with_deleted(
    next_offset: int, *deleted: int, gaps: tuple[tuple[int, int], ...] = ()
) -> tuple[Tracker, LookBelow]:
    """Start an agent after retention renamed all segments below 200; return its task to read the `.deleted` files."""
    tracker = Tracker(OffsetReset.EARLIEST)
    tracker.observe(Led(TP, LEADERSHIP))
    tracker.observe(replace(listing(200, 300), deleted=deleted))
    (ask,) = watermarks(tracker, 300)
    answer = replace(position_read(ask, next_offset), position=replace(position(next_offset), gaps=gaps))
    (look,) = [task for task in tracker.conclude(answer) if isinstance(task, LookBelow)]
    return tracker, look


def gap_of(led: LedPartition, next_offset: int, *live: int) -> list[AnyTask]:
    """List the directory twice, a checkpoint interval apart, with all bases above the next offset."""
    (rescan,) = [task for task in led.at(next_offset) if isinstance(task, Rescan)]
    assert rescan.after_seconds == 5
    return led.tracker.observe(listing(*live, taken_at=100 + CHECKPOINT))


def led(*live: int, high_watermark: int = 10**6) -> tuple[Tracker, ReadPosition]:
    """Return a tracker whose partition is led and listed, and its task to read the position."""
    tracker = Tracker(OffsetReset.EARLIEST)
    tracker.observe(Led(TP, LEADERSHIP))
    tracker.observe(listing(*live))
    (ask,) = watermarks(tracker, high_watermark)
    assert isinstance(ask, ReadPosition)
    return tracker, ask
