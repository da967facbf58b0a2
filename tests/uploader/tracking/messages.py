"""Messages to a tracker."""

from pathlib import Path

from tests.uploader.checkpoint_files import until_they_count, written
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import ClusterKeys
from ts_common.model import TopicPartition
from ts_uploader.events import HighWatermarks, Leadership, Listing
from ts_uploader.tasks import AnyTask, Position, PositionRead, ReadPosition, Ship
from ts_uploader.tracking.tracker import Tracker

TP = TopicPartition("t", 0)


KEYS = ClusterKeys("c").partition(TP)


LOG_DIR = Path("/log")


LEADERSHIP = Leadership(epoch=1, topic_id="id", seen_at=100)


def listing(*bases: int, topic_id: str | None = "id", inode: int = 1, taken_at: int = 100) -> Listing:
    return Listing(TP, LOG_DIR / "t-0", (1, inode), LOG_DIR, bases, (), False, topic_id, taken_at, whole=True)


def watermark(offset: int) -> HighWatermarks:
    return written(LOG_DIR, {("t", 0): offset})


def watermarks(tracker: Tracker, offset: int) -> list[AnyTask]:
    """Up to the first checkpoint that counts."""
    return until_they_count(tracker, LOG_DIR, {("t", 0): offset})


def position(next_offset: int) -> Position:
    return Position(KEYS, 0, next_offset, None, EpochHistory(), None, None)


def asked(task: AnyTask, next_offset: int) -> PositionRead:
    assert isinstance(task, ReadPosition)
    return PositionRead(task.partition, task.generation, task.leadership, position(next_offset))


def bases(tasks: list[AnyTask]) -> list[int]:
    return [task.base for task in tasks if isinstance(task, Ship)]
