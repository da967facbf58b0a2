"""An event loop whose clock jumps to the next timer, so that tests of timeouts need no time."""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, ParamSpec

P = ParamSpec("P")
_LONGEST = 100 * 86_400.0  # seconds of virtual time


class _Selector(selectors.DefaultSelector):
    """Moves the clock where a real selector waits."""

    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise RuntimeError("nothing will ever happen on this loop")
        self.loop.now += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop. Calls for threads run at once, or later by the test if it holds them.

    Attributes:
        now: seconds since the loop began.
        held: calls that wait for the test; None runs each at once.
    """

    def __init__(self) -> None:
        selector = _Selector()
        selector.loop = self
        self.now = 0.0
        self.held: list[Callable[[], None]] | None = None
        super().__init__(selector)

    def time(self) -> float:
        return self.now

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = self.create_future()

        def call() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:  # noqa: BLE001  (as an executor does)
                future.set_exception(error)

        if self.held is None:
            call()
        else:
            self.held.append(call)
        return future

    def release(self) -> None:
        """Run the calls that were held, and hold no more."""
        held, self.held = self.held or [], None
        for call in held:
            call()


def current() -> VirtualLoop:
    """Return the running loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an asynchronous test on such a loop; nothing of it may stay."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        loop = VirtualLoop()
        try:
            loop.run_until_complete(asyncio.wait_for(test(*args, **kwargs), _LONGEST))
            assert not asyncio.all_tasks(loop)
        finally:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.close()

    return run
