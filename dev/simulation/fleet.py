"""The brokers of a fleet with their agents: segments close, leaders move, agents ship.

Listings and high watermarks are messages: a listing after each change, a high watermark with each checkpoint. Only
partitions that changed get them, and only from their leader, because nothing else makes an agent act.
"""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from random import Random
from unittest.mock import patch

from dev.simulation.clock import Clock
from dev.simulation.cloud import CLUSTER, UPLOAD_THREADS, BrokerStore, Cloud, GatedStore
from dev.simulation.log_files import TOPIC_ID, LogFiles
from dev.simulation.scenarios import Scenario
from ts_common.archive.object_keys import ClusterKeys
from ts_common.config.cluster_config import OffsetReset
from ts_common.model import TopicPartition
from ts_common.store.wrappers.request_rate import Pace
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.log_dirs import directory_scan, local_log, segment_file
from ts_uploader.messages.observations import HighWatermarks, Leadership, Led, Listing, NotLed, PartitionEvent
from ts_uploader.messages.results import Committed, Failed, LookDue, PositionRead, Result
from ts_uploader.messages.tasks import AnyTask, Rescan
from ts_uploader.metrics.counters import Metrics
from ts_uploader.process.work_queue import WorkQueue
from ts_uploader.retention.topic_retention import TopicRetention
from ts_uploader.shipping import coverage
from ts_uploader.shipping.deleted_directory import DeletedShipper
from ts_uploader.shipping.metadata_cache_writer import CacheWriter
from ts_uploader.shipping.repairer import Repairer
from ts_uploader.shipping.uploader import Uploader
from ts_uploader.stores.topic_stores import COMMIT_THREADS
from ts_uploader.tracking.high_watermarks import OTHER_FILES
from ts_uploader.tracking.task_selection import CHECKPOINT_SECONDS
from ts_uploader.tracking.tracker import Tracker
from ts_uploader.workers.task_queues import TaskQueues
from ts_uploader.workers.task_runner import TaskRunner

_LOOKUP_THREADS = 8
_PARTITIONS_PER_TOPIC = 64
_START_SECONDS = 300.0  # within which all agents start
_LOOK_SECONDS = 0.05  # from a change of a directory to its listing
_LEADERSHIP_SECONDS = (0.05, 1.0)  # from an election to its message
_ELECTION_SECONDS = 5.0  # within which the leaders move
_JITTER = 0.1  # of a segment's time
_METRICS = Metrics()


class Partition:
    """A partition and its log.

    Attributes:
        replicas: brokers; the first one leads, the other one can follow it.
        end: log end offset; the active segment begins there. Closed ones have one record each.
        epochs: (leader epoch, first offset).
        closed: when segments closed whose commit is pending, by the offset after them.
        committed: next offset of the newest commit.
        elected: when the leader was elected whose agent has not read the position yet.
    """

    def __init__(self, name: TopicPartition, number: int, replicas: list["Broker"]) -> None:
        self.name = name
        self.number = number
        self.replicas = replicas
        self.end = 0
        self.epochs: tuple[tuple[int, int], ...] = ((0, 0),)
        self.closed: dict[int, float] = {}
        self.committed = 0
        self.elected: float | None = None


