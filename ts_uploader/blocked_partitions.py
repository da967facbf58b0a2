"""Which partitions cannot move on, as of the main loop's last tick: the backlog, what waits, and what is stuck.

Only the main loop's thread calls `update`. Other threads read the attributes; each of them is replaced, never changed.
"""

import time
from collections.abc import Mapping

import structlog

from ts_common.model import TopicPartition
from ts_uploader.conditions import NAMED_WITHIN_SECONDS
from ts_uploader.tracking.backlog import Backlog
from ts_uploader.tracking.blocked import WAIT_REASONS, Wait, WaitReason, Waits
from ts_uploader.tracking.contained_tracker import ContainedTracker
from ts_uploader.tracking.stuck import StuckPartitions, StuckWatch, Waiting

log = structlog.get_logger()

# A leadership source reads all partitions again with each poll, so by then it has reported every one.
_UNREPORTED_POLLS = 3
_UNREPORTED_LEAST_SECONDS = 300.0
_UNREPORTED = Wait(WaitReason.LEADER, WAIT_REASONS[WaitReason.LEADER])
_NANOSECONDS = 1_000_000_000


class BlockedPartitions:
    """The last tick's view of all partitions.

    Attributes:
        backlog: of each partition that the broker leads.
        leader_unknown: partitions with a directory here whose leader the leadership source has not reported.
        stuck: partitions that have waited longer than `stuck.after.ms`.
        waiting: what has waited longest; None if nothing waits.
        unreported: the number of partitions whose leader was not reported for a minute.
    """

    def __init__(self) -> None:
        self.backlog: Mapping[TopicPartition, Backlog] = {}
        self.leader_unknown: Mapping[TopicPartition, Wait] = {}
        self.stuck = StuckPartitions()
        self.waiting: Waiting | None = None
        self.unreported = 0
        self._waits = Waits()
        self._stuck_watch = StuckWatch()

    def update(
        self, tracker: ContainedTracker, *, connected: bool, poll_seconds: float, stuck_after_seconds: float
    ) -> None:
        """Read the tracker, and log each partition that begins or ends to wait or to be stuck.

        Args:
            tracker: of the thread that calls.
            connected: whether the leadership source is connected; without it no leader is reported.
            poll_seconds: how often the source reads all partitions again.
            stuck_after_seconds: how long a partition waits before it is stuck.
        """
        self.backlog = tracker.backlog()
        unreported: Mapping[TopicPartition, Wait] = {}
        if connected:
            seconds = max(_UNREPORTED_LEAST_SECONDS, _UNREPORTED_POLLS * poll_seconds)
            since = time.monotonic_ns() - int(seconds * _NANOSECONDS)
            unreported = dict.fromkeys(tracker.unreported(since), _UNREPORTED)
            soon = time.monotonic_ns() - int(NAMED_WITHIN_SECONDS * _NANOSECONDS)
            self.unreported = len(list(tracker.unreported(soon)))
        self.leader_unknown = unreported
        waiting = {partition: one.wait for partition, one in self.backlog.items() if one.wait is not None}
        for partition, reason in self._waits.look({**waiting, **unreported}).items():
            log.warning("partition_blocked", partition=str(partition), waits_for=reason)
        look = self._stuck_watch.look(self.backlog, unreported, stuck_after_seconds, time.monotonic())
        self.stuck, self.waiting = look.stuck, look.waiting
        look.log()
