r"""The agent, from the log dirs to the store. Read this first.

::

    LogDirectoryWatcher --listings, high watermarks--> \
                                                         inbox --> Tracker --tasks--> WorkQueue --> threads --> store
    LeadershipSource ----leaderships----------------------> /     ^                                        |
                                                             +---------------results------------------+

One thread, the one that calls `run`, takes from the inbox and owns the tracker's state; all others only put frozen
messages into it. Parts are built in the order the data flows and stopped in reverse. A thread that dies of an exception
ends the process with a non-zero code, so that its supervisor starts it anew: never half alive.
"""

import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

import structlog

from ts_common.archive.object_keys import ClusterKeys
from ts_common.config.cluster_config import ClusterConfig
from ts_common.endpoints.provider import EndpointProvider
from ts_common.model import TopicPartition
from ts_common.store.wrappers.unconditional import WHAT_IS_LOST
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.environment import Environment
from ts_uploader.events import (
    AnyTask,
    DirectoryGone,
    Listing,
    LookBelow,
    LookDue,
    Observation,
    ReadPosition,
    Rescan,
    Result,
    SeveralDirectories,
    Ship,
)
from ts_uploader.leadership.factory import open_source
from ts_uploader.log_dirs.segment_sizes import SegmentSizes
from ts_uploader.log_dirs.watcher import LogDirectoryWatcher
from ts_uploader.metrics.backlog_metrics import BacklogCollector
from ts_uploader.metrics.counters import COMMITS, GAP_WRITTEN_OVER, LOOKUPS, UPLOADS, CountedElsewhere, Metrics
from ts_uploader.process.reload import Reread, reload
from ts_uploader.progress import Progress
from ts_uploader.reporters.contract import Reporting
from ts_uploader.reporters.factory import open_reporter
from ts_uploader.retention.known_settings import Settings
from ts_uploader.retention.topic_retention import BrokerSettings, TopicSettings
from ts_uploader.shipping.ends_writer import EndsWriter
from ts_uploader.shipping.metadata_cache_writer import CacheWriter
from ts_uploader.shipping.uploader import Uploader
from ts_uploader.status.http_server import HealthServer
from ts_uploader.status.last_errors import LastErrors
from ts_uploader.status.snapshot import Status, StatusSources
from ts_uploader.stores.admission import wait_for_admission
from ts_uploader.stores.topic_stores import COMMIT_THREADS, Stores
from ts_uploader.tracking.backlog import Backlog, retention_left
from ts_uploader.tracking.blocked import WAIT_REASONS, Wait, WaitReason, Waits
from ts_uploader.tracking.contained_tracker import ContainedTracker
from ts_uploader.tracking.stuck import StuckPartitions, StuckWatch
from ts_uploader.work_queue import WorkQueue
from ts_uploader.workers import TaskRunner, backoff_seconds, told_of_losses

log = structlog.get_logger()

SCAN_SECONDS = 30.0  # between scans of everything; events make it quick, this makes it sure
STOP_SECONDS = 20.0  # what in-flight uploads get after SIGTERM; systemd's default patience is 90
_LOOKUP_THREADS = 8  # after a start every partition asks the store, and each question only waits for its answer
_TICK_SECONDS = 2.0
_ANSWER_SECONDS = 5.0
_MILLISECONDS = 1000
_NANOSECONDS = 1_000_000_000
# A source looks at all partitions anew with each poll, so by then it has told of every one.
_UNTOLD_POLLS = 3
_UNTOLD_LEAST_SECONDS = 300.0
_UNTOLD = Wait(WaitReason.LEADER, WAIT_REASONS[WaitReason.LEADER])