class Broker:
    """A broker and its agent."""

    def __init__(self, number: int, fleet: "Fleet", scenario: Scenario, cloud: Cloud) -> None:
        self.number = number
        self._fleet = fleet
        self._clock = cloud.clock
        self.log_dir = Path(f"/broker-{number}")
        self._file = (0, 0, 0)  # the status of its high watermark checkpoint
        self._phase = CHECKPOINT_SECONDS * number / scenario.sampled_brokers  # brokers write theirs at different times
        self._changed: dict[TopicPartition, int] = {}  # how many checkpoints their agent still needs
        self._tracker = Tracker(OffsetReset.EARLIEST)
        with self._clock.waits():
            pace = Pace()
            store = GatedStore(BrokerStore(scenario, cloud), pace)
            self._queues = TaskQueues(lambda _: None)
            cache_objects = CacheWriter(lambda _: store, lambda: pace.is_throttled)
        keys = ClusterKeys(CLUSTER, scenario.entropy_bits)
        uploader = Uploader(lambda _: store, lambda _: TopicRetention())
        commits = CommitLog(keys, number, lambda _: store)
        repairer = Repairer(keys, number, lambda _: store, uploader)
        deleted = DeletedShipper(number, lambda _: store, uploader, commits, lambda *_: False)
        self._runner = TaskRunner(uploader, commits, self, _METRICS, cache_objects, repairer, deleted)  # type: ignore[arg-type]
        queues = self._queues
        for queue, threads in (
            (queues.lookups, _LOOKUP_THREADS),
            (queues.commits, COMMIT_THREADS),
            (queues.uploads, UPLOAD_THREADS),
        ):
            for _ in range(threads):
                self._clock.spawn(partial(self._clock.serve, partial(self._work, queue)))
        self._clock.spawn(partial(self._clock.serve, cache_objects.run))

    def hint(self, partition: TopicPartition, *, whole: bool = False) -> None:
        """List a directory again, for a rescan of the runner."""
        del whole
        self._clock.at(self._clock.now + _LOOK_SECONDS, partial(self.look, self._fleet.partitions[partition]))

    def look(self, partition: Partition) -> None:
        """Report the listing of a partition's directory."""
        self._observe(self.listing(partition))

    def listing(self, partition: Partition) -> Listing:
        """Return the listing of a partition's directory now."""
        path, last_epoch = self._fleet.files.directory(partition.epochs)
        return Listing(
            partition.name,
            (self.number, partition.number),
            self.log_dir,
            tuple(range(partition.end + 1)),
            (),
            swapping=False,
            topic_id=TOPIC_ID,
            taken_at=time.monotonic_ns(),
            last_epoch=last_epoch,
            checkpoint=self._file,
            whole=True,
            renamed=str(path),  # not below the log dir: partitions share directories
        )

    def lead(self, partition: Partition) -> None:
        """Report who leads a partition."""
        if partition.replicas[0] is self:
            leadership = Leadership(partition.epochs[-1][0], TOPIC_ID, time.time_ns())
            self._observe(Led(partition.name, leadership))
        else:
            self._observe(NotLed(partition.name))

    def change(self, partition: Partition, checkpoints: int) -> None:
        """Have a partition's high watermark in the next checkpoints."""
        if not self._changed:
            left = CHECKPOINT_SECONDS - (self._clock.now - self._phase) % CHECKPOINT_SECONDS
            self._clock.at(self._clock.now + left, self._checkpoint)
        self._changed[partition.name] = max(checkpoints, self._changed.get(partition.name, 0))

    def _checkpoint(self) -> None:
        """Write the high watermark checkpoint, and report it."""
        written = time.time_ns()
        self._file = (self._file[0] + 1, written, written)
        partitions = self._fleet.partitions
        offsets = {(name.topic, name.partition): partitions[name].end for name in self._changed}
        reading = HighWatermarks(self.log_dir, (self._file, self._file[0]), offsets)
        self._tracker.note_checkpoint(reading)
        for name in self._changed:
            self._queues.put(self._tracker.take_high_watermark(name, reading))
        self._changed = {name: left - 1 for name, left in self._changed.items() if left > 1}
        if self._changed:
            self._clock.at(self._clock.now + CHECKPOINT_SECONDS, self._checkpoint)

    def _observe(self, event: PartitionEvent) -> None:
        self._queues.put(self._tracker.observe(event))

    def _work(self, queue: WorkQueue[AnyTask]) -> None:
        while (task := queue.get()) is not None:
            if isinstance(task, Rescan):
                self._queues.put(self._tracker.conclude(LookDue(task.partition, task.generation)))
            result = self._runner.run(task)
            if result is not None:
                self._queues.put(self._tracker.conclude(result))
                self._fleet.note(result)


