"""A simulated clock, and threads that wait by it: one runs at a time, in the order of their times.

Agents' code blocks in the middle of a task, so each task under way needs a stack. Threads give it without a package;
the change to another one costs 7 to 20 us, about as much as a request's bookkeeping. A worker without a task needs no
thread: its wait raises `Parked`, and a notification runs it again from its start.
"""

import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self
from unittest.mock import patch

_BEGAN = 1_800_000_000.0  # the wall clock at the simulated second 0
_STACK_BYTES = 1 << 19
_LEAST_WAIT_SECONDS = 1e-6  # more than the rounding of a sum of seconds

Act = Callable[[], object]


class Parked(BaseException):
    """A worker found its queue empty.

    Attributes:
        condition: that it waits for.
        seconds: how long at most; None for any time.
    """

    def __init__(self, condition: "Condition", seconds: float | None) -> None:
        super().__init__()
        self.condition = condition
        self.seconds = seconds


class _Thread:
    """One of the pool's threads, or the one that called `run_until`."""

    def __init__(self, act: Act) -> None:
        self.act = act
        self.turn = threading.Lock()  # released by the thread that gives it the turn
        self.turn.acquire()


class Clock:
    """Seconds since the start, and what happens when.

    Attributes:
        now: seconds.
    """

    def __init__(self) -> None:
        self.now = 0.0
        # An act, or a thread that continues; the number keeps the order of equal times.
        self._due: list[tuple[float, int, Act | _Thread, bool]] = []
        self._numbers = itertools.count()
        self._free: list[_Thread] = []
        self._main = _Thread(lambda: None)
        self._own = threading.local()
        self._own.thread = self._main
        self._error: BaseException | None = None

    def at(self, when: float, act: Act) -> None:
        """Have a function called at a time, which may neither sleep nor wait."""
        heapq.heappush(self._due, (max(when, self.now), next(self._numbers), act, False))

    def spawn(self, act: Act) -> None:
        """Have a function called now, which may sleep and wait."""
        heapq.heappush(self._due, (self.now, next(self._numbers), act, True))

    def sleep(self, seconds: float) -> None:
        """Let the time pass for the calling thread."""
        until = self.now + max(0.0, seconds)
        if not self._due or until < self._due[0][0]:
            self.now = until
            return
        heapq.heappush(self._due, (until, next(self._numbers), self._own.thread, True))
        self._continue_others(self._own.thread)

    def run_until(self, when: float) -> None:
        """Run everything that is due up to a time.

        Raises:
            BaseException: what a function raised.
        """
        heapq.heappush(self._due, (when, next(self._numbers), self._main, True))
        self._continue_others(self._main)
        if self._error is not None:
            raise self._error

    def serve(self, work: Act) -> None:
        """Run a worker's loop, again after each wait for its queue."""
        try:
            work()
        except Parked as parked:
            parked.condition.park(lambda: self.serve(work), parked.seconds)

    @contextmanager
    def installed(self) -> Iterator[Self]:
        """Replace the clock of the process."""
        with patch.multiple(
            time,
            time=lambda: _BEGAN + self.now,
            time_ns=lambda: int((_BEGAN + self.now) * 1e9),
            monotonic=lambda: self.now,
            monotonic_ns=lambda: int(self.now * 1e9),
            sleep=self.sleep,
        ):
            yield self

    @contextmanager
    def waits(self) -> Iterator[None]:
        """Let conditions and events that are made meanwhile wait by this clock."""
        with patch.multiple(threading, Condition=lambda _=None: Condition(self), Event=lambda: Event(self)):
            yield

    def _continue_others(self, own: _Thread) -> None:
        """Run what is due, on this thread as far as possible, until it is this thread's turn."""
        while True:
            self.now, _, due, may_wait = heapq.heappop(self._due)
            if due is own:
                return
            if isinstance(due, _Thread):
                due.turn.release()
                own.turn.acquire()
                return
            if may_wait and self._free and self._free[-1] is own:  # its own act has ended
                self._free.pop().act = due
                return
            if may_wait:
                self._thread_for(due).turn.release()
                own.turn.acquire()
                return
            self._call(due)

    def _thread_for(self, act: Act) -> _Thread:
        if self._free:
            thread = self._free.pop()
            thread.act = act
            return thread
        thread = _Thread(act)
        size = threading.stack_size(_STACK_BYTES)
        threading.Thread(target=self._run, args=(thread,), daemon=True).start()
        threading.stack_size(size)
        return thread

    def _run(self, own: _Thread) -> None:
        self._own.thread = own
        own.turn.acquire()
        while True:
            self._call(own.act)
            self._free.append(own)
            self._continue_others(own)

    def _call(self, act: Act) -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001  (`run_until` raises it)
            self._error = self._error or error
            heapq.heappush(self._due, (self.now, -next(self._numbers), self._main, True))


class Condition:
    """A `threading.Condition` of simulated threads; only one of them runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._parked: deque[list[Act]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wait(self, timeout: float | None = None) -> None:
        """End the worker's run; it runs again at the notification, or after the timeout in seconds."""
        raise Parked(self, timeout)

    def park(self, work: Act, seconds: float | None) -> None:
        """Run a worker at the next notification, or after some seconds."""
        entry = [work]
        self._parked.append(entry)
        if seconds is not None:
            self._clock.at(self._clock.now + max(seconds, _LEAST_WAIT_SECONDS), lambda: self._wake(entry))

    def notify(self) -> None:
        """Run the worker that has waited longest."""
        if self._parked:
            self._clock.spawn(self._parked.popleft().pop())

    def _wake(self, entry: list[Act]) -> None:
        if entry:
            self._parked = deque(each for each in self._parked if each is not entry)
            self._clock.spawn(entry.pop())


class Event:
    """A `threading.Event` that is never set: a wait by the clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def is_set(self) -> bool:
        """Return whether it is set."""
        return False

    def wait(self, timeout: float) -> bool:
        """Wait so many seconds."""
        if timeout > 0:
            self._clock.sleep(timeout)
        return False