@dataclass(frozen=True, slots=True)
class _Died:
    """A thread ended by an exception."""

    thread: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class _Stop:
    """Somebody asked for an end."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Reload:
    """Somebody asked for the configuration to be read again."""


@dataclass(frozen=True, slots=True)
class _BacklogWanted:
    """Another thread wants to know what waits."""

    answer: "Future[Mapping[TopicPartition, Backlog]]"


class Agent:
    """One agent beside one broker.

    Args:
        environment: the broker's surroundings.
        config: the cluster's settings.
        endpoints: where each topic's objects go.
        http_address: where `ts_uploader.status.http_server` serves its pages, `host:port`.
        reread: reads the cluster's settings and where its topics go again.

    Raises:
        ConfigurationError: something that only shows when the parts are put together.
    """

    def __init__(
        self,
        environment: Environment,
        config: ClusterConfig,
        endpoints: EndpointProvider,
        http_address: str,
        reread: Reread,
    ) -> None:
        self._inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._held: list[object] = []  # messages that came while the stores were asked
        self._keys = ClusterKeys(environment.cluster_id, config.entropy_bits)
        self._stores = Stores(endpoints, config)
        self._metrics = Metrics()
        self._config = config
        self._watcher = LogDirectoryWatcher(
            environment.log_dirs,
            self._ships,
            self._inbox.put,
            SCAN_SECONDS,
            scanned=self._metrics.scan_seconds.observe,
        )
        self._leadership = open_source(environment, config, self._inbox.put)
        self._settings = Settings(environment.defaults)
        checkpoint_seconds = environment.defaults.checkpoint_interval_ms / _MILLISECONDS
        self._tracker = ContainedTracker(config.offset_reset, checkpoint_seconds=checkpoint_seconds)
        self._uploads: WorkQueue[AnyTask] = WorkQueue()
        self._commits: WorkQueue[AnyTask] = WorkQueue()
        self._lookups: WorkQueue[AnyTask] = WorkQueue()
        self._cache_objects = CacheWriter(self._stores.of, lambda: self._stores.pace.limit is not None)
        self._ends = EndsWriter(self._keys, environment.broker_id, self._ask_backlog, self._stores.of, self._metrics)
        runner = TaskRunner(
            Uploader(self._stores.of, self._settings.retention),
            CommitLog(
                self._keys,
                environment.broker_id,
                self._stores.of,
                lambda gaps: self._metrics.gap(GAP_WRITTEN_OVER, gaps),
                told_of_losses(self._metrics),
            ),
            self._watcher,
            self._metrics,
            self._cache_objects,
        )
        self._sizes = SegmentSizes()
        self._progress = Progress(config.upload_timeout_seconds)
        self._errors = LastErrors()
        reporter = open_reporter(config, environment)
        self._reporting = (
            Reporting(reporter, self._metrics.registry, config.reporter_interval_seconds) if reporter else None
        )
        self._threads = [
            *([self._thread("reporter", self._reporting.run)] if self._reporting else []),
            self._thread("watcher", self._watcher.run),
            self._thread("leadership", self._leadership.run),
            self._thread("metadata-cache", self._cache_objects.run),
            self._thread("ends", self._ends.run),
            *(self._worker(f"lookup-{n}", self._lookups, runner) for n in range(_LOOKUP_THREADS)),
            *(self._worker(f"commit-{n}", self._commits, runner) for n in range(COMMIT_THREADS)),
            *(self._worker(f"upload-{n}", self._uploads, runner) for n in range(config.upload_threads)),
        ]
        parts = StatusSources(
            environment=environment,
            leadership=self._leadership,
            progress=self._progress,
            errors=self._errors,
            retention=self._settings.retention,
            backlog=self._ask_backlog,
            threads=self._threads,
            queues={
                "uploads": self._uploads.__len__,
                "commits": self._commits.__len__,
                "lookups": self._lookups.__len__,
            },
            looked_at=lambda: self._watcher.looked_at,
            scan_seconds=SCAN_SECONDS,
            limits=lambda: (self._stores.pace.limit, self._stores.allowance.limit),
            sizes=self._sizes,
            stuck=lambda: self._stuck,
        )
        self._status = Status(parts)
        self._health = HealthServer(
            http_address, self._metrics.registry, self._status, lambda: self._config.http_allowed_hosts
        )
        self._environment = environment
        self._endpoints = endpoints
        self._reread = reread
        self._local: set[TopicPartition] = set()  # partitions with a directory here
        self._local_changed = False
        self._backlog: Mapping[TopicPartition, Backlog] = {}  # as of the last tick
        self._waits = Waits()
        self._stuck_watch = StuckWatch()
        self._stuck = StuckPartitions()  # as of the last tick
        self._untold: dict[TopicPartition, Wait] = {}  # what the source never spoke of, while it is being watched
        self._leadership_heard = time.monotonic()
        self._publish()

    def run(self) -> None:
        """Ship until `stop`.

        Raises:
            ConfigurationError: a store cannot be used as configured; nothing was written.
            StoreUnavailable: a store does not answer; nothing was written.
            TieredStorageError, or what a thread died of: the process should end with a non-zero code.
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
            if not self._config.conditional_writes:
                log.warning("conditional_writes_off", message=WHAT_IS_LOST)
            self._watcher.start_watching()
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
            self._loop()
        finally:
            self._shut_down()

    def stop(self, reason: str) -> None:
        """End `run` soon; safe in a signal handler and from any thread."""
        self._inbox.put(_Stop(reason))

    def reload(self) -> None:
        """Have the configuration read again soon; safe in a signal handler and from any thread."""
        self._inbox.put(_Reload())

    def _wait_at_start(self, seconds: float) -> bool:
        """Wait before anything runs. A reload ends the wait, and is done later; False where an end is asked for."""
        try:
            message = self._inbox.get(timeout=seconds)
        except queue.Empty:
            return True
        if isinstance(message, _Stop):
            log.info("agent_stopping", reason=message.reason)
            return False
        self._held.append(message)
        return True

    def _loop(self) -> None:
        next_tick = time.monotonic()
        while True:
            try:
                message = self._inbox.get(timeout=max(0.0, next_tick - time.monotonic()))
            except queue.Empty:
                self._tick()
                next_tick = time.monotonic() + _TICK_SECONDS
                continue
            if isinstance(message, Observation):
                self._note_directory(message)
                self._dispatch(self._tracker.observe(message))
            elif isinstance(message, Result):
                self._errors.take(message)
                self._dispatch(self._tracker.conclude(message))
            elif isinstance(message, BrokerSettings | TopicSettings):
                self._settings.take(message)
            elif isinstance(message, _Reload):
                topics = {partition.topic for partition in self._local}
                self._config = reload(self._config, self._endpoints, topics, self._reread)
                self._stores.allowance.change(self._config.upload_max_bytes_per_second)
                self._watcher.hint_all()  # what is shipped may be others now
            elif isinstance(message, _BacklogWanted):
                message.answer.set_result(self._tracker.backlog())
            elif isinstance(message, _Died):
                log.error("thread_died", message="the process ends", thread=message.thread, error=repr(message.error))
                raise message.error
            elif isinstance(message, _Stop):
                log.info("agent_stopping", reason=message.reason)
                return
            if self._local_changed and self._inbox.empty():
                self._local_changed = False
                self._leadership.watch(frozenset(self._local))
            if time.monotonic() >= next_tick:
                self._tick()
                next_tick = time.monotonic() + _TICK_SECONDS

    def _dispatch(self, tasks: list[AnyTask]) -> None:
        for task in tasks:
            if isinstance(task, Ship):
                retention = self._settings.retention(task.partition.topic)
                urgency = retention_left(task.listing, task.base, retention, self._sizes.behind)
                self._uploads.put(task.partition, task, urgency=urgency)
            elif isinstance(task, Rescan):
                if task.reason:
                    log.info("segment_changed", partition=str(task.partition), reason=task.reason)
                self._lookups.put(task.partition, task, task.after_seconds + backoff_seconds(task.attempt))
            elif isinstance(task, ReadPosition):
                self._lookups.put(task.partition, task, backoff_seconds(task.attempt))
            elif isinstance(task, LookBelow):  # it reads files, and no commit waits behind it
                self._lookups.put(task.partition, task)
            else:
                self._commits.put(task.partition, task)

    def _note_directory(self, message: Observation) -> None:
        if isinstance(message, Listing | SeveralDirectories) and message.partition not in self._local:
            self._local.add(message.partition)
            self._local_changed = True
        elif isinstance(message, DirectoryGone):
            self._local.discard(message.partition)
            self._sizes.forget(message.partition)
            self._uploads.drop(message.partition)
            self._local_changed = True

    def _tick(self) -> None:
        if not self._watcher.watching:
            raise RuntimeError("inotify ended: the threads of the directory watcher are gone")
        now = time.monotonic()
        connected = self._status.note_leadership()
        if connected:
            self._leadership_heard = now
        self._metrics.leadership_connected.set(connected)
        self._metrics.leadership_age.set(now - self._leadership_heard)
        self._metrics.request_limit.set(self._stores.pace.limit or float("inf"))
        self._metrics.upload_limit.set(self._stores.allowance.limit or float("inf"))
        self._progress.excuse(self._stores.pace.refused, self._stores.allowance.waited_seconds)
        if not self._local_changed:  # the leadership source knows by now whom it need not tell of any more
            self._tracker.forget_absent()
        self._backlog = self._tracker.backlog()
        self._status.note_round(len(self._backlog))
        patience = max(_UNTOLD_LEAST_SECONDS, _UNTOLD_POLLS * self._config.leadership_poll_seconds)
        untold = self._tracker.untold(time.monotonic_ns() - int(patience * _NANOSECONDS)) if connected else ()
        self._untold = dict.fromkeys(untold, _UNTOLD)
        waiting = {partition: waits.wait for partition, waits in self._backlog.items() if waits.wait is not None}
        waiting |= self._untold
        for partition, reason in self._waits.look(waiting).items():
            log.warning("partition_blocked", partition=str(partition), waits_for=reason)
        look = self._stuck_watch.look(self._backlog, self._untold, self._config.stuck_after_seconds, now)
        self._stuck = look.stuck
        look.log()

    def _publish(self) -> None:
        """Register what the other parts tell of themselves."""
        metrics, stores = self._metrics, self._stores
        metrics.registry.register(
            BacklogCollector(
                self._ask_backlog,
                self._settings.retention,
                lambda: self._config.metrics_partitions,
                self._sizes,
                lambda: len(self._untold),
                lambda: self._stuck,
            )
        )
        metrics.registry.register(
            CountedElsewhere(
                throttled_requests=lambda: stores.pace.refused,
                upload_waited_seconds=lambda: stores.allowance.waited_seconds,
                inotify_overflows=lambda: self._watcher.overflows,
            )
        )
        for name, tasks in ((UPLOADS, self._uploads), (COMMITS, self._commits), (LOOKUPS, self._lookups)):
            metrics.queue_length.labels(name).set_function(tasks.__len__)
        metrics.watched_partitions.set_function(self._local.__len__)
        environment = self._environment
        metrics.broker.info({"cluster_id": environment.cluster_id, "broker_id": str(environment.broker_id)})

    def _ask_backlog(self) -> Mapping[TopicPartition, Backlog]:
        if not self._status.begun:
            return {}
        wanted = _BacklogWanted(Future())
        self._inbox.put(wanted)
        try:
            return wanted.answer.result(_ANSWER_SECONDS)
        except TimeoutError:
            if not self._status.answering:
                raise
            return self._backlog  # much stands before us in the inbox: ten thousand partitions that are looked at first

    def _ships(self, topic: str) -> bool:
        return self._config.ships(topic)  # asked from the watcher's thread, and `reload` puts another in its place

    def _thread(self, name: str, target: Callable[[], None]) -> threading.Thread:
        def supervised() -> None:
            try:
                target()
            except BaseException as error:  # noqa: BLE001  (whatever it is, it ends the process)
                self._inbox.put(_Died(name, error))

        return threading.Thread(target=supervised, name=name, daemon=True)

    def _worker(self, name: str, tasks: WorkQueue[AnyTask], runner: TaskRunner) -> threading.Thread:
        def work() -> None:
            while (task := tasks.get()) is not None:
                if isinstance(task, Rescan):  # before its listing, which this lets count
                    self._inbox.put(LookDue(task.partition, task.generation))
                with self._progress.doing(type(task).__name__, task.partition):
                    result = runner.run(task)
                if result is not None:
                    self._inbox.put(result)

        return self._thread(name, work)

    def _shut_down(self) -> None:
        deadline = time.monotonic() + STOP_SECONDS
        self._stores.pace.close()
        self._uploads.close()
        self._commits.close()
        self._lookups.close()
        self._cache_objects.close()
        self._ends.close()
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
            # The process ends with them. An upload is one PUT: what is cut off never becomes an object, and the next
            # start ships it.
            log.warning("shutdown_timed_out", threads=running, seconds=STOP_SECONDS)
        else:
            self._stores.close()
