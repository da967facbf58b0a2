"""A tracker that stops a partition at an unexpected error, and no other partition.

The tracker's input was written by others: objects, checkpoint files, names in a directory. If it meets a value that it
does not expect, that is a defect. Such a value must not end the process, because the next process would read it again.
So the partition is stopped, and the status page, the metrics and the log show the reason. It starts over after five
minutes, or when its leadership or directory changes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import structlog

from ts_common.config.cluster_config import OffsetReset
from ts_common.model import TopicPartition
from ts_uploader.messages import (
    DirectoryDeleted,
    DirectoryGone,
    HighWatermarks,
    Leadership,
    Led,
    Listing,
    NotLed,
    Observation,
    RepairWanted,
    SeveralDirectories,
)
from ts_uploader.tasks import AnyTask, Result
from ts_uploader.tracking.backlog import Backlog
from ts_uploader.tracking.blocked import Wait, WaitReason
from ts_uploader.tracking.partition_state import PartitionState
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


class ContainedTracker(Tracker):
    """A `Tracker`, with the same arguments, that stops a partition at an unexpected error."""

    def __init__(
        self,
        offset_reset: OffsetReset,
        segments_in_flight: int = SEGMENTS_IN_FLIGHT,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
    ) -> None:
        super().__init__(offset_reset, segments_in_flight, checkpoint_seconds)
        self._stopped: dict[TopicPartition, _Stopped] = {}

    def observe(self, event: Observation) -> list[AnyTask]:
        """Apply one observation. A stopped partition only keeps it until it starts over."""
        if isinstance(event, HighWatermarks | DirectoryDeleted):
            return super().observe(event)
        stopped = self._stopped.get(event.partition)
        if stopped is not None and not self._starts_over(stopped, event):
            return []
        if stopped is not None and isinstance(event, Listing) and stopped.reported is not None:
            super().observe(Led(event.partition, stopped.reported))  # without a listing yet, so it returns no task
        return self._contained(event.partition, lambda: super(ContainedTracker, self).observe(event), [])

    def conclude(self, result: Result) -> list[AnyTask]:
        """Apply a worker's result, and return the tasks that can begin now."""
        return self._contained(result.partition, lambda: super(ContainedTracker, self).conclude(result), [])

    def backlog(self) -> dict[TopicPartition, Backlog]:
        """Return the backlog of every partition that is reported as led here, stopped ones included."""
        waiting = super().backlog()
        for partition, stopped in self._stopped.items():
            if stopped.listing is not None and stopped.reported is not None:
                waiting[partition] = Backlog(
                    stopped.listing, None, 0, None, None, hole=False, wait=Wait(WaitReason.DEFECT, stopped.reason)
                )
        return waiting

    def _take_high_watermarks(self, state: PartitionState, event: HighWatermarks) -> list[AnyTask]:
        return self._contained(
            state.partition, lambda: super(ContainedTracker, self)._take_high_watermarks(state, event), []
        )

    def _backlog_of(self, state: PartitionState) -> Backlog | None:
        return self._contained(state.partition, lambda: super(ContainedTracker, self)._backlog_of(state), None)

    def _contained(self, partition: TopicPartition, act: Callable[[], _Out], otherwise: _Out) -> _Out:
        """Return what `act` returns; if it raises, stop the partition and return `otherwise`."""
        try:
            return act()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            log.exception("partition_failed", message="please report it", partition=str(partition), error=reason)
            state = self._partitions.pop(partition, None)
            listing, reported = (
                (state.listing or state.last_listing, state.reported_leadership) if state is not None else (None, None)
            )
            self._stopped[partition] = _Stopped(reason, reported, listing)
            return otherwise

    def _starts_over(
        self, stopped: _Stopped, event: Listing | SeveralDirectories | DirectoryGone | Led | NotLed | RepairWanted
    ) -> bool:
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
