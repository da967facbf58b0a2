"""Tasks on their way to worker threads: oldest first inside a partition, fair over partitions.

Each partition has its own line, and the lines are served in turn, so that one partition that is far behind does not
keep another waiting. A task can be given a time before which it is not due. What bounds the queue is the tracker, which
hands out a few tasks per partition at a time.
"""

import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class WorkQueue(Generic[T]):
    """A blocking queue for any number of producers and consumers."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._lines: dict[Hashable, deque[T]] = {}
        self._turns: deque[Hashable] = deque()
        self._later: list[tuple[float, int, Hashable, T]] = []
        self._order = itertools.count()
        self._closed = False

    def put(self, line: Hashable, task: T, delay_seconds: float = 0.0) -> None:
        """Add a task to a line, due after `delay_seconds`. After `close` it is dropped."""
        with self._changed:
            if self._closed:
                return
            if delay_seconds > 0:
                heapq.heappush(self._later, (time.monotonic() + delay_seconds, next(self._order), line, task))
            else:
                self._enqueue(line, task)
            self._changed.notify()

    def get(self) -> T | None:
        """The next task that is due, waiting for one; None once the queue is closed."""
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                while self._later and self._later[0][0] <= now:
                    _, _, line, task = heapq.heappop(self._later)
                    self._enqueue(line, task)
                if self._turns:
                    return self._dequeue()
                self._changed.wait(self._later[0][0] - now if self._later else None)
            return None

    def close(self) -> None:
        """Drop what waits and let every `get` return None."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        with self._changed:
            return len(self._later) + sum(len(tasks) for tasks in self._lines.values())

    def _enqueue(self, line: Hashable, task: T) -> None:
        tasks = self._lines.get(line)
        if tasks is None:
            tasks = self._lines[line] = deque()
            self._turns.append(line)
        tasks.append(task)

    def _dequeue(self) -> T:
        line = self._turns.popleft()
        tasks = self._lines[line]
        task = tasks.popleft()
        if tasks:
            self._turns.append(line)
        else:
            del self._lines[line]
        return task
