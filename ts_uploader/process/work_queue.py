"""Queues tasks for worker threads: oldest first in a partition, fair between partitions, urgent ones earlier.

Each partition has its own line, and the lines are served in turn, so that one partition with a large backlog does not
delay another. A task can have a time before which it is not due, and an urgency: the fraction of its topic's retention
that is left (`ts_uploader.retention.topic_retention.fraction_left`).

- A line is urgent while a task in it has less left than `URGENT_BELOW`. Its order stays: earlier tasks have to be done
  first in any case, as the run has no holes.
- Urgent lines are served before the others, the one with the least left first, equal ones in turn.
- Of every `TURNS` tasks in a row at least one is of the line that is next among all lines. So no line starves: a line
  at the end of L lines (including itself) is served within L * TURNS tasks.

The queue accepts every task. The tracker bounds it: at most `SEGMENTS_IN_FLIGHT` segments, one position lookup and one
commit of each partition at a time. 4,000 partitions with a backlog are 16,000 segments of a few hundred bytes each,
since the tasks of a partition share its listing. `len` returns the number of queued tasks.
"""

import heapq
import itertools
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")

# Half: with the default retention of 168 h, 84 h are left for a segment that has waited 84 h. Urgency is not updated
# while a task is queued: a task that was put with just half left expires only after it has waited the same time again.
URGENT_BELOW = 0.5
# Three quarters of the threads' time for segments near deletion. The rest serves 4,000 lines once in 16,000 tasks.
TURNS = 4


class WorkQueue(Generic[T]):
    """A blocking queue for any number of producers and consumers."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        # Each line's tasks with their urgency; the lines in the order of their turns.
        self._lines: OrderedDict[Hashable, deque[tuple[T, float]]] = OrderedDict()
        # The least fraction of each urgent line, in the order of their turns. The minimum is searched for each task:
        # 0.1 ms for 4,000 lines, small against the upload of a segment.
        self._urgent: dict[Hashable, float] = {}
        self._urgent_turns = 0  # urgent tasks in a row
        self._later: list[tuple[float, int, Hashable, T, float]] = []
        self._order = itertools.count()
        self._closed = False

    def put(self, line: Hashable, task: T, delay_seconds: float = 0.0, urgency: float | None = None) -> None:
        """Add a task to a line. After `close` it is dropped.

        Args:
            line: the task is queued after those of the same line.
            delay_seconds: the task is due, and joins its line, only after this time.
            urgency: the fraction of its retention that is left, 0 to 1; None if Kafka does not delete it.
        """
        urgency = 1.0 if urgency is None else urgency
        with self._changed:
            if self._closed:
                return
            if delay_seconds > 0:
                heapq.heappush(self._later, (time.monotonic() + delay_seconds, next(self._order), line, task, urgency))
            else:
                self._enqueue(line, task, urgency)
            self._changed.notify()

    def get(self) -> T | None:
        """Return the next task that is due, waiting for one; None once the queue is closed."""
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                while self._later and self._later[0][0] <= now:
                    _, _, line, task, urgency = heapq.heappop(self._later)
                    self._enqueue(line, task, urgency)
                if self._lines:
                    return self._dequeue()
                self._changed.wait(self._later[0][0] - now if self._later else None)
            return None

    def advance(self, line: Hashable) -> None:
        """Serve a line before those that are not urgent."""
        with self._changed:
            if line in self._lines:
                self._urgent[line] = min(0.0, self._urgent.get(line, 0.0))

    def drop(self, line: Hashable) -> None:
        """Drop the queued tasks of a line; tasks that `get` returned continue."""
        with self._changed:
            self._lines.pop(line, None)
            self._urgent.pop(line, None)

    def close(self) -> None:
        """Drop the queued tasks and make every `get` return None."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        with self._changed:
            return len(self._later) + sum(len(tasks) for tasks in self._lines.values())

    def _enqueue(self, line: Hashable, task: T, urgency: float) -> None:
        self._lines.setdefault(line, deque()).append((task, urgency))
        if urgency < URGENT_BELOW:
            self._urgent[line] = min(urgency, self._urgent.get(line, urgency))

    def _dequeue(self) -> T:
        if self._urgent and self._urgent_turns < TURNS - 1:
            line = min(self._urgent, key=self._urgent.__getitem__)  # of equal ones the first
            self._urgent_turns += 1
        else:
            line = next(iter(self._lines))
            self._urgent_turns = 0
        tasks = self._lines[line]
        task, _ = tasks.popleft()
        self._urgent.pop(line, None)
        if tasks:
            self._lines.move_to_end(line)
            least = min(urgency for _, urgency in tasks)
            if least < URGENT_BELOW:
                self._urgent[line] = least
        else:
            del self._lines[line]
        return task
