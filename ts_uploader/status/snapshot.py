"""The state of an agent, for `/healthz`, `/readyz`, `/status.json` and the page at `/`.

Healthy: a restart would not help. Every thread is alive, each worker makes progress (`ts_uploader.process.progress`),
and the main thread completes its rounds. A request for health never waits for the agent's work. An unavailable store, a
hole or a blocked partition is reported, but does not make the agent unhealthy.
Ready: configuration, stores, log dirs and leadership source have each answered once, and nothing prevents the agent as
a whole from shipping (`ts_uploader.health.conditions`).
"""

import heapq
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from ts_common.installed import version
from ts_common.model import TopicPartition
from ts_uploader.environment import Environment
from ts_uploader.health.conditions import AgentState, Facts, state_of
from ts_uploader.health.store_health import StoreHealth
from ts_uploader.health.tail_state import TailState
from ts_uploader.leadership.contract import LeadershipSource
from ts_uploader.log_dirs.segment_sizes import SegmentSizes
from ts_uploader.process.progress import Progress, Shipping, Work
from ts_uploader.retention.topic_retention import TopicRetention
from ts_uploader.status.last_errors import LastError, LastErrors
from ts_uploader.status.partition_status import PartitionStatus, Totals, partition_status
from ts_uploader.tracking.backlog import Backlog
from ts_uploader.tracking.stuck import StuckPartitions, Waiting

_COUNT_SECONDS = 10.0  # between two counts for a scrape


@dataclass(frozen=True, slots=True)
class StatusSnapshot:
    """The agent's state at one moment, without its partitions.

    Attributes:
        now: time of the snapshot, seconds since the epoch.
        started: start of the agent, seconds since the epoch.
        answered: for each dependency of readiness, whether it has answered once.
        leadership_connected: whether the leadership source is connected now.
        leadership_trouble: the reason if it is not, where one is known.
        begun: whether the agent's threads run.
        answering: whether the main thread, which owns the tracker, completes its rounds.
        led: partitions that the broker leads, as of the last round.
        dead: names of threads that ended.
        stuck: tasks without progress.
        queues: number of queued tasks, by kind.
        request_limit: requests per second that the stores' throttling allows; None for no limit.
        upload_limit: bytes per second that the operator allows; None for no limit.
        stuck_partitions: stuck partitions, including those without a reported leader.
        tail: how each log of the live tail is doing; empty without one.
        state: of the agent as a whole.
    """

    now: float
    started: float
    version: str
    cluster: str
    broker: int
    answered: Mapping[str, bool]
    leadership_connected: bool
    leadership_trouble: str | None
    begun: bool
    answering: bool
    led: int
    dead: Sequence[str]
    stuck: Sequence[Work]
    works: Sequence[Work]
    queues: Mapping[str, int]
    errors: Sequence[LastError]
    request_limit: float | None
    upload_limit: float | None
    stuck_partitions: StuckPartitions
    tail: Sequence[TailState]
    state: AgentState

    @property
    def healthy(self) -> bool:
        """Whether a restart would not help."""
        return self.answering and not self.dead and not self.stuck

    @property
    def answers(self) -> Mapping[str, bool]:
        """Whether each dependency of readiness has answered, and does not fail now."""
        return {name: answered and name != self.state.fails for name, answered in self.answered.items()}

    @property
    def ready(self) -> bool:
        """Whether every dependency has answered once, and nothing prevents the agent from shipping."""
        return all(self.answered.values()) and self.state.is_ready


