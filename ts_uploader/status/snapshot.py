"""How an agent does, for whoever asks: `/healthz`, `/readyz`, `/status.json`, and what the page at `/` shows.

Healthy means that no restart would help: every thread is alive, none stands still (`ts_uploader.progress`), the main
one comes round. That it is busy is no trouble: whoever asks for health does not wait for it. A store that is away, a
hole, a partition that waits are told, and are no reason to start the agent again.
Ready means that configuration, stores, log dirs and leadership source have each answered once.

Nothing here holds settings: what is told of partitions, errors and places is what the log says too.
"""

import heapq
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata

from ts_common.model import TopicPartition
from ts_common.printable import printable_json
from ts_uploader.environment import Environment
from ts_uploader.leadership.contract import LeadershipSource
from ts_uploader.log_dirs.segment_sizes import SegmentSizes
from ts_uploader.progress import Progress, Work
from ts_uploader.retention.topic_retention import TopicRetention
from ts_uploader.status.last_errors import LastError, LastErrors
from ts_uploader.tracking.backlog import Backlog, oldest_waiting
from ts_uploader.tracking.stuck import Stuck, StuckPartitions
from ts_uploader.work_queue import URGENT_BELOW

_TOGETHER = 100  # partitions in one piece of JSON


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition that this agent's broker leads; the names are those of the metrics.

    Attributes:
        topic: its topic.
        partition: its number.
        next_offset: the end of the run; None while it is not known.
        lag_offsets: from there to the high watermark; None while one of them is not known.
        unshipped_segments: closed segments that are not yet below the next offset.
        unshipped_bytes: of these.
        oldest_unshipped_age_seconds: of the oldest of these; 0.0 where there is none.
        retention_left_ratio: share of its retention that the oldest of these has left, 1.0 to 0.0; 1.0 without one.
        hole: whether nothing that the broker still holds continues the run.
        waits_for: what has to be so before the commit can move; None for nothing.
        stuck_seconds: since when nothing was committed; None where the partition is not stuck.
    """

    topic: str
    partition: int
    next_offset: int | None
    lag_offsets: int | None
    unshipped_segments: int
    unshipped_bytes: int
    oldest_unshipped_age_seconds: float
    retention_left_ratio: float
    hole: bool
    waits_for: str | None
    stuck_seconds: float | None = None

    @property
    def urgent(self) -> bool:
        """Whether Kafka may delete soon what is not shipped."""
        return self.unshipped_segments > 0 and self.retention_left_ratio < URGENT_BELOW

    @property
    def severity_key(self) -> tuple[bool, bool, float, bool, float, float, int]:
        """Trouble as an order: holes, what Kafka may delete soon, what is stuck, what waits, then the oldest."""
        waits = self.waits_for is not None
        return (
            self.hole,
            self.urgent,
            self.stuck_seconds or 0.0,
            waits,
            1.0 - self.retention_left_ratio,
            self.oldest_unshipped_age_seconds,
            self.unshipped_bytes,
        )


def partition_status(
    partition: TopicPartition, waiting: Backlog, retention: TopicRetention, sizes: SegmentSizes, stuck: Stuck | None
) -> PartitionStatus:
    """What is told of a partition; looks at its files."""
    oldest = oldest_waiting(waiting, retention, sizes)
    return PartitionStatus(
        topic=partition.topic,
        partition=partition.partition,
        next_offset=waiting.next_offset,
        lag_offsets=waiting.lag,
        unshipped_segments=waiting.segments,
        unshipped_bytes=0 if oldest is None else oldest.unshipped_bytes,
        oldest_unshipped_age_seconds=0.0 if oldest is None else round(oldest.age_seconds, 1),
        retention_left_ratio=1.0 if oldest is None else round(oldest.retention_left, 4),
        hole=waiting.hole,
        waits_for=waiting.waits_for if stuck is None else stuck.wait.text,
        stuck_seconds=None if stuck is None else round(stuck.seconds, 1),
    )


@dataclass(slots=True)
class Totals:
    """Of all partitions that the broker leads.

    Attributes:
        partitions: how many.
        holes: how many have one.
        urgent: how many have less than half of their retention left.
        waiting: how many wait for something.
        unshipped_segments: of all together, as the next.
        unshipped_bytes: in bytes.
        lag_offsets: where it is known.
    """

    partitions: int = 0
    holes: int = 0
    urgent: int = 0
    waiting: int = 0
    unshipped_segments: int = 0
    unshipped_bytes: int = 0
    lag_offsets: int = 0

    def add(self, status: PartitionStatus) -> None:
        """One more partition."""
        self.partitions += 1
        self.holes += status.hole
        self.urgent += status.urgent
        self.waiting += status.waits_for is not None
        self.unshipped_segments += status.unshipped_segments
        self.unshipped_bytes += status.unshipped_bytes
        self.lag_offsets += status.lag_offsets or 0


@dataclass(frozen=True, slots=True)
class StatusSnapshot:
    """All that is told but for the partitions.

    Attributes:
        now: when, seconds since the epoch, as `started`.
        started: when the agent was.
        version: of ts-uploader.
        cluster: its id.
        broker: its id.
        answered: for each thing that has to answer before the agent is ready, whether it did.
        leadership_connected: whether the source of leadership is being watched now.
        leadership_trouble: why it is not, where that is known.
        begun: whether the agent's threads run.
        answering: whether the main thread, which owns the tracker, comes round.
        led: partitions that the broker leads, as of its last round.
        dead: threads that ended.
        stuck: what stands still.
        works: what is being done.
        queues: tasks that wait, by kind.
        errors: the last ones.
        request_limit: requests per second that stores let the agent ask; None for no limit.
        upload_limit: bytes per second that the operator lets it send; None for no limit.
        stuck_partitions: those that are, also where nobody said who leads them.
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

    @property
    def healthy(self) -> bool:
        """Whether no restart would help."""
        return self.answering and not self.dead and not self.stuck

    @property
    def ready(self) -> bool:
        """Whether everything has answered once."""
        return all(self.answered.values())


