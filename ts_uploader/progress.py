"""What each worker is at, and whether it comes on: an agent is well only while none of them stands still.

A worker comes on when it takes a task, when it asks a store for something, and with each piece that it reads of a
segment, which is also how an upload is seen to go on. While a store refuses requests (SlowDown), or uploads wait for
the rate that the operator allows, all workers are excused: they wait for what no restart would mend.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ts_common.model import TopicPartition

# A request stands still for at most twice the upload's time-out (connect, answer); a name that is looked up, a disk
# that is busy and a listing's pages come on top.
_TIMEOUTS = 5
_LEAST_SECONDS = 120.0


@dataclass(slots=True)
class Work:
    """One task on one thread; only that thread writes it.

    Attributes:
        thread: its name.
        operation: the task's class.
        partition: whose.
        began_at: by the monotonic clock, as the next.
        moved_at: when it last came on.
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
    """The task of this thread comes on; nothing where it has none."""
    if _own.work is not None:
        _own.work.moved_at = time.monotonic()


class Progress:
    """What all workers are at; safe from any thread.

    Args:
        upload_timeout_seconds: as the configuration says.
    """

    def __init__(self, upload_timeout_seconds: float) -> None:
        self.bound_seconds = max(_LEAST_SECONDS, _TIMEOUTS * upload_timeout_seconds)
        self._at: dict[str, Work] = {}
        self._outside: tuple[float, ...] = ()
        self._excused_at = 0.0

    @contextmanager
    def doing(self, operation: str, partition: TopicPartition) -> Iterator[None]:
        """While this thread does a task."""
        now = time.monotonic()
        name = threading.current_thread().name
        _own.work = self._at[name] = Work(name, operation, partition, now, now)
        try:
            yield
        finally:
            _own.work = None
            del self._at[name]

    def excuse(self, *outside: float) -> None:
        """Tell how often and how long something outside kept everybody waiting; called now and then.

        Args:
            outside: sums that only grow: refused requests, seconds waited for the upload rate.
        """
        if outside != self._outside:
            self._outside = outside
            self._excused_at = time.monotonic()

    def works(self) -> list[Work]:
        """What is being done, longest first."""
        return sorted(self._at.copy().values(), key=lambda work: work.began_at)

    def stuck(self) -> list[Work]:
        """What stands still for longer than `bound_seconds`."""
        latest = time.monotonic() - self.bound_seconds
        return [work for work in self.works() if max(work.moved_at, self._excused_at) < latest]
