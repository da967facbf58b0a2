r"""The agent, from the log dirs to the store. Read this first.

::

    LogDirectoryWatcher --listings, high watermarks--> \
                                                        inbox --> MainLoop --tasks--> TaskQueues --> workers --> store
    LeadershipSource ----leaderships-----------------> /    ^                                        |
                                                            +----------------results-----------------+

`Agent` builds the parts in the order of the data's flow and starts their threads. To stop, it first closes the gate of
requests and the queues; the pages end last. One thread, the one that calls `run`, runs the main loop, which owns the
tracker. All other threads only put frozen messages into the inbox. If a thread ends with an exception, the process ends
with a non-zero code, and its supervisor restarts it.
"""

import queue
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

import structlog

from ts_common.archive.object_keys import ClusterKeys
from ts_common.call_waits import CallWaits
from ts_common.config.cluster_config import ClusterConfig
from ts_common.endpoints.provider import EndpointProvider
from ts_common.model import TopicPartition
from ts_common.store.wrappers.unconditional import WHAT_IS_LOST
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.environment import Environment
from ts_uploader.health.tail_state import gauges
from ts_uploader.heartbeat import BlockedPartitions, Heartbeat
from ts_uploader.leadership.factory import open_source
from ts_uploader.log_dirs.deleted_directories import reported_end
from ts_uploader.log_dirs.segment_sizes import SegmentSizes
from ts_uploader.log_dirs.watcher import LogDirectoryWatcher
from ts_uploader.main_loop import (
    BacklogRequest,
    Inbox,
    MainLoop,
    ReloadRequest,
    StopRequest,
    supervised_thread,
)
from ts_uploader.messages.results import LookDue, Result
from ts_uploader.messages.tasks import AnyTask, Rescan, Ship
from ts_uploader.metrics.backlog_metrics import BacklogCollector
from ts_uploader.metrics.counters import GAP_UNRECORDED, GAP_WRITTEN_OVER, CountedElsewhere, Metrics
from ts_uploader.process.progress import Progress, Shipping
from ts_uploader.process.reload import LiveConfig, Reread
from ts_uploader.process.work_queue import WorkQueue
from ts_uploader.reporters.built_in import open_reporter
from ts_uploader.reporters.contract import Reporting
from ts_uploader.retention.known_settings import Settings
from ts_uploader.shipping.deleted_directory import DeletedShipper
from ts_uploader.shipping.high_watermarks_writer import HighWatermarksWriter
from ts_uploader.shipping.metadata_cache_writer import CacheWriter
from ts_uploader.shipping.repair_watcher import RepairWatcher
from ts_uploader.shipping.repairer import Repairer
from ts_uploader.shipping.uploader import Uploader
from ts_uploader.snapshots.snapshot_writer import open_snapshots
from ts_uploader.status.http_server import HealthServer
from ts_uploader.status.last_errors import LastErrors
from ts_uploader.status.snapshot import AgentStatus, StatusSources
from ts_uploader.stores.admission import wait_for_admission
from ts_uploader.stores.topic_stores import COMMIT_THREADS, Stores
from ts_uploader.tail.broker_watermarks import BrokerWatermarks
from ts_uploader.tail.service import Tail, log_of
from ts_uploader.tracking.backlog import Backlog, retention_left
from ts_uploader.tracking.contained_tracker import ContainedTracker
from ts_uploader.workers.task_queues import TaskQueues
from ts_uploader.workers.task_runner import TaskRunner, losses_counter

log = structlog.get_logger()

SCAN_SECONDS = 30.0  # between scans of all directories: inotify makes detection fast, scans make it certain
STOP_SECONDS = 20.0  # for uploads that run at SIGTERM; systemd waits 90 by default
_LOOKUP_THREADS = 8  # after a start the position of every partition is read; one thread, while that does not wait
_BACKLOG_SECONDS = 5.0
_MILLISECONDS = 1000


