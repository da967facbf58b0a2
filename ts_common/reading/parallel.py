"""Asking the store many things at once: each answer waits for the network, not for the processor.

What takes long says how far it has come: a line in the log every few seconds.
"""

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import structlog

# As many as the S3 driver keeps connections. Of each partition about five things are asked, one after the other: on
# AWS, at 20 ms each, a thousand partitions wait 3 s for them.
_THREADS: Final = 32
TOLD_EVERY_SECONDS: Final = 3.0

_In = TypeVar("_In")
_Out = TypeVar("_Out")

log = structlog.get_logger("ts_common")


def in_threads(function: Callable[[_In], _Out], inputs: Iterable[_In], telling: str | None = None) -> list[_Out]:
    """`map`, on threads; the first error, in the order of the inputs, is raised.

    Args:
        function: safe to call from several threads.
        inputs: one for each call.
        telling: what is done with the inputs, for the log; None says nothing.
    """
    items = list(inputs)
    if len(items) < 2:
        return [function(item) for item in items]
    if telling is not None:
        function = Progress(telling, len(items)).counting(function)
    pool = ThreadPoolExecutor(min(_THREADS, len(items)), "plan")
    try:
        return list(pool.map(function, items))
    finally:
        pool.shutdown(cancel_futures=True)  # after an error nobody waits for the rest


class Progress:
    """How many of so many things are done, told now and then.

    Args:
        what: is done with them.
        total: how many there are.
        clock: seconds of any one clock.
    """

    def __init__(self, what: str, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._total = total
        self._clock = clock
        self._lock = threading.Lock()  # guards what follows
        self._done = 0
        self._told_at = clock()

    def counting(self, function: Callable[[_In], _Out]) -> Callable[[_In], _Out]:
        """The same function; each call that returns counts."""

        def counted(item: _In) -> _Out:
            result = function(item)
            self._count()
            return result

        return counted

    def _count(self) -> None:
        with self._lock:
            self._done += 1
            now = self._clock()
            if now - self._told_at < TOLD_EVERY_SECONDS or self._done == self._total:
                return
            self._told_at = now
            done = self._done
        log.info("planning_progress", step=self._what, partitions=done, of_partitions=self._total)
