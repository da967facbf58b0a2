"""One call at a time, as the binding lets one thread at a time into a client.

A callback that runs inside of a call may call again. In asyncio that call can be on another thread. So the caller is
identified as the binding identifies it: by the identity that `AIOConsumer` sets in a context variable, else by its
thread.
"""

import threading
from types import TracebackType
from typing import Any

from confluent_kafka import cimpl

_binding: Any = cimpl  # which has no public name for it
_identity = _binding._reentry_identity_var


class Gate:
    """A lock that its holder may enter again, on any thread of the same call chain; a context manager of one call.

    Attributes:
        is_closed: whether calls are refused.
    """

    def __init__(self) -> None:
        self.is_closed = False
        self._lock = threading.Lock()  # which another thread of the chain may release
        self._holder = 0
        self._depth = 0

    def check(self) -> None:
        """Refuse a call after the gate was closed.

        Raises:
            RuntimeError: as the binding does.
        """
        if self.is_closed:
            raise RuntimeError("Consumer closed")

    def enter(self) -> None:
        """Enter, also after the gate was closed; `leave` follows."""
        caller = _identity.get() or threading.get_ident()
        if self._holder == caller:  # no other caller can make this true
            self._depth += 1
            return
        self._lock.acquire()
        self._holder, self._depth = caller, 1

    def leave(self) -> None:
        """Leave."""
        self._depth -= 1
        if not self._depth:
            self._holder = 0
            self._lock.release()

    def __enter__(self) -> None:
        self.enter()
        if self.is_closed:
            self.leave()
            self.check()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()
