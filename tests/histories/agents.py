"""Real agents on the model's brokers: tracker, uploader and commits. The test controls time and threads.

While a task is under way, its agent can receive an event, begin another task (agents have many threads), or die.
"""

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from tests.histories.clock import Clock
from tests.histories.cluster import Cluster, Topic
from tests.histories.replica import Replica
from ts_common.archive.metadata_cache import CacheEntry
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.config.cluster_config import OffsetReset
from ts_common.errors import TieredStorageError
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.log_dirs.directory_scan import CheckpointReader, is_unchanged, list_partition
from ts_uploader.messages.observations import (
    Answered,
    DirectoryDeleted,
    Leadership,
    Led,
    Listing,
    NotLed,
    Observation,
)
from ts_uploader.messages.results import LookDue, PositionRead
from ts_uploader.messages.tasks import AnyTask, ReadPosition, Rescan, ShipDeleted, Task
from ts_uploader.metrics.counters import Metrics
from ts_uploader.retention.topic_retention import TopicRetention
from ts_uploader.shipping.deleted_directory import DeletedShipper
from ts_uploader.shipping.metadata_cache_writer import write_cache_object
from ts_uploader.shipping.repairer import Repairer
from ts_uploader.shipping.uploader import Uploader
from ts_uploader.tracking.tracker import Tracker
from ts_uploader.workers.task_runner import TaskRunner

TP = TopicPartition("t", 0)
CLUSTER = ClusterKeys("c")
METRICS = Metrics()
T = TypeVar("T")
_LOOKS = 3  # the watcher's are ten
_GATHERING_SECONDS = 0.1  # the watcher's, between two listings


class Killed(BaseException):
    """The process of the task's agent has ended."""


@dataclass
class Work:
    """A task under way.

    Attributes:
        agent: that runs it.
        life: number of the agent's process; if the agent has another one by now, this one was killed.
        task: that runs.
        topic: the task's; the living one without a task.
        replica: of the broker and the topic, when it began.
        starts: every log start offset of the broker since.
        epochs: every epoch that its checkpoint ended with since.
        known: every log start offset, with the list of epochs at that time.
    """

    agent: "Agent"
    life: int
    task: AnyTask | None
    topic: Topic
    replica: Replica
    starts: set[int] = field(default_factory=set)
    epochs: set[int] = field(default_factory=set)
    known: set[tuple[int, tuple[tuple[int, int], ...]]] = field(default_factory=set)

    def look(self) -> None:
        """Record the present state of the broker's log."""
        self.starts.add(self.replica.start)
        self.known.add((self.replica.start, tuple(self.replica.epochs)))
        if self.replica.epochs:
            self.epochs.add(self.replica.epochs[-1][0])


class CacheObjectsAtOnce:
    """Writes segment metadata at each commit; the store may fail it."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def committed(self, keys: PartitionKeys, next_offset: int, _: int, own: Sequence[CacheEntry] = ()) -> None:
        """Write as the writer's thread does, which ignores failures."""
        with suppress(TieredStorageError):
            write_cache_object(self._store, keys, next_offset, own=own)


