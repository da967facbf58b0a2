"""Limit the requests per second of the whole process after a store throttles it.

A store that receives too many requests answers 503 SlowDown. A backoff in each caller is not enough: a thousand
partitions with short pauses still send too many requests together. So all requests of a process pass one gate. The gate
is open until the first SlowDown. Then it admits half the requests of the last second, and half again after each
further SlowDown, at most once per second, because responses to requests of the former rate do not concern the new one.
Each successful request raises the rate (additive increase, multiplicative decrease, as in TCP) until the gate is open.

A throttled request waits for its next turn and is retried here: it had no effect, and otherwise its caller would have
to repeat all work before it.
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
    DeleteOutcome,
    ObjectInfo,
    ObjectStore,
    ObjectStream,
)
from ts_common.store.thaw_state import ThawState, ThawTier
from ts_common.store.wrappers.wrapped import WrappedStore

_Answer = TypeVar("_Answer")

_WINDOW_SECONDS = 1.0
_LOWEST = 1.0  # requests per second
# The rise of the rate after a second of successful requests: in requests per second, or as a share if that is greater.
_RISE = 1.0
_RISE_SHARE = 0.05
# S3 serves 3,500 writes per second under one prefix, so a higher rate needs no gate.
_OPEN = 3_500.0
# A limit outlives its cause, because few requests raise it slowly. If the store still throttles an agent that sends at
# its limit, it refuses a request again before the limit has doubled, which needs fifteen seconds.
_THROTTLED_SECONDS = 60.0


class Rate:
    """The computation of the gate, without a clock of its own; times are seconds of any one clock.

    Attributes:
        limit: requests per second; None while the gate is open.
    """

    def __init__(self) -> None:
        self.limit: float | None = None
        self.refused = 0
        self._asked: deque[float] = deque()
        self._last = float("-inf")  # the latest turn, which may be in the future
        self._fell_at = float("-inf")

    def admit(self, now: float) -> float:
        """Return how many seconds a request that arrives at `now` must wait for its turn."""
        while self._asked and self._asked[0] < now - _WINDOW_SECONDS:
            self._asked.popleft()
        self._asked.append(now)
        if self.limit is None:
            return 0.0
        self._last = max(now, self._last + 1 / self.limit)
        return self._last - now

    def served(self) -> None:
        """Record a successful request."""
        if self.limit is not None:
            self.limit += max(_RISE, _RISE_SHARE * self.limit) / self.limit
            if self.limit >= _OPEN:
                self.limit = None

    def is_throttled(self, now: float) -> bool:
        """Return whether the store throttled a request within the last minute."""
        return now - self._fell_at < _THROTTLED_SECONDS

    def slow_down(self, now: float) -> None:
        """Record a throttled request."""
        self.refused += 1
        if now - self._fell_at < _WINDOW_SECONDS:
            return
        self._fell_at = now
        rate = self.limit if self.limit is not None else len(self._asked) / _WINDOW_SECONDS
        self.limit = max(_LOWEST, rate / 2)
        self._last = max(now, self._last)  # waiting requests keep their turns


class Pace:
    """The gate of one process, for all its threads and stores."""

    def __init__(self) -> None:
        self._rate = Rate()  # guarded by the lock
        self._lock = threading.Lock()
        self._closed = threading.Event()

    @property
    def refused(self) -> int:
        """Number of throttled requests."""
        return self._rate.refused

    @property
    def limit(self) -> float | None:
        """Requests per second; None while the gate is open."""
        return self._rate.limit

    @property
    def is_throttled(self) -> bool:
        """Whether a store throttled a request within the last minute; the limit lasts longer."""
        return self._rate.is_throttled(time.monotonic())

    def request(self, call: Callable[[], _Answer]) -> _Answer:
        """Return the result of a call in its turn; retry it as long as the store throttles it.

        Raises:
            StoreThrottled: the store throttled it, and `close` was called.
        """
        while True:
            with self._lock:
                wait_seconds = self._rate.admit(time.monotonic())
            self._closed.wait(wait_seconds)
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
        """End all waits, because the process ends."""
        self._closed.set()


class PacedStore(WrappedStore):
    """A store whose requests pass the process's gate.

    Args:
        inner: the store; closed with this one.
        threads: the number of asynchronous puts that run at once.
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
        """Put in the inner store, in turn."""
        return self._pace.request(
            lambda: self._inner.put(
                key, body, size=size, metadata=metadata, condition=condition, crc32c=crc32c, archived=archived
            )
        )

    def copy_if_absent(self, source: str, target: str) -> ObjectInfo:
        """Copy in the inner store, in turn."""
        return self._pace.request(lambda: self._inner.copy_if_absent(source, target))

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        """Open in the inner store, in turn."""
        return self._open(key, byte_range)

    @contextmanager
    def _open(self, key: str, byte_range: ByteRange | None) -> Iterator[ObjectStream]:
        with ExitStack() as opened:
            yield self._pace.request(lambda: opened.enter_context(self._inner.open(key, byte_range)))

    def head(self, key: str) -> ObjectInfo:
        """Call the inner store, in turn."""
        return self._pace.request(lambda: self._inner.head(key))

    def thaw_state(self, key: str) -> ThawState:
        """Call the inner store, in turn."""
        return self._pace.request(lambda: self._inner.thaw_state(key))

    def thaw(self, key: str, days: int | None, tier: ThawTier) -> None:
        """Call the inner store, in turn."""
        self._pace.request(lambda: self._inner.thaw(key, days, tier))

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """List the inner store, the first page in turn; further pages need no turn."""

        def begun() -> tuple[ObjectInfo | None, Iterator[ObjectInfo]]:
            listed = self._inner.list(prefix, start_after=start_after)
            return next(listed, None), listed

        first, listed = self._pace.request(begun)
        if first is not None:
            yield first
            yield from listed

    def delete(self, keys: Iterable[str]) -> None:
        """Delete in the inner store, in turn."""
        remaining = tuple(keys)
        self._pace.request(lambda: self._inner.delete(remaining))

    def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
        """Delete in the inner store, in turn. A throttled object is one of the failures, and is not retried here."""
        return self._pace.request(lambda: self._inner.delete_matching(etags))
