"""Many requests to the store at once: each waits for the network, not for the processor.

A long step logs its progress every few seconds.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

import structlog

# The number of connections that the S3 driver keeps. Planning makes about five requests for each partition, one after
# the other: on AWS, at 20 ms each, 3 s for a thousand partitions.
_THREADS: Final = 32
LOG_EVERY_SECONDS: Final = 3.0

_In = TypeVar("_In")
_Out = TypeVar("_Out")

log = structlog.get_logger("ts_reader")


def in_threads(
    function: Callable[[_In], _Out], inputs: Iterable[_In], step: str | None = None, *, most: int = _THREADS
) -> list[_Out]:
    """Return the results of a function for each input, in the order of the inputs; calls run on threads.

    Args:
        function: safe to call from several threads.
        inputs: one for each call.
        step: the name of the work in the log; None logs nothing.
        most: the number of threads; fewer than a request needs, if a call needs memory.

    Raises:
        what `function` raises: the first error in the order of the inputs.
    """
    items = list(inputs)
    if len(items) < 2:
        return [function(item) for item in items]
    if step is not None:
        function = Progress(step, len(items)).counting(function)
    pool = ThreadPoolExecutor(min(most, len(items)), "plan")
    try:
        return list(pool.map(function, items))
    finally:
        pool.shutdown(cancel_futures=True)  # after an error the other calls are not needed


def stream_in_threads(function: Callable[[_In], _Out], inputs: Iterable[_In], *, most: int) -> Iterator[_Out]:
    """Yield the results of a function for each input, in the order of the inputs; few are in memory at once.

    Args:
        function: safe to call from several threads.
        inputs: one for each call; read as calls end.
        most: the number of threads, and of results that wait for the caller.

    Raises:
        what `function` raises: the first error in the order of the inputs.
    """
    pool = ThreadPoolExecutor(most, "stream")
    pending: deque[Future[_Out]] = deque()
    try:
        for item in inputs:
            pending.append(pool.submit(function, item))
            if len(pending) >= most:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


class Progress:
    """Counts finished calls and logs the count every few seconds.

    Args:
        clock: returns seconds.
    """

    def __init__(self, step: str, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._step = step
        self._total = total
        self._clock = clock
        self._lock = threading.Lock()  # guards the next two
        self._done = 0
        self._logged_at = clock()

    def counting(self, function: Callable[[_In], _Out]) -> Callable[[_In], _Out]:
        """Return the same function; each call that returns is counted."""

        def counted(item: _In) -> _Out:
            result = function(item)
            self._count()
            return result

        return counted

    def _count(self) -> None:
        with self._lock:
            self._done += 1
            now = self._clock()
            if now - self._logged_at < LOG_EVERY_SECONDS or self._done == self._total:
                return
            self._logged_at = now
            done = self._done
        log.info("planning_progress", step=self._step, partitions=done, of_partitions=self._total)
