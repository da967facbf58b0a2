"""Many requests to the store at once, if they wait for the network; over a directory or a cache one after the other.

A long step logs its progress every few seconds.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import Final, TypeVar

import structlog

from ts_common.call_waits import CallWaits

# The number of connections that the S3 driver keeps. Planning makes about five requests for each partition, one after
# the other: on AWS, at 20 ms each, 3 s for a thousand partitions.
_THREADS: Final = 32
LOG_EVERY_SECONDS: Final = 3.0
_WAITS: Final = CallWaits()  # of this process: its calls use the same stores

_In = TypeVar("_In")
_Out = TypeVar("_Out")

log = structlog.get_logger("ts_reader")


def in_threads(
    function: Callable[[_In], _Out],
    inputs: Iterable[_In],
    step: str | None = None,
    *,
    most: int = _THREADS,
    at_once: bool = False,
) -> list[_Out]:
    """Return the results of a function for each input, in the order of the inputs.

    Calls run on this thread until they wait (`CallWaits`), then on others.

    Args:
        function: safe to call from several threads.
        inputs: one for each call.
        step: the name of the work in the log; None logs nothing.
        most: the number of threads; fewer than a request needs, if a call needs memory.
        at_once: whether threads are used in any case: calls decode outside of Python, or wait for servers
            that do not answer.

    Raises:
        what `function` raises: the first error in the order of the inputs.
    """
    items = list(inputs)
    if step is not None and len(items) > 1:
        function = Progress(step, len(items)).counting(function)
    results: list[_Out] = []
    while len(items) - len(results) == 1 or (len(results) < len(items) and not (at_once or _WAITS.prevail.is_set())):
        results.append(_WAITS.measure(partial(function, items[len(results)])))
    left = items[len(results) :]
    if not left:
        return results
    pool = ThreadPoolExecutor(min(most, len(left)), "plan")
    try:
        return [*results, *pool.map(function, left)]
    finally:
        pool.shutdown(cancel_futures=True)  # after an error the other calls are not needed


def stream_in_threads(
    function: Callable[[_In], _Out],
    inputs: Iterable[_In],
    *,
    most: int,
    pool: ThreadPoolExecutor | None = None,
    at_once: bool = False,
) -> Iterator[_Out]:
    """Yield the results of a function for each input, in the order of the inputs; few are in memory at once.

    Calls run as in `in_threads`.

    Args:
        function: safe to call from several threads.
        inputs: one for each call; read as calls end.
        most: the number of threads, and of results that wait for the caller.
        pool: of threads that several streams share; None for one of its own.
        at_once: as in `in_threads`.

    Raises:
        what `function` raises: the first error in the order of the inputs.
    """
    items = iter(inputs)
    for item in items:
        if at_once or _WAITS.prevail.is_set():
            items = chain((item,), items)
            break
        yield _WAITS.measure(partial(function, item))
    threads = ThreadPoolExecutor(most, "stream") if pool is None else pool
    pending: deque[Future[_Out]] = deque()
    try:
        for item in items:
            pending.append(threads.submit(function, item))
            if len(pending) >= most:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        if pool is None:
            threads.shutdown(cancel_futures=True)


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