@dataclass(frozen=True, slots=True)
class StatusSources:
    """The parts of an agent that its status is read from.

    Attributes:
        retention: returns a topic's retention.
        backlog: returns the tracker's backlog; raises TimeoutError if the main thread does not answer.
        threads: all of the agent's.
        queues: returns the number of queued tasks, by kind.
        looked_at: returns when the watcher last began to read a directory, by the monotonic clock; None before that.
        scan_seconds: longest time between two scans of the watcher.
        limits: returns requests per second and bytes per second.
        sizes: of segments; one cache for all users.
        stuck: returns the stuck partitions.
        waiting: returns what has waited longest.
        unreported: returns the number of partitions whose leader was not reported for a minute.
        snapshots: returns why metadata snapshots fail; None while they do not.
        tail: returns how each log of the live tail is doing; empty without one.
    """

    environment: Environment
    leadership: LeadershipSource
    progress: Progress
    errors: LastErrors
    retention: Callable[[str], TopicRetention]
    backlog: Callable[[], Mapping[TopicPartition, Backlog]]
    threads: Sequence[threading.Thread]
    queues: Mapping[str, Callable[[], int]]
    looked_at: Callable[[], float | None]
    scan_seconds: float
    limits: Callable[[], tuple[float | None, float | None]]
    sizes: SegmentSizes = field(default_factory=SegmentSizes)
    stuck: Callable[[], StuckPartitions] = StuckPartitions
    waiting: Callable[[], Waiting | None] = lambda: None
    unreported: Callable[[], int] = int
    snapshots: Callable[[], str | None] = lambda: None
    tail: Callable[[], Sequence[TailState]] = tuple
    health: StoreHealth = field(default_factory=StoreHealth)
    shipping: Shipping = field(default_factory=Shipping)