class Agent:
    """One agent on one broker.

    Args:
        cluster: the model.
        broker: which of its brokers.
        store: shared by all agents.
        clock: of the host.
        stack: the tasks under way of all agents; the innermost is last.
        reset: where an archive begins.
        has_tail: it names the live tail in commits.
    """

    def __init__(
        self,
        cluster: Cluster,
        broker: int,
        store: ObjectStore,
        clock: Clock,
        stack: list[Work],
        reset: OffsetReset,
        *,
        has_tail: bool = False,
    ) -> None:
        self._cluster = cluster
        self.broker = broker
        self._store = store
        self._clock = clock
        self._stack = stack
        self._reset = reset
        self._log = str(broker) if has_tail else None
        self._lives = itertools.count()
        self.tasks: list[AnyTask] = []
        self.restart()

    def restart(self) -> None:
        """Drop all state of the process; its tasks end at their next call."""
        self.life = next(self._lives)
        self.tracker = Tracker(self._reset, has_tail=lambda _: self._log is not None)
        self.tasks.clear()
        self._listing: Listing | None = None
        self._answers: list[Answered] = []
        self._checkpoint = CheckpointReader(self._cluster.brokers[self.broker].path.parent)
        self.told: set[str] = set()  # topic ids whose `-delete` directory this process reported
        self.asked: dict[int, int] = {}  # the log's start at the last successful read, by epoch
        self.listed: list[tuple[int, int]] = []  # whole listings: when, and the lowest live base
        uploader = Uploader(lambda _: self._store, lambda _: TopicRetention(compacted=True))
        commits = CommitLog(CLUSTER, self.broker, lambda _: self._store, tail_log=lambda _: self._log)
        self._runner = TaskRunner(
            uploader,
            commits,
            self,  # type: ignore[arg-type]
            METRICS,
            CacheObjectsAtOnce(self._store),  # type: ignore[arg-type]
            Repairer(CLUSTER, self.broker, lambda _: self._store, uploader),
            DeletedShipper(self.broker, lambda _: self._store, uploader, commits, self._cluster.is_deleted),
        )

    def hint(self, partition: TopicPartition, *, whole: bool = False) -> None:
        """List for a rescan of the runner, at once."""
        assert partition == TP
        for _ in range(_LOOKS if whole else 1):
            self._list()
            if self._listing is not None and self._listing.whole:
                break

    def see_directory(self) -> None:
        """Scan the log dir, which skips a directory that did not change."""
        if self._listing is None or not is_unchanged(self._listing, str(self._listing.directory)):
            self._list()

    def _list(self) -> None:
        if self._looks():
            return
        directory = self._cluster.brokers[self.broker].path
        life = self.life
        self._clock.tick(_GATHERING_SECONDS)
        self._see_deleted()
        # During the scan the process can end.
        listing = self._alone(None, lambda: list_partition(TP, directory.parent, earlier=self._listing))
        if listing is not None and life == self.life:
            self._listing = listing
            if listing.bases and listing.whole:
                self.listed.append((listing.taken_at, listing.bases[0]))
            self._observe(listing)

    def _see_deleted(self) -> None:
        """Report the new `-delete` directories, as the watcher does before it reports the live one."""
        for topic_id, replicas in self._cluster.deleted.items():
            path = replicas[self.broker].path
            if topic_id in self.told or not path.exists():
                continue
            self.told.add(topic_id)
            listing = list_partition(TP, path.parent, path.name)
            assert listing is not None
            self._observe(DirectoryDeleted(listing, None))

    def see_checkpoint(self) -> None:
        """Read the broker's high watermark checkpoint."""
        if self._looks():
            return
        life = self.life
        unsettled = self.tracker.unsettled
        found = self._alone(None, lambda: self._checkpoint.read(unsettled))
        if found is not None and life == self.life:
            self._observe(found)

    def request_high_watermark(self) -> None:
        """Request the high watermark in the epoch of the last listing; the answer can arrive much later."""
        epoch = None if self._listing is None else self._listing.last_epoch.epoch
        answer = None if epoch is None else self._cluster.answer(self.broker, epoch)
        if self._listing is not None and epoch is not None and answer is not None:
            self._answers.append(Answered(TP, epoch, self._listing.identity, answer))

    def see_answer(self, index: int) -> None:
        """Receive one of the answers."""
        if self._answers:
            self._observe(self._answers.pop(index % len(self._answers)))

    def _looks(self) -> bool:
        """Whether its watcher, which is one thread, is busy."""
        return any(work.agent is self and work.task is None and work.life == self.life for work in self._stack)

    def see_leadership(self) -> None:
        """Report the leader, as the leadership source does."""
        if self._cluster.leader == self.broker:
            self._observe(Led(TP, Leadership(self._cluster.epoch, self._cluster.topic.topic_id, self._clock.wall())))
        else:
            self._observe(NotLed(TP))

    def see(self) -> None:
        """Observe leadership, directory and checkpoint."""
        self.see_leadership()
        self.see_directory()
        self.see_checkpoint()

    def work(self, index: int) -> str | None:
        """Run one of the waiting tasks; return its name and result."""
        if not self.tasks:
            return None
        task = self.tasks.pop(index % len(self.tasks))
        if isinstance(task, Rescan):
            self._clock.tick(task.after_seconds)
            self.tasks += self.tracker.conclude(LookDue(task.partition, task.generation))
        if isinstance(task, ShipDeleted):
            self._clock.tick(task.after_seconds)
        tracker = self.tracker
        result = self._alone(task, lambda: self._runner.run(task))
        if isinstance(result, PositionRead) and self.tracker is tracker:
            self.asked[result.leadership.epoch] = self._cluster.brokers[self.broker].start
        if result is not None and self.tracker is tracker:
            self.tasks += tracker.conclude(result)
        reason = getattr(result, "reason", "")
        assert not reason.startswith("a defect"), reason  # the runner catches a failed check too
        return f"{type(task).__name__} -> {type(result).__name__} {reason}".rstrip()

    def pending_retries(self) -> int:
        """Return the waiting reads and rescans."""
        return sum(isinstance(task, ReadPosition | Rescan | ShipDeleted) for task in self.tasks)

    def _alone(self, task: AnyTask | None, do: Callable[[], T]) -> T | None:
        named = task.leadership.topic_id if isinstance(task, Task) else self._cluster.topic.topic_id
        (topic,) = (each for each in self._cluster.topics if each.topic_id == named)
        work = Work(self, self.life, task, topic, self._cluster.replica_of(self.broker, topic.topic_id))
        work.look()
        self._stack.append(work)
        try:
            return do()
        except Killed:
            return None
        finally:
            self._stack.pop()

    def _observe(self, event: Observation) -> None:
        self.tasks += self.tracker.observe(event)