class Fleet:
    """All brokers and partitions of a scenario.

    Attributes:
        partitions: by name.
        lags: when segments were committed, and how many seconds after they closed.
        waiting: the number of closed segments without a commit.
        takeovers: seconds from elections to the read positions.
        results: the number of the agents' results by kind.

    Args:
        root: an empty directory.
    """

    def __init__(self, scenario: Scenario, clock: Clock, cloud: Cloud, random: Random, root: Path) -> None:
        self._scenario = scenario
        self._clock = clock
        self._random = random
        self.files = LogFiles(root, int(scenario.seconds / scenario.segment_seconds / (1 - _JITTER)) + 3)
        self.lags: list[tuple[float, float]] = []
        self.waiting = 0
        self.takeovers: list[float] = []
        self.results: Counter[str] = Counter()
        brokers = [Broker(number, self, scenario, cloud) for number in range(scenario.sampled_brokers)]
        self._by_log_dir = {broker.log_dir: broker for broker in brokers}
        self.partitions: dict[TopicPartition, Partition] = {}
        for number in range(len(brokers) * scenario.sampled_partitions):
            name = TopicPartition(f"t{number // _PARTITIONS_PER_TOPIC}", number % _PARTITIONS_PER_TOPIC)
            leader = brokers[number % len(brokers)]
            follower = random.choice([broker for broker in brokers if broker is not leader])
            self.partitions[name] = Partition(name, number, [leader, follower])

    @contextmanager
    def listed(self) -> Iterator[None]:
        """Let the agents' tasks list directories here, and read each small file once: none of them changes."""

        def listing(name: TopicPartition, log_dir: Path, *_: object) -> Listing:
            return self._by_log_dir[log_dir].listing(self.partitions[name])

        with (
            patch.object(directory_scan, "list_partition", listing),
            patch.object(coverage, "list_partition", listing),
            patch.object(local_log, "read_file", cache(segment_file.read_file)),
        ):
            yield

    def start(self) -> None:
        """Have agents start, segments close and leaders move."""
        draw, at, seconds = self._random.uniform, self._clock.at, self._scenario.segment_seconds
        for partition in self.partitions.values():
            at(draw(0, _START_SECONDS), partial(self._lead, partition))
            at(_START_SECONDS + draw(0, seconds), partial(self._close_segment, partition))
        for partition in list(self.partitions.values())[::2]:
            at(self._scenario.elections_at + draw(0, _ELECTION_SECONDS), partial(self._elect, partition))

    def note(self, result: Result) -> None:
        """Record a result of an agent."""
        self.results[type(result).__name__] += 1
        partition, now = self.partitions[result.partition], self._clock.now
        if isinstance(result, PositionRead | Committed):
            if partition.elected is not None and result.leadership.epoch == partition.epochs[-1][0]:
                self.takeovers.append(now - partition.elected)
                partition.elected = None
            for end in range(partition.committed + 1, result.position.next_offset + 1):
                self.lags.append((now, now - partition.closed.pop(end)))
                self.waiting -= 1
            partition.committed = max(partition.committed, result.position.next_offset)
        elif isinstance(result, Failed) and "defect" in result.reason:
            raise AssertionError(result.reason)

    def _lead(self, partition: Partition) -> None:
        for broker in partition.replicas:
            broker.look(partition)
            broker.lead(partition)
            broker.change(partition, OTHER_FILES + 1)

    def _close_segment(self, partition: Partition) -> None:
        now = self._clock.now
        partition.end += 1
        partition.closed[partition.end] = now
        self.waiting += 1
        leader = partition.replicas[0]
        self._clock.at(now + _LOOK_SECONDS, partial(leader.look, partition))
        leader.change(partition, 1)
        following = now + self._scenario.segment_seconds * self._random.uniform(1 - _JITTER, 1 + _JITTER)
        if following < self._scenario.seconds:
            self._clock.at(following, partial(self._close_segment, partition))

    def _elect(self, partition: Partition) -> None:
        partition.replicas.reverse()
        partition.epochs = (*partition.epochs, (partition.epochs[-1][0] + 1, partition.end))
        partition.elected = self._clock.now
        for broker in partition.replicas:
            self._clock.at(self._clock.now + _LOOK_SECONDS, partial(broker.look, partition))
            later = self._random.uniform(*_LEADERSHIP_SECONDS)
            self._clock.at(self._clock.now + later, partial(broker.lead, partition))
            broker.change(partition, OTHER_FILES + 1)
