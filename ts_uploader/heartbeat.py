"""What the main loop does every two seconds: it updates gauges, health and the view of blocked partitions."""

from ts_uploader.blocked_partitions import BlockedPartitions
from ts_uploader.log_dirs.watcher import LogDirectoryWatcher
from ts_uploader.metrics.counters import Metrics
from ts_uploader.process.reload import LiveConfig
from ts_uploader.progress import Progress
from ts_uploader.status.snapshot import Status
from ts_uploader.stores.topic_stores import Stores
from ts_uploader.tracking.contained_tracker import ContainedTracker


class Heartbeat:
    """One tick at a time, on the main loop's thread.

    Args:
        config: the running configuration.
        watcher: of the log dirs.
        tracker: the main loop's.
        blocked: the view that each tick updates.
        stores: whose limits the gauges show.
        progress: of the workers; the time that they wait for a store's limits does not count as a standstill.
        metrics: whose gauges each tick sets.
        status: of the agent.
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
        status: Status,
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
        connected = self._status.note_leadership()
        self._metrics.leadership_connected.set(connected)
        self._metrics.request_limit.set(self._stores.pace.limit or float("inf"))
        self._metrics.upload_limit.set(self._stores.allowance.limit or float("inf"))
        self._progress.excuse(self._stores.pace.refused, self._stores.allowance.waited_seconds)
        config = self._config.current
        self._blocked.update(
            self._tracker,
            connected=connected,
            poll_seconds=config.leadership_poll_seconds,
            stuck_after_seconds=config.stuck_after_seconds,
        )
        self._status.note_round(len(self._blocked.backlog))
