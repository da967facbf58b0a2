"""The queues between the main loop and the workers: which threads run which task, and when it is due.

Uploads wait for nothing else, so that a commit never waits behind the upload of a gigabyte. The commit that passes a
gap is one of them: packs can have a gigabyte of its records. Lookups read: the store's position of a partition, files
of its directory, or whether its topic was deleted.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import structlog

from ts_common.model import TopicPartition
from ts_common.store.retry import backoff_seconds
from ts_uploader.messages.tasks import AnyTask, LookBelow, PassGap, ReadPosition, Repair, Rescan, Ship, ShipDeleted
from ts_uploader.metrics.counters import COMMITS, LOOKUPS, UPLOADS
from ts_uploader.process.work_queue import WorkQueue

log = structlog.get_logger()


class TaskQueues:
    """Three queues; `put` chooses one for each task.

    Args:
        urgency: returns the fraction of its retention that a segment has left (`WorkQueue.put`).
    """

    def __init__(self, urgency: Callable[[Ship], float | None]) -> None:
        self.uploads: WorkQueue[AnyTask] = WorkQueue()
        self.commits: WorkQueue[AnyTask] = WorkQueue()
        self.lookups: WorkQueue[AnyTask] = WorkQueue()
        self._urgency = urgency

    @property
    def lengths(self) -> Mapping[str, Callable[[], int]]:
        """For each queue, by its label in metrics, a function that returns the number of waiting tasks."""
        return {
            UPLOADS: self.uploads.__len__,
            COMMITS: self.commits.__len__,
            LOOKUPS: self.lookups.__len__,
        }

    def put(self, tasks: Sequence[AnyTask]) -> None:
        """Add tasks, each to its queue; one that was tried before is due after its backoff."""
        for task in tasks:
            if isinstance(task, Ship):
                self.uploads.put(task.partition, task, urgency=self._urgency(task))
            elif isinstance(task, ShipDeleted):  # in a line of its own: the directory is removed within a minute
                # Uploads do not wait for the answer whether the topic was deleted.
                queue = self.uploads if task.confirmed else self.lookups
                delay = task.after_seconds + backoff_seconds(task.attempt)
                queue.put(("deleted", task.listing.identity), task, delay, urgency=0.0)
            elif isinstance(task, Repair | PassGap):  # it can read and send segments
                self.uploads.put(task.partition, task)
            elif isinstance(task, Rescan):
                if task.reason:
                    log.info("segment_changed", partition=str(task.partition), reason=task.reason)
                self.lookups.put(task.partition, task, task.after_seconds + backoff_seconds(task.attempt))
            elif isinstance(task, ReadPosition):
                task = replace(task, made_at=time.monotonic_ns())  # noqa: PLW2901
                self.lookups.put(task.partition, task, backoff_seconds(task.attempt))
            elif isinstance(task, LookBelow):  # it reads files, and no commit waits for it
                self.lookups.put(task.partition, task)
            else:
                self.commits.put(task.partition, task)

    def advance_lookups(self, partition: TopicPartition) -> None:
        """Have the waiting lookups of a partition done before others."""
        self.lookups.advance(partition)

    def drop_uploads(self, partition: TopicPartition) -> None:
        """Drop the waiting uploads of a partition whose directory no longer exists."""
        self.uploads.drop(partition)

    def close(self) -> None:
        """End each worker once its task is done; waiting tasks are dropped."""
        self.uploads.close()
        self.commits.close()
        self.lookups.close()
