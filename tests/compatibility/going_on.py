"""An agent on the fixture's broker directories: its real parts without a broker, and with the test's clock."""

import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.compatibility.archive_1 import KEYS, Leader
from tests.histories.agents import CacheObjectsAtOnce
from ts_common.config.cluster_config import OffsetReset
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.log_dirs.directory_scan import list_partition, read_high_watermarks
from ts_uploader.messages.observations import Leadership, Led, Observation
from ts_uploader.messages.results import LookDue
from ts_uploader.messages.tasks import AnyTask, Rescan
from ts_uploader.metrics.counters import Metrics
from ts_uploader.retention.topic_retention import TopicRetention
from ts_uploader.shipping.deleted_directory import DeletedShipper
from ts_uploader.shipping.repairer import Repairer
from ts_uploader.shipping.uploader import Uploader
from ts_uploader.tracking.high_watermarks import OTHER_FILES
from ts_uploader.tracking.task_selection import CHECKPOINT_SECONDS
from ts_uploader.tracking.tracker import Tracker
from ts_uploader.workers.task_runner import TaskRunner

_NANOSECONDS: Final = 1_000_000_000
_TASKS_A_LOOK: Final = 1000  # of all partitions; what an agent begins without an end is cut off there


class GoingOn:
    """One agent, whose broker leads some of the partitions of its log dir from now on.

    Args:
        log_dir: of the broker.
        broker: its id.
        leaders: what it leads; others of the list are passed over.
        store: the archive.
    """

    def __init__(self, log_dir: Path, broker: int, leaders: list[Leader], store: ObjectStore) -> None:
        self._log_dir = log_dir
        self._leaders = [leader for leader in leaders if leader.broker == broker]
        self._now = time.time_ns()
        self._files = 0
        self._topic_ids = {leader.partition: self._topic_id(leader.partition) for leader in self._leaders}
        self._tasks: deque[AnyTask] = deque()
        self._tracker = Tracker(OffsetReset.EARLIEST)
        uploader = Uploader(lambda _: store, lambda _: TopicRetention())
        commits = CommitLog(KEYS, broker, lambda _: store)
        self._runner = TaskRunner(
            uploader,
            commits,
            self,  # type: ignore[arg-type]
            Metrics(),
            CacheObjectsAtOnce(store),  # type: ignore[arg-type]
            Repairer(KEYS, broker, lambda _: store, uploader),
            DeletedShipper(broker, lambda _: store, uploader, commits, lambda *_: True),
        )

    def hint(self, partition: TopicPartition, *, whole: bool) -> None:
        """A rescan of the runner's."""
        self._see(partition)

    def look(self) -> None:
        """Leadership, directories, then a checkpoint that is one interval younger; and all work that follows."""
        for leader in self._leaders:
            leadership = Leadership(leader.epoch, self._topic_ids[leader.partition], self._tick())
            self._observe(Led(leader.partition, leadership))
            self._see(leader.partition)
        high_watermarks = read_high_watermarks(self._log_dir)
        assert high_watermarks is not None
        for _ in range(1 + OTHER_FILES):  # the file that the agent finds, and those after it that make it count
            self._files += 1
            self._tick(CHECKPOINT_SECONDS)
            self._observe(replace(high_watermarks, file=((self._files, self._now, 1), 1)))
        for _ in range(_TASKS_A_LOOK):
            if not self._tasks:
                return
            task = self._tasks.popleft()
            if isinstance(task, Rescan):
                self._tick(task.after_seconds)
                self._tasks += self._tracker.conclude(LookDue(task.partition, task.generation))
            result = self._runner.run(task)
            if result is not None:
                self._tasks += self._tracker.conclude(result)

    def _topic_id(self, partition: TopicPartition) -> str | None:
        listing = list_partition(partition, self._log_dir)
        assert listing is not None
        return listing.topic_id

    def _see(self, partition: TopicPartition) -> None:
        listing = list_partition(partition, self._log_dir)
        assert listing is not None
        self._observe(replace(listing, taken_at=self._tick()))

    def _tick(self, seconds: float = 1.0) -> int:
        self._now += int(seconds * _NANOSECONDS)
        return self._now

    def _observe(self, event: Observation) -> None:
        self._tasks += self._tracker.observe(event)
