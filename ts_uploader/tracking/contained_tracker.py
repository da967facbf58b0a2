"""A tracker that stops a partition at an unexpected error, and no other partition.

The tracker's input was written by others: objects, checkpoint files, names in a directory. If it meets a value that it
does not expect, that is a defect. Such a value must not end the process, because the next process would read it again.
So the partition is stopped, and the status page, the metrics and the log show the reason. It starts over after five
minutes, or when its leadership or directory changes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import structlog

from ts_common.archive.positions import Idle
from ts_common.config.cluster_config import OffsetReset
from ts_common.model import TopicPartition
from ts_uploader.messages.observations import (
    DirectoryDeleted,
    DirectoryGone,
    HighWatermarks,
    Leadership,
    Led,
    Listing,
    NotLed,
    Observation,
    PartitionEvent,
    RepairWanted,
    SeveralDirectories,
)
from ts_uploader.messages.results import Result
from ts_uploader.messages.tasks import AnyTask
from ts_uploader.tracking.backlog import Backlog
from ts_uploader.tracking.blocked import Wait, WaitReason
from ts_uploader.tracking.task_selection import CHECKPOINT_SECONDS, SEGMENTS_IN_FLIGHT
from ts_uploader.tracking.tracker import Tracker

log = structlog.get_logger()

_REST_NANOSECONDS: Final = 300 * 1_000_000_000
_Out = TypeVar("_Out")


@dataclass(slots=True)
class _Stopped:
    """A stopped partition.

    Attributes:
        reason: the error, one line.
        reported: the leadership that the source last reported; None if this broker does not lead.
        listing: the last one; None without one.
        since: time of the first listing after it was stopped, nanoseconds of the monotonic clock; None before that.
    """

    reason: str
    reported: Leadership | None
    listing: Listing | None
    since: int | None = None


class ContainedTracker:
    """A `Tracker`, with the same arguments, that stops a partition at an unexpected error."""

    def __init__(
        self,
        offset_reset: OffsetReset,
        segments_in_flight: int = SEGMENTS_IN_FLIGHT,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
    ) -> None:
        self._tracker = Tracker(offset_reset, segments_in_flight, checkpoint_seconds)
        self._stopped: dict[TopicPartition, _Stopped] = {}

    def observe(self, event: Observation) -> list[AnyTask]:
        """Apply one observation. A stopped partition only keeps it until it starts over."""
        if isinstance(event, HighWatermarks):
            self._tracker.note_checkpoint(event)
            tasks: list[AnyTask] = []
            for partition in self._tracker.partitions:
                tasks += self._contained(partition, partial(self._tracker.take_high_watermark, partition, event), [])
            return tasks
        if isinstance(event, DirectoryDeleted):
            return self._tracker.observe(event)
        stopped = self._stopped.get(event.partition)
        if stopped is not None and not self._starts_over(stopped, event):
            return []
        if stopped is not None and isinstance(event, Listing) and stopped.reported is not None:
            # Without a listing yet, so it returns no task.
            self._tracker.observe(Led(event.partition, stopped.reported))
        return self._contained(event.partition, partial(self._tracker.observe, event), [])

    def conclude(self, result: Result) -> list[AnyTask]:
        """Apply a worker's result, and return the tasks that can begin now."""
        return self._contained(result.partition, partial(self._tracker.conclude, result), [])

    def defer(self, idle: Mapping[TopicPartition, Idle]) -> None:
        """Read the position of these partitions later, as `Tracker.defer`."""
        self._tracker.defer(idle)

    def read_deferred(self, most: int) -> list[AnyTask]:
        """Return the tasks that read some positions that were deferred, whatever their rows have."""
        tasks: list[AnyTask] = []
        for partition in self._tracker.end_deferral(most):
            tasks += self._contained(partition, partial(self._tracker.select, partition), [])
        return tasks

    def backlog(self) -> dict[TopicPartition, Backlog]:
        """Return the backlog of every partition that is reported as led here, stopped ones included."""
        waiting: dict[TopicPartition, Backlog] = {}
        for partition in self._tracker.partitions:
            found = self._contained(partition, partial(self._tracker.backlog_of, partition), None)
            if found is not None:
                waiting[partition] = found
        for partition, stopped in self._stopped.items():
            if stopped.listing is not None and stopped.reported is not None:
                waiting[partition] = Backlog(
                    stopped.listing, None, 0, None, None, hole=False, wait=Wait(WaitReason.DEFECT, stopped.reason)
                )
        return waiting

    def unreported(self, before: int) -> list[TopicPartition]:
        """Return the partitions whose leader was never reported, as `Tracker.unreported`."""
        return self._tracker.unreported(before)

    def forget_absent(self) -> None:
        """Forget the partitions without a directory, as `Tracker.forget_absent`."""
        self._tracker.forget_absent()

    def _contained(self, partition: TopicPartition, act: Callable[[], _Out], otherwise: _Out) -> _Out:
        """Return what `act` returns; if it raises, stop the partition and return `otherwise`."""
        try:
            return act()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            log.exception("partition_failed", message="please report it", partition=str(partition), error=reason)
            listing, reported = self._tracker.forget(partition)
            self._stopped[partition] = _Stopped(reason, reported, listing)
            return otherwise

    def _starts_over(self, stopped: _Stopped, event: PartitionEvent) -> bool:
        """Apply an event to a stopped partition, and return whether the partition starts over with it."""
        over = False
        match event:
            case Led():
                over = event.leadership != stopped.reported
                stopped.reported = event.leadership
            case Listing():
                stopped.listing = event
                stopped.since = event.taken_at if stopped.since is None else stopped.since
                over = event.taken_at - stopped.since >= _REST_NANOSECONDS
            case NotLed() | DirectoryGone():
                over = True
            case SeveralDirectories() | RepairWanted():
                pass
        if over:
            del self._stopped[event.partition]
        return over
