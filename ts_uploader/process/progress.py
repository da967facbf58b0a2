"""The tasks that workers run, and whether each makes progress: the agent is healthy only while all do.

A worker makes progress when it starts a task, when it sends a request to a store, and with each piece that it reads of
a segment; so an upload counts as progress. While a store throttles requests (SlowDown), or uploads wait for the
operator's rate limit, all workers are excused: a restart would not help.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ts_common.model import TopicPartition

# A request can wait at most twice the upload timeout (connect, answer); add DNS, a busy disk and a listing's pages.
_TIMEOUTS = 5
_LEAST_SECONDS = 120.0
_UPLOAD_SECONDS = 30.0
_RATE_SECONDS = 300.0  # that the rate of shipping is a mean of


@dataclass(slots=True)
class Work:
    """One task on one thread; only that thread writes it.

    Attributes:
        began_at: start of the task, by the monotonic clock.
        moved_at: last progress, by the monotonic clock.
    """

    thread: str
    operation: str
    partition: TopicPartition
    began_at: float
    moved_at: float


class _Own(threading.local):
    work: Work | None = None


_own = _Own()


def beat() -> None:
    """Record progress of this thread's task; does nothing if the thread runs no task."""
    if _own.work is not None:
        _own.work.moved_at = time.monotonic()


def own_work() -> Work | None:
    """Return the task of this thread; None if the thread runs no task."""
    return _own.work


class Shipping:
    """What was shipped last, and how much in the last five minutes; thread-safe.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._recent: deque[tuple[float, int]] = deque()
        self.last: float | None = None  # seconds since the epoch

    def shipped(self, size: int) -> None:
        """Note a segment of so many bytes."""
        with self._lock:
            self.last = self._clock()
            self._recent.append((self.last, size))
            self._forget(self.last)

    def bytes_per_second(self) -> float:
        """Return the mean of the last five minutes."""
        with self._lock:
            self._forget(self._clock())
            return sum(size for _, size in self._recent) / _RATE_SECONDS

    def _forget(self, now: float) -> None:
        while self._recent and self._recent[0][0] < now - _RATE_SECONDS:
            self._recent.popleft()


class Progress:
    """The tasks of all workers; thread-safe.

    Args:
        upload_timeout_seconds: the configured timeout of an upload.
    """

    def __init__(self, upload_timeout_seconds: float) -> None:
        self.bound_seconds = max(_LEAST_SECONDS, _TIMEOUTS * upload_timeout_seconds)
        self._at: dict[str, Work] = {}
        self._outside: tuple[float, ...] = ()
        self._excused_at = 0.0

    @contextmanager
    def doing(self, operation: str, partition: TopicPartition) -> Iterator[None]:
        """Register a task of this thread for the duration of the block."""
        now = time.monotonic()
        name = threading.current_thread().name
        _own.work = self._at[name] = Work(name, operation, partition, now, now)
        try:
            yield
        finally:
            _own.work = None
            del self._at[name]

    def excuse(self, *outside: float) -> None:
        """Excuse all workers if stores or limits made them wait since the last call; called periodically.

        Args:
            outside: sums that only grow: rejected requests, seconds waited for the upload rate.
        """
        if outside != self._outside:
            self._outside = outside
            self._excused_at = time.monotonic()

    def works(self) -> list[Work]:
        """Return the tasks in progress, the longest first."""
        return sorted(self._at.copy().values(), key=lambda work: work.began_at)

    @property
    def uploads(self) -> bool:
        """Whether an upload made progress in the last half minute."""
        latest = time.monotonic() - _UPLOAD_SECONDS
        return any(work.operation == "Ship" and work.moved_at > latest for work in self.works())

    @property
    def excused_at(self) -> float:
        """When stores or limits last made workers wait, by the monotonic clock."""
        return self._excused_at

    def stuck(self) -> list[Work]:
        """Return the tasks without progress for longer than `bound_seconds`."""
        latest = time.monotonic() - self.bound_seconds
        return [work for work in self.works() if max(work.moved_at, self._excused_at) < latest]
