"""The requests that passed a proxy: one frozen Request each, replaced after each step.

Facts that the client can observe (the status of a response, a fault) are recorded before the client can observe them.
So a test finds them here as soon as it has its response. Only `finished` and `broken` follow later; a test waits for
them.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

from dev.local.proxy.wire import Head


@dataclass(frozen=True)
class Request:
    """One request, up to its last step.

    Attributes:
        number: from 0, ordered by the arrival of heads.
        path: unquoted: "/bucket/prefix/key".
        query: still quoted, without the question mark.
        headers: by name in lower case.
        started: when its head was read, on the monotonic clock.
        forwarded: bytes of its body that were sent to the server, framing included.
        server_status: of the server's response; None without one.
        status: of the client's response; None without one.
        faults: in order: "Delay(0.1)", "CutAfter(100)".
        broken: how a connection ended that the proxy did not cut: "server: [Errno 111] Connection refused".
        finished: when the exchange ended, on the monotonic clock; None until then.
    """

    number: int
    method: str
    path: str
    query: str
    headers: Mapping[str, str] = field(repr=False)  # they contain signatures
    started: float
    forwarded: int = 0
    server_status: int | None = None
    status: int | None = None
    faults: tuple[str, ...] = ()
    broken: str | None = None
    finished: float | None = None

    @property
    def target(self) -> str:
        """Path and query, as rules match them: "/bucket/key?uploads=1"."""
        return f"{self.path}?{self.query}" if self.query else self.path


class Journal:
    """All requests of a proxy; any thread may use it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._requests: list[Request] = []  # guarded by _guard; the index is the number

    def begin(self, head: Head) -> Request:
        """Record a request whose head was read, and return it."""
        path, _, query = head.target.partition("?")
        with self._guard:
            number = len(self._requests)
            request = Request(number, head.method, unquote(path), query, head.fields, time.monotonic())
            self._requests.append(request)
        return request

    def get(self, number: int) -> Request:
        """Return the current state of a request."""
        with self._guard:
            return self._requests[number]

    def note(self, number: int, **changes: Any) -> None:
        """Replace fields of a request."""
        with self._guard:
            self._requests[number] = replace(self._requests[number], **changes)

    def note_fault(self, number: int, fault: str) -> None:
        """Add a fault."""
        with self._guard:
            request = self._requests[number]
            self._requests[number] = replace(request, faults=(*request.faults, fault))

    def note_forwarded(self, number: int, size: int) -> None:
        """Add bytes of the body."""
        with self._guard:
            request = self._requests[number]
            self._requests[number] = replace(request, forwarded=request.forwarded + size)

    def finish(self, number: int) -> None:
        """Record the end of a request."""
        self.note(number, finished=time.monotonic())

    def snapshot(self) -> list[Request]:
        """Return all requests in the order of their numbers."""
        with self._guard:
            return list(self._requests)
