"""Deadlines that move with each heartbeat."""

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable


class Alarm:
    """Calls a function once its deadline has passed, on the event loop.

    A heartbeat only moves the deadline. The timer of the loop is set again when it fires early, so ten thousand
    members do not fill the loop with cancelled timers.

    Args:
        loop: the event loop.
        call: the function.
    """

    __slots__ = ("_call", "_deadline", "_handle", "_loop")

    def __init__(self, loop: AbstractEventLoop, call: Callable[[], None]) -> None:
        self._loop = loop
        self._call = call
        self._deadline: float | None = None
        self._handle: TimerHandle | None = None

    def set(self, seconds: float) -> None:
        """Set the deadline, in place of an earlier one."""
        self._deadline = self._loop.time() + max(seconds, 0.0)
        if self._handle is not None and self._handle.when() > self._deadline:
            self._handle.cancel()
            self._handle = None
        if self._handle is None:
            self._handle = self._loop.call_at(self._deadline, self._fire)

    def cancel(self) -> None:
        """Remove the deadline."""
        self._deadline = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        fired, self._handle = self._handle, None
        if self._deadline is None or fired is None:
            return
        if fired.when() < self._deadline:
            self._handle = self._loop.call_at(self._deadline, self._fire)
            return
        self._deadline = None
        self._call()
