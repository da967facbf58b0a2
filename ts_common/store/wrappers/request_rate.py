"""One rate of requests for the whole process, found by what the stores refuse.

A store that is asked too fast answers 503 SlowDown. Each caller that backs off by itself is not enough: a thousand
partitions that wait a little each still ask too fast together. So all requests of a process pass one gate. It is open
until a store first says SlowDown; then it admits half of what was asked for in the last second, and half of that again
at each further refusal, though not more often than once a second: what was under way when the rate fell says nothing
of the new one. Each request that is served raises the rate again (additive increase, multiplicative decrease, as TCP
does), until the gate is open once more.

A refused request waits for its next turn and is made again: it was refused at the door, and whoever asked would only
have to do all over again what came before it.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TypeVar

from ts_common.errors import StoreThrottled
from ts_common.store.contract import (
    NO_METADATA,
    Body,
    ByteRange,
    Condition,
    ObjectInfo,
    ObjectStore,
    ObjectStream,
)
from ts_common.store.wrappers.wrapped import WrappedStore

_Answer = TypeVar("_Answer")

_WINDOW_SECONDS = 1.0
_LOWEST = 1.0  # requests per second
# After a second in which all that was admitted was served: so many more a second, or that share more if it is greater.
_RISE = 1.0
_RISE_SHARE = 0.05
# S3 serves 3,500 writes a second under one prefix: a rate above that has nothing to hold back.
_OPEN = 3_500.0


class Rate:
    """The arithmetic of the gate: when a request may go. Knows no clock; times are seconds of any one clock.

    Attributes:
        limit: requests per second; None while the gate is open.
        refused: how many requests a store refused so far.
    """

    def __init__(self) -> None:
        self.limit: float | None = None
        self.refused = 0
        self._asked: deque[float] = deque()
        self._last = float("-inf")  # the latest turn given, which may lie ahead
        self._fell_at = float("-inf")

    def admit(self, now: float) -> float:
        """How many seconds a request that comes at `now` has to wait for its turn."""
        while self._asked and self._asked[0] < now - _WINDOW_SECONDS:
            self._asked.popleft()
        self._asked.append(now)
        if self.limit is None:
            return 0.0
        self._last = max(now, self._last + 1 / self.limit)
        return self._last - now

    def served(self) -> None:
        """A request was served."""
        if self.limit is not None:
            self.limit += max(_RISE, _RISE_SHARE * self.limit) / self.limit
            if self.limit >= _OPEN:
                self.limit = None

    def slow_down(self, now: float) -> None:
        """A store refused a request because it is asked too fast."""
        self.refused += 1
        if now - self._fell_at < _WINDOW_SECONDS:
            return
        self._fell_at = now
        rate = self.limit if self.limit is not None else len(self._asked) / _WINDOW_SECONDS
        self.limit = max(_LOWEST, rate / 2)
        self._last = max(now, self._last)  # those who wait already have their turns; the next one comes after them


class Pace:
    """The gate of one process; used by all its threads and stores."""

    def __init__(self) -> None:
        self._rate = Rate()  # guarded by the lock
        self._lock = threading.Lock()
        self._closed = threading.Event()

    @property
    def refused(self) -> int:
        """How many requests a store refused because it was asked too fast."""
        return self._rate.refused

    @property
    def limit(self) -> float | None:
        """Requests per second; None while the gate is open."""
        return self._rate.limit

    def request(self, call: Callable[[], _Answer]) -> _Answer:
        """Make a call in its turn, and again as long as the store refuses it for being asked too fast.

        Raises:
            StoreThrottled: refused, and the process ends.
        """
        while True:
            with self._lock:
                patience = self._rate.admit(time.monotonic())
            self._closed.wait(patience)
            try:
                answer = call()
            except StoreThrottled:
                with self._lock:
                    self._rate.slow_down(time.monotonic())
                if self._closed.is_set():
                    raise
                continue
            with self._lock:
                self._rate.served()
            return answer

    def close(self) -> None:
        """Let everybody who waits go at once: the process ends."""
        self._closed.set()


class PacedStore(WrappedStore):
    """Another store, whose requests pass the process's gate.

    Args:
        inner: the store; closed with this one.
        pace: the gate.
        threads: how many asynchronous puts run at once.
    """

    def __init__(self, inner: ObjectStore, pace: Pace, *, threads: int) -> None:
        super().__init__(inner, threads=threads)
        self._pace = pace

    def put(
        self,
        key: str,
        body: bytes | Body,
        *,
        size: int | None = None,
        metadata: Mapping[str, str] = NO_METADATA,
        condition: Condition = None,
        crc32c: int | None = None,
        archived: bool = False,
    ) -> ObjectInfo:
        """As the inner store, in its turn."""
        return self._pace.request(
            lambda: self._inner.put(
                key, body, size=size, metadata=metadata, condition=condition, crc32c=crc32c, archived=archived
            )
        )

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        """As the inner store, in its turn."""
        return self._open(key, byte_range)

    @contextmanager
    def _open(self, key: str, byte_range: ByteRange | None) -> Iterator[ObjectStream]:
        with ExitStack() as opened:
            yield self._pace.request(lambda: opened.enter_context(self._inner.open(key, byte_range)))

    def head(self, key: str) -> ObjectInfo:
        """As the inner store, in its turn."""
        return self._pace.request(lambda: self._inner.head(key))

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """As the inner store, in its turn; further pages follow without another."""

        def begun() -> tuple[ObjectInfo | None, Iterator[ObjectInfo]]:
            listed = self._inner.list(prefix, start_after=start_after)
            return next(listed, None), listed

        first, listed = self._pace.request(begun)
        if first is not None:
            yield first
            yield from listed

    def delete(self, keys: Iterable[str]) -> None:
        """As the inner store, in its turn."""
        remaining = tuple(keys)
        self._pace.request(lambda: self._inner.delete(remaining))
