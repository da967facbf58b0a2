"""The main loop: it reads the inbox and owns the tracker.

Watcher and leadership source put observations into the inbox, workers put results. The loop gives each of them to the
tracker, and puts the tasks that the tracker returns into the queues.
"""

import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

import structlog

from ts_common.model import TopicPartition
from ts_uploader.log_dirs.segment_sizes import SegmentSizes
from ts_uploader.messages.observations import DirectoryGone, EarlyRequest, Listing, Observation, SeveralDirectories
from ts_uploader.messages.results import Result
from ts_uploader.retention.known_settings import Settings
from ts_uploader.retention.topic_retention import BrokerSettings, TopicSettings
from ts_uploader.status.last_errors import LastErrors
from ts_uploader.tracking.backlog import Backlog
from ts_uploader.tracking.contained_tracker import ContainedTracker
from ts_uploader.workers.task_queues import TaskQueues

log = structlog.get_logger()

_TICK_SECONDS = 2.0
_READ_AT_TICK = 2  # positions that were deferred: those of ten thousand partitions within three hours
_WATCH_SECONDS = 0.5  # between calls of `watch`, each with all partitions: a start finds ten thousand one by one


@dataclass(frozen=True, slots=True)
class ThreadDied:
    """A thread ended by an exception."""

    thread: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class StopRequest:
    """The agent has to end."""

    reason: str


@dataclass(frozen=True, slots=True)
class ReloadRequest:
    """The agent has to read its configuration again."""


@dataclass(frozen=True, slots=True)
class BacklogRequest:
    """Another thread needs the backlog of all partitions.

    Attributes:
        exact: as in `ContainedTracker.backlog`.
    """

    exact: bool = False
    answer: "Future[Mapping[TopicPartition, Backlog]]" = field(default_factory=Future)


Inbox = queue.SimpleQueue[object]


def supervised_thread(name: str, target: Callable[[], None], inbox: Inbox) -> threading.Thread:
    """Return a daemon thread, not started, that reports to the inbox the exception that ends it."""

    def run() -> None:
        try:
            target()
        except BaseException as error:  # noqa: BLE001 - each of them ends the process
            inbox.put(ThreadDied(name, error))

    return threading.Thread(target=run, name=name, daemon=True)


class MainLoop:
    """One loop, run by one thread.

    Attributes:
        local: partitions with a directory in this broker's log dirs.

    Args:
        inbox: where messages arrive.
        tracker: decides what to do; only this loop calls it.
        queues: receive the tracker's tasks.
        settings: of the broker and its topics, updated by messages of the leadership source.
        sizes: of segments, forgotten with their directory.
        errors: keeps the failures of tasks for the status page.
        watch: has the leadership source report these partitions.
        look_at: receives each partition whose directory was listed, as `LeadershipSource.look_at`.
        tick: runs every two seconds.
    """

    def __init__(
        self,
        inbox: Inbox,
        tracker: ContainedTracker,
        queues: TaskQueues,
        settings: Settings,
        sizes: SegmentSizes,
        errors: LastErrors,
        *,
        watch: Callable[[frozenset[TopicPartition]], None],
        look_at: Callable[[TopicPartition], None],
        reload: Callable[[], None],
        tick: Callable[[], None],
    ) -> None:
        self.local: set[TopicPartition] = set()
        self._local_changed = False
        self._inbox = inbox
        self._tracker = tracker
        self._queues = queues
        self._settings = settings
        self._sizes = sizes
        self._errors = errors
        self._watch = watch
        self._look_at = look_at
        self._reload = reload
        self._tick = tick

    def run(self) -> None:
        """Handle messages until a `StopRequest`.

        Raises:
            BaseException: a thread of the agent ended with it.
        """
        next_tick = next_watch = time.monotonic()
        while True:
            due = min(next_tick, next_watch) if self._local_changed else next_tick
            try:
                message = self._inbox.get(timeout=max(0.0, due - time.monotonic()))
            except queue.Empty:
                pass
            else:
                if isinstance(message, StopRequest):
                    log.info("agent_stopping", reason=message.reason)
                    return
                self._handle(message)
            if self._local_changed and time.monotonic() >= next_watch:
                self._local_changed = False
                self._watch(frozenset(self.local))
                next_watch = time.monotonic() + _WATCH_SECONDS
            if time.monotonic() >= next_tick:
                if not self._local_changed:  # the leadership source has the present set of partitions
                    self._tracker.forget_absent()
                self._queues.put(self._tracker.tick(time.monotonic_ns()))
                self._queues.put(self._tracker.read_deferred(_READ_AT_TICK))
                self._tick()
                next_tick = time.monotonic() + _TICK_SECONDS

    def _handle(self, message: object) -> None:
        if isinstance(message, Observation):
            self._note_directory(message)
            self._queues.put(self._tracker.observe(message))
        elif isinstance(message, Result):
            self._errors.take(message)
            self._queues.put(self._tracker.conclude(message))
        elif isinstance(message, BrokerSettings | TopicSettings):
            self._settings.take(message)
        elif isinstance(message, ReloadRequest):
            self._reload()
        elif isinstance(message, BacklogRequest):
            message.answer.set_result(self._tracker.backlog(exact=message.exact))
        elif isinstance(message, EarlyRequest):
            self._queues.put(self._tracker.read_now(message.partitions))
            for partition in message.partitions:
                self._queues.advance_lookups(partition)
        elif isinstance(message, ThreadDied):
            log.error("thread_died", message="the process ends", thread=message.thread, error=repr(message.error))
            raise message.error

    def _note_directory(self, message: Observation) -> None:
        if isinstance(message, Listing | SeveralDirectories):
            self._look_at(message.partition)
            if message.partition not in self.local:
                self.local.add(message.partition)
                self._local_changed = True
        elif isinstance(message, DirectoryGone):
            self.local.discard(message.partition)
            self._sizes.forget(message.partition)
            self._queues.drop_uploads(message.partition)
            self._local_changed = True