@dataclass(frozen=True, slots=True)
class StatusSources:
    """The parts of an agent that are asked.

    Attributes:
        environment: whose broker.
        leadership: the source.
        progress: what the workers are at.
        errors: the last ones.
        retention: of a topic.
        backlog: answers with the tracker's; raises TimeoutError where the main thread does not come round.
        threads: all of the agent's.
        queues: by kind, what waits.
        looked_at: when the watcher last began to look at a directory, by the monotonic clock; None before that.
        scan_seconds: how long it waits at most between two looks.
        limits: requests per second, and bytes per second.
        sizes: of segments, for all who ask.
        stuck: the partitions that are.
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


@dataclass(slots=True)
class Status:
    """Tells of an agent; its main thread sets `begun` and `store_answered` and calls `note_round`, all others ask.

    Attributes:
        parts: what is asked.
        started: when, seconds since the epoch.
        begun: whether its threads run; before that none can be dead.
        store_answered: whether every store was found to be usable.
    """

    parts: StatusSources
    started: float = field(default_factory=time.time)
    begun: bool = False
    store_answered: bool = False
    _leadership_answered: bool = False
    _round_at: float = field(default_factory=time.monotonic)
    _led: int = 0

    @property
    def answering(self) -> bool:
        """Whether the main thread came round within `progress.bound_seconds`; before `begun` it need not."""
        return not self.begun or time.monotonic() - self._round_at < self.parts.progress.bound_seconds

    def note_round(self, led: int) -> None:
        """The main thread comes round.

        Args:
            led: partitions that the broker leads.
        """
        self._led, self._round_at = led, time.monotonic()

    def note_leadership(self) -> bool:
        """Whether the leadership source is being watched; remembered, so asked now and then."""
        connected = self.parts.leadership.connected
        self._leadership_answered = self._leadership_answered or connected
        return connected

    def backlog(self) -> Mapping[TopicPartition, Backlog]:
        """What waits; nothing where the main thread does not come round."""
        with suppress(TimeoutError):
            return self.parts.backlog() if self.begun else {}
        return {}

    def look(self) -> StatusSnapshot:
        """How the agent does; waits for nobody."""
        parts = self.parts
        connected = self.note_leadership()
        looked_at = parts.looked_at()
        requests, upload = parts.limits()
        return StatusSnapshot(
            now=time.time(),
            started=self.started,
            version=metadata.version("ts-uploader"),
            cluster=parts.environment.cluster_id,
            broker=parts.environment.broker_id,
            answered={
                "configuration": True,  # else there would be no agent
                "store": self.store_answered,
                "log_dirs": looked_at is not None,
                "leadership": self._leadership_answered,
            },
            leadership_connected=connected,
            leadership_trouble=None if connected else parts.leadership.trouble,
            begun=self.begun,
            answering=self.answering,
            led=self._led,
            dead=[thread.name for thread in parts.threads if self.begun and not thread.is_alive()],
            stuck=[*parts.progress.stuck(), *self._stuck_watcher(looked_at)],
            works=parts.progress.works(),
            queues={kind: count() for kind, count in parts.queues.items()},
            errors=parts.errors.newest(),
            request_limit=requests,
            upload_limit=upload,
            stuck_partitions=parts.stuck(),
        )

    def partitions(self, backlog: Mapping[TopicPartition, Backlog]) -> Iterator[PartitionStatus]:
        """What is told of each partition, one after the other: there may be many."""
        parts, stuck = self.parts, self.parts.stuck()
        for partition, waiting in backlog.items():
            retention = parts.retention(partition.topic)
            yield partition_status(partition, waiting, retention, parts.sizes, stuck.find(partition))

    def worst(self, backlog: Mapping[TopicPartition, Backlog], most: int) -> tuple[Totals, list[PartitionStatus]]:
        """What all partitions have together, and those in the most trouble, the worst first."""
        totals = Totals()

        def counted() -> Iterator[PartitionStatus]:
            for status in self.partitions(backlog):
                totals.add(status)
                yield status

        worst = heapq.nlargest(most, counted(), key=lambda status: status.severity_key)
        return totals, worst

    def _stuck_watcher(self, looked_at: float | None) -> list[Work]:
        """The watcher, where it does not come back from a disk."""
        bound = self.parts.progress.bound_seconds + self.parts.scan_seconds
        if not self.begun or looked_at is None or time.monotonic() - looked_at < bound:
            return []
        return [Work("watcher", "LookAtLogDirs", TopicPartition("", -1), looked_at, looked_at)]


def health_facts(look: StatusSnapshot) -> dict[str, object]:
    """What `/healthz` tells beside its status."""
    return {
        "phase": "running" if look.begun else "starting",
        "tracker_answers": look.answering,
        "leadership": "watched" if look.leadership_connected else "unknown",
        "leadership_trouble": look.leadership_trouble,
        "dead_threads": list(look.dead),
        "stuck": [work.thread for work in look.stuck],
    }


def status_json(status: Status) -> Iterator[bytes]:
    """The object of `/status.json` in pieces: ten thousand partitions never stand in memory as text."""
    backlog, look = status.backlog(), status.look()
    head = {
        "version": look.version,
        "cluster": look.cluster,
        "broker": look.broker,
        "started": _iso(look.started),
        "time": _iso(look.now),
        "ready": look.ready,
        "healthy": look.healthy,
        "answered": dict(look.answered),
        **health_facts(look),
        "log_dirs": [str(log_dir) for log_dir in status.parts.environment.log_dirs],
        "queue_length": sum(look.queues.values()),
        "queues": dict(look.queues),
        "working": [
            {
                "thread": work.thread,
                "operation": work.operation,
                "partition": str(work.partition),
                "seconds": round(time.monotonic() - work.began_at, 1),
            }
            for work in look.works
        ],
        "request_limit": look.request_limit,
        "upload_limit_bytes_per_second": look.upload_limit,
        "stuck": len(look.stuck_partitions),
        "stuck_partitions": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "reason": stuck.wait.reason.value,
                "waits_for": stuck.wait.text,
                "seconds": round(stuck.seconds, 1),
            }
            for partition, stuck in look.stuck_partitions.longest()
        ],
        "last_errors": [{**asdict(error), "time": _iso(error.time)} for error in look.errors],
    }
    yield f'{printable_json(json.dumps(head))[:-1]}, "partitions": ['.encode()
    totals = Totals()
    lines: list[str] = []
    before = "\n"
    for partition in status.partitions(backlog):
        totals.add(partition)
        lines.append(printable_json(json.dumps(asdict(partition))))
        if len(lines) == _TOGETHER:
            yield (before + ",\n".join(lines)).encode()
            before = ",\n"
            lines.clear()
    if lines:
        yield (before + ",\n".join(lines)).encode()
    yield f'], "totals": {json.dumps(asdict(totals))}}}\n'.encode()


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
