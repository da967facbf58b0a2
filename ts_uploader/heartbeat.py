"""What the main loop does every two seconds: it updates gauges, health and the view of blocked partitions.

Only the main loop's thread runs this. Other threads read the attributes of `BlockedPartitions`; each of them is
replaced, never changed.
"""

import time
from collections.abc import Mapping

import structlog

from ts_common.model import TopicPartition
from ts_uploader.health.conditions import NAMED_WITHIN_SECONDS
from ts_uploader.log_dirs.watcher import LogDirectoryWatcher
from ts_uploader.metrics.counters import Metrics
from ts_uploader.process.progress import Progress
from ts_uploader.process.reload import LiveConfig
from ts_uploader.status.snapshot import AgentStatus
from ts_uploader.stores.topic_stores import Stores
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
        waiting = {partition: one for partition, one in self.backlog.items() if one.wait is not None}
        waits = {partition: one.wait for partition, one in waiting.items() if one.wait is not None}
        for partition, reason in self._waits.look({**waits, **unreported}).items():
            log.warning("partition_blocked", partition=str(partition), waits_for=reason)
        look = self._stuck_watch.look(waiting, unreported, stuck_after_seconds, time.monotonic())
        self.stuck, self.waiting = look.stuck, look.waiting
        look.log()


class Heartbeat:
    """One tick at a time, on the main loop's thread.

    Args:
        blocked: the view that each tick updates.
        stores: whose limits the gauges show.
        progress: of the workers; the time that they wait for a store's limits does not count as a standstill.
        metrics: whose gauges each tick sets.
    """

    def __init__(
        self,
        config: LiveConfig,
        watcher: LogDirectoryWatcher,
        tracker: ContainedTracker,
        blocked: BlockedPartitions,
        stores: Stores,
        progress: Progress,
        metrics: Metrics,
        status: AgentStatus,
    ) -> None:
        self._config = config
        self._watcher = watcher
        self._tracker = tracker
        self._blocked = blocked
        self._stores = stores
        self._progress = progress
        self._metrics = metrics
        self._status = status
        # Read at each scrape: no tick runs while the agent waits for the admission of its stores.
        metrics.leadership_age.set_function(lambda: status.seconds_without_leadership)

    def tick(self) -> None:
        """Run one tick.

        Raises:
            RuntimeError: the threads of inotify ended.
        """
        if not self._watcher.watching:
            raise RuntimeError("inotify ended: the threads of the directory watcher have died")
        self._watcher.unsettled = self._tracker.unsettled
        connected = self._status.note_leadership()
        self._metrics.leadership_connected.set(connected)
        self._metrics.request_limit.set(self._stores.pace.limit or float("inf"))
        self._metrics.upload_limit.set(self._stores.allowance.limit or float("inf"))
        self._progress.excuse(self._stores.pace.refused, self._stores.allowance.waited_seconds)
        config = self._config.current
        self._blocked.update(
            self._tracker,
            connected=connected,
            poll_seconds=config.leadership_poll_seconds or 0.0,  # a source that it is not set for reports sooner
            stuck_after_seconds=config.stuck_after_seconds,
        )
        self._status.note_round(len(self._blocked.backlog))
