"""Messages to a tracker."""

from dataclasses import replace
from pathlib import Path

from tests.uploader.checkpoint_files import until_they_count, written
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import ClusterKeys
from ts_common.model import TopicPartition
from ts_uploader.messages.observations import FileState, HighWatermarks, Leadership, Listing
from ts_uploader.messages.results import Changed, Committed, Failed, Hanging, LookDue, LookedBelow, PositionRead, Result
from ts_uploader.messages.tasks import (
    AnyTask,
    LookBelow,
    PassGap,
    Position,
    ReadPosition,
    Rescan,
    Ship,
    Shipped,
    Task,
    WriteCommit,
)
from ts_uploader.tracking.contained_tracker import ContainedTracker
from ts_uploader.tracking.tracker import Tracker

TP = TopicPartition("t", 0)


KEYS = ClusterKeys("c").partition(TP)


LOG_DIR = Path("/log")


LEADERSHIP = Leadership(epoch=1, topic_id="id", seen_at=100)


def listing(
    *bases: int, topic_id: str | None = "id", inode: int = 1, taken_at: int = 100, swapping: bool = False
) -> Listing:
    return Listing(TP, (1, inode), LOG_DIR, bases, (), swapping, topic_id, taken_at, whole=True)


def elsewhere(*bases: int) -> Listing:
    """Return a listing of the same partition on another disk."""
    other = Path("/other")
    return replace(listing(*bases), identity=(2, 1), log_dir=other)


def watermark(offset: int) -> HighWatermarks:
    return written(LOG_DIR, {("t", 0): offset})


def watermarks(tracker: Tracker | ContainedTracker, offset: int) -> list[AnyTask]:
    """Return the tasks of the first checkpoint that counts."""
    return until_they_count(tracker, LOG_DIR, {("t", 0): offset})


def position(next_offset: int) -> Position:
    return Position(KEYS, 0, next_offset, None, EpochHistory(), None, None)


def position_read(task: AnyTask, next_offset: int) -> PositionRead:
    assert isinstance(task, ReadPosition)
    return PositionRead(task.partition, task.generation, task.leadership, position(next_offset))


def bases(tasks: list[AnyTask]) -> list[int]:
    return [task.base for task in tasks if isinstance(task, Ship)]


def shipped(task: Task, end: int | None = None) -> Shipped:
    assert isinstance(task, Ship)
    return Shipped(
        partition=task.partition,
        generation=task.generation,
        leadership=task.leadership,
        base=task.base,
        next_base=task.next_base,
        end=task.next_base if end is None else end,
        epochs=((1, task.base),),
        last_stable_offset=None,
        bytes_sent=1,
        corruptions=0,
        seconds=0.0,
        lineage=task.lineage,
    )


def failed(task: Task) -> Failed:
    base = task.base if isinstance(task, Ship) else None
    return Failed(task.partition, task.generation, task.leadership, base, type(task).__name__, "because")


def ships(tasks: list[AnyTask]) -> list[Ship]:
    return [task for task in tasks if isinstance(task, Ship)]


def state_of(base: int) -> FileState:
    return FileState(1, base, 100, 100)


def looked_below(task: AnyTask, *hanging: tuple[int, int]) -> LookedBelow:
    """Return a result where these hang, of all `.deleted` files below the lowest live segment."""
    assert isinstance(task, LookBelow)
    found = tuple(Hanging(base, end, state_of(base)) for base, end in hanging)
    below = frozenset(base for base in task.listing.deleted if base < task.listing.bases[0])
    return LookedBelow(task.partition, task.generation, task.leadership, found, below, task.wanted)


def changed(task: Task) -> Changed:
    assert isinstance(task, Ship)
    return Changed(task.partition, task.generation, task.leadership, task.base, "the cleaner")


def succeeded(task: AnyTask, next_offset: int) -> Result:
    """Return the result of a task that succeeds, in a store whose run ends at `next_offset`."""
    match task:
        case ReadPosition():
            return PositionRead(task.partition, task.generation, task.leadership, position(next_offset))
        case Ship():
            return shipped(task)
        case WriteCommit():
            return Committed(task.partition, task.generation, task.leadership, position(task.run[-1].end))
        case PassGap():
            return Committed(task.partition, task.generation, task.leadership, position(task.end))
        case Rescan():
            return LookDue(task.partition, task.generation)
    raise AssertionError(task)
