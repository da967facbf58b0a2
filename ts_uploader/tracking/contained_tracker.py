"""A tracker in which an unexpected error stops the partition that it comes from, and no other.

The tracker meets what others wrote: objects, checkpoint files, the names in a directory. What it does not expect there
is a defect. One object must not end the process, since the object stays and the next process meets it. So the partition
is stopped with a reason that the status page, the metrics and the log show. It starts over from nothing after a while,
or when its leadership or directory changes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import structlog

from ts_common.config.cluster_config import OffsetReset
from ts_common.model import TopicPartition
from ts_uploader.events import (
    DirectoryGone,
    HighWatermarks,
    Leadership,
    Led,
    Listing,
    NotLed,
    Observation,
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
    """A partition that is left alone.

    Attributes:
        reason: of the error; one line.
        said: the leadership source's last word.
        listing: the last one; None where there is none.
        since: nanoseconds of the monotonic clock, of the first listing after it was stopped; None before that.
    """

    reason: str
    said: Leadership | None
    listing: Listing | None
    since: int | None = None


class ContainedTracker(Tracker):
    """As `Tracker`, with the same arguments."""

    def __init__(
        self,
        offset_reset: OffsetReset,
        segments_in_flight: int = SEGMENTS_IN_FLIGHT,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
    ) -> None:
        super().__init__(offset_reset, segments_in_flight, checkpoint_seconds)
        self._stopped: dict[TopicPartition, _Stopped] = {}

    def observe(self, event: Observation) -> list[AnyTask]:
        """As the tracker; what a stopped partition is told is kept until it starts over."""
        if isinstance(event, HighWatermarks):
            return super().observe(event)
        stopped = self._stopped.get(event.partition)
        if stopped is not None and not self._starts_over(stopped, event):
            return []
        if stopped is not None and isinstance(event, Listing) and stopped.said is not None:
            super().observe(Led(event.partition, stopped.said))  # it is new there, so this only remembers
        return self._contained(event.partition, lambda: super(ContainedTracker, self).observe(event), [])

    def conclude(self, result: Result) -> list[AnyTask]:
        """As the tracker."""
        return self._contained(result.partition, lambda: super(ContainedTracker, self).conclude(result), [])

    def backlog(self) -> dict[TopicPartition, Backlog]:
        """As the tracker, and the stopped partitions."""
        waiting = super().backlog()
        for partition, stopped in self._stopped.items():
            if stopped.listing is not None and stopped.said is not None:
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
        """Do something for one partition; an error stops that partition."""
        try:
            return act()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            log.exception("partition_failed", message="please report it", partition=str(partition), error=reason)
            state = self._partitions.pop(partition, None)
            listing, said = (
                (state.listing or state.last_listing, state.reported_leadership) if state is not None else (None, None)
            )
            self._stopped[partition] = _Stopped(reason, said, listing)
            return otherwise

    def _starts_over(
        self, stopped: _Stopped, event: Listing | SeveralDirectories | DirectoryGone | Led | NotLed
    ) -> bool:
        """Take an event of a stopped partition in; whether the partition starts over with it."""
        over = False
        match event:
            case Led():
                over = event.leadership != stopped.said
                stopped.said = event.leadership
            case Listing():
                stopped.listing = event
                stopped.since = event.taken_at if stopped.since is None else stopped.since
                over = event.taken_at - stopped.since >= _REST_NANOSECONDS
            case NotLed() | DirectoryGone():
                over = True
            case SeveralDirectories():
                pass
        if over:
            del self._stopped[event.partition]
        return over
