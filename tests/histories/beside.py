"""The real agent's parts beside the model's brokers: tracker, uploader, commits. Time and threads are the test's."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.histories.model import ID, Cluster, Entry
from tests.log_format import build
from ts_common.catalog import read_catalog
from ts_common.config import OffsetReset
from ts_common.errors import OutcomeUnknown, StoreUnavailable, TieredStorageError
from ts_common.log_format.framing import BatchHeader, parse_header
from ts_common.model import TopicPartition
from ts_common.object_keys import ClusterKeys, PartitionKeys
from ts_common.plan import Hole
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_common.store.wrapped import WrappedStore
from ts_common.view import open_view
from ts_uploader.chapters import write_chapter
from ts_uploader.commit import CommitLog
from ts_uploader.events import AnyTask, HighWatermarks, Led, LookDue, NotLed, Observation, Reign, Rescan
from ts_uploader.high_watermarks import OTHER_FILES
from ts_uploader.metrics import Metrics
from ts_uploader.retention import TopicRetention
from ts_uploader.tracker import CHECKPOINT_SECONDS, Tracker
from ts_uploader.uploader import Uploader
from ts_uploader.watch.scan import list_partition
from ts_uploader.workers import Performer

TP = TopicPartition("t", 0)
CLUSTER = ClusterKeys("c")
KEYS = CLUSTER.partition(TP)
_SECOND = 1_000_000_000


class FaultyStore(WrappedStore):
    """A store whose next puts fail as they are told: before they happen, after, or not at all."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, threads=1)
        self.next_puts: list[str] = []

    def put(self, *arguments: Any, **named: Any) -> ObjectInfo:
        """As told."""
        fault = self.next_puts.pop(0) if self.next_puts else "none"
        if fault == "refused":
            raise StoreUnavailable("refused")
        info = super().put(*arguments, **named)
        if fault == "lost answer":
            raise OutcomeUnknown("no answer")
        return info


class Clock:
    """Nanoseconds, one second further at each look."""

    def __init__(self) -> None:
        self._now = _SECOND

    def tick(self, seconds: float = 1.0) -> int:
        """The time, after it moved on."""
        self._now += int(seconds * _SECOND)
        return self._now


class ChaptersAtOnce:
    """Writes a chapter at each commit; the store may fail it."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def committed(self, keys: PartitionKeys, next_offset: int, _: int) -> None:
        """As the writer's thread, and so without a word where it fails."""
        with suppress(TieredStorageError):
            write_chapter(self._store, keys, next_offset)


class Agent:
    """One agent beside one of the model's brokers; a crash makes a new tracker.

    Args:
        cluster: the model.
        broker: which of its brokers.
        store: shared by all agents.
        clock: likewise.
    """

    def __init__(self, cluster: Cluster, broker: int, store: ObjectStore, clock: Clock) -> None:
        self._cluster = cluster
        self._broker = broker
        self._clock = clock
        commits = CommitLog(CLUSTER, broker, lambda _: store)
        self._performer = Performer(
            Uploader(lambda _: store, lambda _: TopicRetention()),
            commits,
            self,  # type: ignore[arg-type]
            Metrics(),
            ChaptersAtOnce(store),  # type: ignore[arg-type]
        )
        self.restart()

    def restart(self) -> None:
        """Everything that the agent knew is gone."""
        self._tracker = Tracker(OffsetReset.EARLIEST)
        self.tasks: list[AnyTask] = []

    def hint(self, _: TopicPartition, *, whole: bool) -> None:
        """A rescan of the performer's: the listing comes at once."""
        self.see_directory()

    def see_directory(self) -> None:
        """The scan looks."""
        directory = self._cluster.brokers[self._broker].path
        listing = list_partition(TP, directory, directory.parent)
        assert listing is not None
        # Nobody renames while the model's one thread looks.
        self._observe(replace(listing, taken_at=self._clock.tick(), whole=not listing.swapping))

    def see_checkpoint(self) -> None:
        """The broker wrote its high watermarks, and the agent reads them."""
        broker = self._cluster.brokers[self._broker]
        offsets = {(TP.topic, TP.partition): broker.high_watermark}
        self._observe(HighWatermarks(broker.path.parent, ((self._clock.tick(), 0, 0), 0), offsets))

    def see_leadership(self) -> None:
        """The leadership source says what is so."""
        if self._cluster.leader == self._broker:
            self._observe(Led(TP, Reign(self._cluster.epoch, ID, self._clock.tick())))
        else:
            self._observe(NotLed(TP))

    def work(self, index: int, *, forget: bool = False) -> None:
        """Carry out one of the tasks that wait; with `forget` the process dies before it hears of the result."""
        if not self.tasks:
            return
        task = self.tasks.pop(index % len(self.tasks))
        if isinstance(task, Rescan):
            self._clock.tick(task.after_seconds)
            self.tasks += self._tracker.conclude(LookDue(task.partition, task.generation))
        result = self._performer.perform(task)
        if forget:
            self.restart()
        elif result is not None:
            self.tasks += self._tracker.conclude(result)

    def settle(self) -> None:
        """Everything is seen, and all work done that can be."""
        self.see_leadership()
        self.see_directory()
        self._clock.tick(CHECKPOINT_SECONDS)
        for _ in range(1 + OTHER_FILES):  # the one that stands there, and those after it up to the first that counts
            self.see_checkpoint()
        for _ in range(5_000):
            if not self.tasks:
                break
            self.work(0)

    def _observe(self, event: Observation) -> None:
        self.tasks += self._tracker.observe(event)


def rows(store: ObjectStore) -> Iterator[tuple[int, int, bytes] | Hole]:
    """What readers see, in order: (offset, leader epoch, the batch's bytes after its header), and holes."""
    view = open_view(store, read_catalog(store, KEYS))
    batches: dict[str, list[tuple[int, int, bytes]]] = {}
    for step in view.plan(view.start, view.end):
        if isinstance(step, Hole):
            yield step
            continue
        found: dict[int, tuple[int, int, bytes]] = {}
        for copy in step.copies:
            if copy.key not in batches:
                batches[copy.key] = list(_batches(store.get(copy.key)[0]))
            for row in batches[copy.key]:
                if step.start <= row[0] < step.end:
                    assert found.setdefault(row[0], row) == row, f"two living records of offset {row[0]}"
        yield from sorted(found.values())


def body_of(entry: Entry) -> bytes:
    """What `rows` shows of a record."""
    return build.record(0, value=b"%d" % entry.number)


def _batches(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    position = 0
    while position < len(data):
        header = parse_header(data, position, len(data) - position)
        assert isinstance(header, BatchHeader)
        end = position + header.size_in_bytes
        yield header.base_offset, header.leader_epoch, data[position + 61 : end]
        position = end


def directory_in_memory() -> Path | None:
    """Where files cost least; None for the system's own temporary directory."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() else None
