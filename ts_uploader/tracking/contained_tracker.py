"""A tracker that stops a partition at an unexpected error, and no other partition.

The tracker's input was written by others: objects, checkpoint files, names in a directory. If it meets a value that it
does not expect, that is a defect. Such a value must not end the process, because the next process would read it again.
So the partition is stopped, and the status page, the metrics and the log show the reason. It starts over after five
minutes, or when its leadership or directory changes.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import structlog

from ts_common.archive.positions import Idle
from ts_common.config.cluster_config import OffsetReset
from ts_common.model import TopicPartition
from ts_uploader.messages.observations import (
    Answered,
    DirectoryDeleted,
    DirectoryGone,
    FormerCovered,
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
from ts_uploader.messages.tasks import AnyTask, Rescan
from ts_uploader.tracking.backlog import Backlog
from ts_uploader.tracking.blocked import Wait, WaitReason
from ts_uploader.tracking.task_selection import CHECKPOINT_SECONDS, SEGMENTS_IN_FLIGHT
from ts_uploader.tracking.tracker import Tracker

log = structlog.get_logger()

_REST_NANOSECONDS: Final = 300 * 1_000_000_000
_NO_GENERATION: Final = -1
_Out = TypeVar("_Out")


@dataclass(slots=True)
class _Stopped:
    """A stopped partition.

    Attributes:
        reason: the error, one line.
        reported: the leadership that the source last reported; None if this broker does not lead.
        listing: the last one; None without one.
        since: time of the first listing or tick after it was stopped, nanoseconds of the monotonic clock; None before.
        asked_at: time of the tick that had its directory listed so that it starts over; 0 before that.
    """

    reason: str
    reported: Leadership | None
    listing: Listing | None
    since: int | None = None
    asked_at: int = 0


class ContainedTracker:
    """A `Tracker`, with the same arguments, that stops a partition at an unexpected error."""

    def __init__(
        self,
        offset_reset: OffsetReset,
        segments_in_flight: int = SEGMENTS_IN_FLIGHT,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
        has_tail: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._tracker = Tracker(offset_reset, segments_in_flight, checkpoint_seconds, has_tail)
        self._stopped: dict[TopicPartition, _Stopped] = {}
        self._backlog: Mapping[TopicPartition, Backlog] = {}  # as of the last call, without stopped partitions

    def observe(self, event: Observation) -> list[AnyTask]:
        """Apply one observation. A stopped partition only keeps it until it starts over."""
        if isinstance(event, HighWatermarks):
            tasks: list[AnyTask] = []
            for partition in self._tracker.note_checkpoint(event):
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
        return self.read_now(self._tracker.deferred(most))

    def read_now(self, partitions: Iterable[TopicPartition]) -> list[AnyTask]:
        """Return the tasks that read the positions of these partitions, of those that are deferred."""
        tasks: list[AnyTask] = []
        for partition in self._tracker.end_deferral(partitions):
            tasks += self._contained(partition, partial(self._tracker.select, partition), [])
        return tasks

    def backlog(self, *, exact: bool = False) -> Mapping[TopicPartition, Backlog]:
        """Return the backlog of every partition that is reported as led here, stopped ones included.

        Only that of partitions with a message since the last call is computed. The result never changes.

        Args:
            exact: `counted_at` is that of the newest checkpoint also where no high watermark changed.
        """
        touched = self._tracker.take_touched()
        if exact:
            touched = {*touched, *self._tracker.partitions}
        found = {each: self._contained(each, partial(self._tracker.backlog_of, each), None) for each in touched}
        if found:
            waiting = dict(self._backlog)  # a copy needs no hash, which Python computes for ten thousand partitions
            for each, backlog in found.items():
                if backlog is None:
                    waiting.pop(each, None)
                else:
                    waiting[each] = backlog
            self._backlog = waiting
        stopped = {
            partition: Backlog(one.listing, None, 0, None, None, hole=False, wait=Wait(WaitReason.DEFECT, one.reason))
            for partition, one in self._stopped.items()
            if one.listing is not None and one.reported is not None
        }
        return {**self._backlog, **stopped} if stopped else self._backlog

    def tick(self, now: int) -> list[AnyTask]:
        """Return the tasks that are due: listings of stopped partitions, and reads of positions behind Java uploaders.

        Args:
            now: nanoseconds of the monotonic clock.
        """
        tasks: list[AnyTask] = []
        for partition in self._tracker.behind_java():
            tasks += self._contained(partition, partial(self._tracker.check_java, partition, now), [])
        for partition, stopped in self._stopped.items():
            stopped.since = now if stopped.since is None else stopped.since
            if now - max(stopped.since, stopped.asked_at) >= _REST_NANOSECONDS:
                stopped.asked_at = now
                tasks.append(Rescan(partition, _NO_GENERATION, 0))  # it starts over with the listing
        return tasks

    @property
    def unsettled(self) -> Set[TopicPartition]:
        """The partitions that a checkpoint can change with equal entries, as of this call."""
        return self._tracker.unsettled

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
            case SeveralDirectories() | RepairWanted() | Answered() | FormerCovered():
                pass
        if over:
            del self._stopped[event.partition]
        return over