@dataclass(slots=True)
class AgentStatus:
    """The agent's status; the main thread writes it, all threads read it.

    The main thread sets `begun` and `store_answered`, and calls `note_round`.

    Attributes:
        sources: where the status is read from.
        started: start of the agent, seconds since the epoch.
        begun: whether the agent's threads run; before that no thread counts as dead.
        store_answered: whether every store was found to be usable.
    """

    sources: StatusSources
    started: float = field(default_factory=time.time)
    begun: bool = False
    store_answered: bool = False
    _leadership_answered: bool = False
    _started_at: float = field(default_factory=time.monotonic)  # a clock that is set does not change it
    _round_at: float = field(default_factory=time.monotonic)
    _led: int = 0
    _connected_at: float = field(default_factory=time.monotonic)  # the source of leadership was connected
    _broker_at: float = field(default_factory=time.monotonic)  # and the broker was there
    _totals: Totals = field(default_factory=Totals)  # as of the last page, `/status.json` or scrape
    _counted_at: float = float("-inf")

    @property
    def answering(self) -> bool:
        """Whether the last round ended within `progress.bound_seconds`; True before `begun`."""
        return not self.begun or time.monotonic() - self._round_at < self.sources.progress.bound_seconds

    def note_round(self, led: int) -> None:
        """Record a round of the main thread."""
        self._led, self._round_at = led, time.monotonic()

    def note_leadership(self) -> bool:
        """Return whether the leadership source is connected; remembers the first time for `ready`."""
        leadership, now = self.sources.leadership, time.monotonic()
        connected = leadership.connected
        if connected:
            self._connected_at = now
            if not leadership.broker_away:
                self._broker_at = now
        self._leadership_answered = self._leadership_answered or connected
        return connected

    @property
    def seconds_without_leadership(self) -> float:
        """The seconds since the source of leadership was connected, or since the start; 0 while it is."""
        return 0.0 if self.sources.leadership.connected else time.monotonic() - self._connected_at

    def backlog(self) -> Mapping[TopicPartition, Backlog]:
        """Return the backlog of each partition; empty if the main thread does not answer."""
        with suppress(TimeoutError):
            return self.sources.backlog() if self.begun else {}
        return {}

    def snapshot(self) -> StatusSnapshot:
        """Return a snapshot; never blocks."""
        sources = self.sources
        connected = self.note_leadership()
        looked_at = sources.looked_at()
        requests, upload = sources.limits()
        answered = {
            "configuration": True,  # else there would be no agent
            "store": self.store_answered,
            "log_dirs": looked_at is not None,
            "leadership": self._leadership_answered,
        }
        dead = [thread.name for thread in sources.threads if self.begun and not thread.is_alive()]
        stuck = [*sources.progress.stuck(), *self._stuck_watcher(looked_at)]
        return StatusSnapshot(
            now=time.time(),
            started=self.started,
            version=version(),
            cluster=sources.environment.cluster_id,
            broker=sources.environment.broker_id,
            answered=answered,
            leadership_connected=connected,
            leadership_trouble=None if connected else sources.leadership.trouble,
            begun=self.begun,
            answering=self.answering,
            led=self._led,
            dead=dead,
            stuck=stuck,
            works=sources.progress.works(),
            queues={kind: count() for kind, count in sources.queues.items()},
            errors=sources.errors.newest(),
            request_limit=requests,
            upload_limit=upload,
            stuck_partitions=sources.stuck(),
            tail=tuple(sources.tail()),
            state=state_of(self._facts(answered, dead, stuck, requests)),
        )

    def partitions(self, backlog: Mapping[TopicPartition, Backlog]) -> Iterator[PartitionStatus]:
        """Yield the status of each partition."""
        sources, stuck = self.sources, self.sources.stuck()
        for partition, waiting in backlog.items():
            retention = sources.retention(partition.topic)
            yield partition_status(partition, waiting, retention, sources.sizes, stuck.find(partition))

    def count(self, backlog: Mapping[TopicPartition, Backlog]) -> None:
        """Count what the state of the agent needs of all partitions; reads their files, unless that was just done."""
        if time.monotonic() - self._counted_at >= _COUNT_SECONDS:
            self.worst(backlog, 0)

    def worst(self, backlog: Mapping[TopicPartition, Backlog], most: int) -> tuple[Totals, list[PartitionStatus]]:
        """Return the totals over all partitions, and the `most` partitions in the most trouble, the worst first."""
        totals = self._totals = Totals()
        self._counted_at = time.monotonic()

        def counted() -> Iterator[PartitionStatus]:
            for status in self.partitions(backlog):
                totals.add(status)
                yield status

        worst = heapq.nlargest(most, counted(), key=lambda status: status.severity_key)
        return totals, worst

    def _facts(
        self, answered: Mapping[str, bool], dead: Sequence[str], stuck: Sequence[Work], requests: float | None
    ) -> Facts:
        sources, now = self.sources, time.monotonic()
        leadership = sources.leadership
        is_away = not leadership.connected or leadership.broker_away
        hangs = None
        if not self.answering:
            hangs = "The agent's main thread does not answer: restart the agent."
        elif dead:
            hangs = f"Thread {dead[0]} is dead: the agent ends."
        elif stuck:
            hangs = f"Thread {stuck[0].thread} makes no progress: restart the agent."
        return Facts(
            running=now - self._started_at,
            hangs=hangs,
            failing=sources.health.failing(),
            now=now,
            silent=sources.health.silent(sources.progress.excused_at),
            unanswered=[name for name, has_answered in answered.items() if not has_answered],
            away=now - min(self._connected_at, self._broker_at) if is_away else None,
            broker_away=leadership.broker_away,
            away_reason=leadership.trouble,
            deletions=sources.errors.deletions,
            holes=self._totals.holes,
            urgent=self._totals.urgent,
            stuck=len(sources.stuck()),
            blocked=self._totals.waiting,
            unreported=sources.unreported(),
            uploads=sources.progress.uploads,
            waiting=sources.waiting(),
            throttled=requests,
            snapshots=sources.snapshots(),
            tail=next((late for each in sources.tail() if (late := each.late) is not None), None),
        )

    def _stuck_watcher(self, looked_at: float | None) -> list[Work]:
        """Return the watcher's scan if it does not return from a disk."""
        bound = self.sources.progress.bound_seconds + self.sources.scan_seconds
        if not self.begun or looked_at is None or time.monotonic() - looked_at < bound:
            return []
        return [Work("watcher", "LookAtLogDirs", TopicPartition("", -1), looked_at, looked_at)]