class Agent:
    """The agent of one broker.

    Args:
        environment: the broker's id, log dirs and defaults.
        endpoints: where each topic's objects are stored.
        http_address: where `ts_uploader.status.http_server` serves its pages, `host:port`.
        reread: reads `config` and `endpoints` again.

    Raises:
        ConfigurationError: settings that only show to be wrong when the parts are put together.
    """

    def __init__(
        self,
        environment: Environment,
        config: ClusterConfig,
        endpoints: EndpointProvider,
        http_address: str,
        reread: Reread,
    ) -> None:
        self._inbox: Inbox = queue.SimpleQueue()
        self._held: list[object] = []  # messages that arrived before the stores admitted the agent
        self._environment = environment
        self._config = LiveConfig(config, endpoints, reread)
        self._keys = ClusterKeys(environment.cluster_id, config.entropy_bits)
        self._metrics = Metrics()
        self._errors = LastErrors()
        self._stores = Stores(endpoints, config, deletes_below=self._keys.tails)
        # Observations.
        self._watcher = LogDirectoryWatcher(
            environment.log_dirs,
            self._ships,
            self._inbox.put,
            SCAN_SECONDS,
            scanned=self._metrics.scan_seconds.observe,
            checkpoint_seconds=environment.defaults.checkpoint_interval_ms / _MILLISECONDS,
            unnamed=self._metrics.gaps.labels(GAP_UNRECORDED).inc,
        )
        self._leadership = open_source(environment, config, self._inbox.put)
        self._settings = Settings(environment.defaults)
        self._sizes = SegmentSizes()
        # Decisions.
        checkpoint_seconds = environment.defaults.checkpoint_interval_ms / _MILLISECONDS
        self._tracker = tracker = ContainedTracker(
            config.offset_reset,
            checkpoint_seconds=checkpoint_seconds,
            has_tail=lambda topic: self._tail_log(topic) is not None,
        )
        self._queues = TaskQueues(self._urgency)
        self._blocked = BlockedPartitions()
        # Work.
        self._lookup_waits = CallWaits()
        self._progress = Progress(config.upload_timeout_seconds)
        self._cache_objects = CacheWriter(self._stores.of, lambda: self._stores.pace.is_throttled)
        self._ends = HighWatermarksWriter(
            self._keys,
            environment.broker_id,
            partial(self._read_backlog, exact=True),
            self._stores.of,
            self._metrics,
            lambda: self._config.current.conditional_writes,
        )
        uploader = Uploader(self._stores.of, self._settings.retention)
        commits = CommitLog(
            self._keys,
            environment.broker_id,
            self._stores.of,
            lambda gaps: self._metrics.gap(GAP_WRITTEN_OVER, gaps),
            losses_counter(self._metrics),
            self._tail_log,
            uploader.ship_tail,
        )
        repairer = Repairer(self._keys, environment.broker_id, self._stores.of, uploader)
        self._repairs = RepairWatcher(self._keys, self._read_backlog, self._stores.of, self._inbox.put, self._metrics)
        self._snapshots = open_snapshots(
            environment, config, self._keys, self._stores.each, self._metrics, self._errors.note
        )
        deleted = DeletedShipper(
            environment.broker_id,
            self._stores.of,
            uploader,
            commits,
            self._leadership.is_deleted,
            lambda each: reported_end(each.directory, self._ends.written(each.partition), checkpoint_seconds),
        )
        self._tail: Tail | None = None  # from `run` on
        self._shipping = Shipping()
        self._runner = TaskRunner(
            uploader, commits, self._watcher, self._metrics, self._cache_objects, repairer, deleted, self._shipping
        )
        reporter = open_reporter(config, environment)
        self._reporting = (
            Reporting(reporter, self._metrics.registry, config.reporter_interval_seconds) if reporter else None
        )
        self._threads = self._build_threads(config.upload_threads)
        # Pages.
        self._status = AgentStatus(self._status_sources())
        self._health = HealthServer(
            http_address, self._metrics.registry, self._status, lambda: self._config.current.http_allowed_hosts
        )
        heartbeat = Heartbeat(
            self._config,
            self._watcher,
            tracker,
            self._blocked,
            self._stores,
            self._progress,
            self._metrics,
            self._status,
        )
        self._loop = MainLoop(
            self._inbox,
            tracker,
            self._queues,
            self._settings,
            self._sizes,
            self._errors,
            watch=self._leadership.watch,
            look_at=self._leadership.look_at,
            reload=self._reload,
            tick=heartbeat.tick,
        )
        self._register_metrics()

    def run(self) -> None:
        """Ship until `stop`.

        Raises:
            ConfigurationError: a store cannot be used as configured; nothing was written.
            StoreUnavailable: a store does not answer; nothing was written.
            TieredStorageError: the agent cannot continue; the process should end with a non-zero code.
            BaseException: a thread ended with it; the same.
        """
        try:
            self._health.start()
            stores = self._stores
            if not wait_for_admission(
                lambda: stores.check(self._keys), stores.reopen, self._wait_at_start, self._metrics, self._errors
            ):
                return
            for message in self._held:
                self._inbox.put(message)
            self._status.store_answered = True
            if not self._config.current.conditional_writes:
                log.warning("conditional_writes_off", message=WHAT_IS_LOST)
            self._tracker.defer(self._ends.read_idle(stores.each()))
            self._watcher.start_watching()
            if self._config.current.tail_interval_ms:
                self._open_tail()
            for thread in self._threads:
                thread.start()
            self._status.note_round(0)
            self._status.begun = True
            log.info(
                "agent_started",
                cluster=self._environment.cluster_id,
                broker=self._environment.broker_id,
                log_dirs=[str(log_dir) for log_dir in self._environment.log_dirs],
                http=self._health.address,
            )
            self._loop.run()
        finally:
            self._shut_down()

    def stop(self, reason: str) -> None:
        """End `run` soon; safe in a signal handler and from any thread."""
        self._inbox.put(StopRequest(reason))

    def reload(self) -> None:
        """Have the configuration read again soon; safe in a signal handler and from any thread."""
        self._inbox.put(ReloadRequest())

    def _wait_at_start(self, seconds: float) -> bool:
        """Wait before any thread runs, at most until a message arrives; return False for a `StopRequest`.

        Other messages are kept, and the main loop handles them.
        """
        try:
            message = self._inbox.get(timeout=seconds)
        except queue.Empty:
            return True
        if isinstance(message, StopRequest):
            log.info("agent_stopping", reason=message.reason)
            return False
        self._held.append(message)
        return True

    def _build_threads(self, upload_threads: int) -> list[threading.Thread]:
        queues = self._queues
        services = {
            "watcher": self._watcher.run,
            "leadership": self._leadership.run,
            "metadata-cache": self._cache_objects.run,
            "ends": self._ends.run,
            "repairs": self._repairs.run,
        }
        if self._snapshots is not None:
            services["snapshots"] = self._snapshots.run
        if self._reporting is not None:
            services["reporter"] = self._reporting.run
        return [
            *(supervised_thread(name, target, self._inbox) for name, target in services.items()),
            self._worker("lookup-0", queues.lookups, self._lookup_waits.measure),
            *(
                self._worker(f"lookup-{n}", queues.lookups, begin=self._lookup_waits.prevail.wait)
                for n in range(1, _LOOKUP_THREADS)
            ),
            *(self._worker(f"commit-{n}", queues.commits) for n in range(COMMIT_THREADS)),
            *(self._worker(f"upload-{n}", queues.uploads) for n in range(upload_threads)),
        ]

    def _worker(
        self,
        name: str,
        tasks: WorkQueue[AnyTask],
        measure: Callable[[Callable[[], Result | None]], Result | None] = lambda run: run(),
        begin: Callable[[], object] = lambda: None,
    ) -> threading.Thread:
        def work() -> None:
            begin()
            while (task := tasks.get()) is not None:
                if isinstance(task, Rescan):  # the tracker accepts the listing only after this
                    self._inbox.put(LookDue(task.partition, task.generation))
                with self._progress.doing(type(task).__name__, task.partition):
                    result = measure(partial(self._runner.run, task))
                if result is not None:
                    self._inbox.put(result)

        return supervised_thread(name, work, self._inbox)

    def _open_tail(self) -> None:
        environment, config = self._environment, self._config
        self._tail = Tail(
            self._keys,
            environment.broker_id,
            self._stores.each(),
            self._stores.of,
            lambda: config.current,
            lambda: BrokerWatermarks(environment, lambda: config.current, self._read_backlog),
            self._read_backlog,
            self._inbox.put,
            self._metrics,
        )
        shippers = enumerate(self._tail.shippers)
        self._threads += [supervised_thread(f"tail-{at}", each.run, self._inbox) for at, each in shippers]

    def _tail_log(self, topic: str) -> str | None:
        """Return the name of the log that has a topic's live tail; None if the topic has none."""
        return log_of(self._config.current, self._environment.broker_id, topic)

    def _ships(self, topic: str) -> bool:
        """Return whether the running configuration selects a topic."""
        return self._config.current.ships(topic)

    def _urgency(self, task: Ship) -> float | None:
        """Return the fraction of its retention that a segment has left."""
        retention = self._settings.retention(task.partition.topic)
        return retention_left(task.listing, task.base, retention, self._sizes.behind)

    def _status_sources(self) -> StatusSources:
        return StatusSources(
            environment=self._environment,
            leadership=self._leadership,
            progress=self._progress,
            errors=self._errors,
            retention=self._settings.retention,
            backlog=self._read_backlog,
            threads=self._threads,
            queues=self._queues.lengths,
            looked_at=lambda: self._watcher.looked_at,
            scan_seconds=SCAN_SECONDS,
            limits=lambda: (self._stores.pace.limit, self._stores.allowance.limit),
            sizes=self._sizes,
            stuck=lambda: self._blocked.stuck,
            waiting=lambda: self._blocked.waiting,
            unreported=lambda: self._blocked.unreported,
            snapshots=lambda: None if self._snapshots is None else self._snapshots.failing,
            tail=lambda: () if self._tail is None else self._tail.states,
            health=self._stores.health,
            shipping=self._shipping,
        )

    def _register_metrics(self) -> None:
        """Register the metrics that other parts hold."""
        metrics, stores = self._metrics, self._stores
        metrics.registry.register(
            BacklogCollector(
                self._read_backlog,
                self._settings.retention,
                lambda: self._config.current.metrics_partitions,
                self._sizes,
                lambda: len(self._blocked.leader_unknown),
                lambda: self._blocked.stuck,
            )
        )
        metrics.registry.register(
            CountedElsewhere(
                throttled_requests=lambda: stores.pace.refused,
                upload_waited_seconds=lambda: stores.allowance.waited_seconds,
                inotify_overflows=lambda: self._watcher.overflows,
                store_requests=lambda: stores.counts.requests,
                tail=lambda: gauges(() if self._tail is None else self._tail.states),
                condition=self._condition,
            )
        )
        for name, length in self._queues.lengths.items():
            metrics.queue_length.labels(name).set_function(length)
        metrics.watched_partitions.set_function(lambda: len(self._loop.local))
        environment = self._environment
        metrics.broker.info({"cluster_id": environment.cluster_id, "broker_id": str(environment.broker_id)})

    def _condition(self) -> str:
        """Return the condition of the agent, for a scrape."""
        self._status.count(self._status.backlog())
        return self._status.snapshot().state.condition.value

    def _read_backlog(self, *, exact: bool = False) -> Mapping[TopicPartition, Backlog]:
        """Return the tracker's backlog, from any thread; empty before the main loop runs.

        Args:
            exact: as in `ContainedTracker.backlog`.

        Raises:
            TimeoutError: the main loop does not answer.
        """
        if not self._status.begun:
            return {}
        request = BacklogRequest(exact)
        self._inbox.put(request)
        try:
            return request.answer.result(_BACKLOG_SECONDS)
        except TimeoutError:
            if not self._status.answering:
                raise
            return self._blocked.backlog  # of the last tick; after a start the inbox holds thousands of listings

    def _reload(self) -> None:
        self._config.reload({partition.topic for partition in self._loop.local})
        self._stores.allowance.change(self._config.current.upload_max_bytes_per_second)
        self._watcher.hint_all()  # other topics may be shipped now
        self._repairs.look_now()

    def _shut_down(self) -> None:
        deadline = time.monotonic() + STOP_SECONDS
        self._stores.pace.close()
        self._queues.close()
        self._lookup_waits.prevail.set()  # the threads that wait for it end
        self._cache_objects.close()
        self._ends.close()
        self._repairs.close()
        if self._snapshots is not None:
            self._snapshots.close()
        if self._tail is not None:
            self._tail.close()
        if self._reporting is not None:
            self._reporting.stop()
        self._leadership.stop()
        self._watcher.stop()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))
        self._health.stop()
        running = [thread.name for thread in self._threads if thread.is_alive()]
        if running:
            # They end with the process. An upload is one PUT: a PUT that is cut off never becomes an object, and the
            # next start ships the segment.
            log.warning("shutdown_timed_out", threads=running, seconds=STOP_SECONDS)
        else:
            self._stores.close()
