"""Whether calls wait more than they compute: then many run at once, and else one.

Python runs one thread at a time, and threads that compute wait for each other, which costs more than the work: on two
cores, `tsctl ls` of 100,000 segments in a directory needs 6 s of processor on one thread, and 16 s on 32.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

_ENOUGH_SECONDS: Final = 0.05  # of calls, before they count: the first one also opens a connection
_REMEMBERED_SECONDS: Final = 2.0  # older calls count half each time
_COMPUTED_MOST: Final = 0.25  # of the time of calls that wait; of two threads that compute, each has half of it
_T = TypeVar("_T")


def queued_seconds() -> float:
    """Return the seconds for which this thread was ready to compute so far, and no processor was free.

    On a busy host a thread that never waits for a store can have a small share of a processor. More threads would not
    get more, and each listing needs memory.
    """
    with suppress(OSError, ValueError, IndexError), open("/proc/thread-self/schedstat", "rb") as file:  # noqa: PTH123
        return int(file.read().split()[1]) / 1e9
    return 0.0


class CallWaits:
    """Measures calls that run alone.

    Attributes:
        prevail: is set once the calls have computed for less than a quarter of their time, and stays set.

    Args:
        clock: returns seconds.
        cpu_clock: returns the seconds of processor of the calling thread.
        queue_clock: as `queued_seconds`; a file is read for it, so seldom.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
        queue_clock: Callable[[], float] = queued_seconds,
    ) -> None:
        self.prevail = threading.Event()
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._queue_clock = queue_clock
        self._queued: tuple[int, float] | None = None  # a thread, and what its queue clock showed
        self._seconds = 0.0
        self._computed = 0.0

    def measure(self, call: Callable[[], _T]) -> _T:
        """Return the result of a call; once waits prevail it is not measured, because it runs beside others.

        Raises:
            what `call` raises.
        """
        if self.prevail.is_set():
            return call()
        if self._queued is None or self._queued[0] != threading.get_ident():
            self._queued = threading.get_ident(), self._queue_clock()
        began, computed = self._clock(), self._cpu_clock()
        try:
            return call()
        finally:
            self._add(self._clock() - began, self._cpu_clock() - computed)

    def _add(self, seconds: float, computed: float) -> None:
        self._seconds += seconds
        self._computed += computed
        if self._seconds >= _ENOUGH_SECONDS and self._computed < _COMPUTED_MOST * self._seconds:
            before, queued = self._queued, self._queue_clock()
            self._queued = threading.get_ident(), queued
            if before is not None:
                self._computed = min(self._seconds, self._computed + queued - before[1])
            if self._computed < _COMPUTED_MOST * self._seconds:
                self.prevail.set()
        if self._seconds >= _REMEMBERED_SECONDS:
            self._seconds, self._computed = self._seconds / 2, self._computed / 2
