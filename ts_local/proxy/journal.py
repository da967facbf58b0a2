"""What passed a proxy: one frozen Request each, replaced as its way goes on.

What the client can learn of (an answer's status, a fault) is noted before the client can learn it. A test that was
answered finds it here at once; only `finished` and `broken` follow later, and are waited for.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

from ts_local.proxy.wire import Head


@dataclass(frozen=True)
class Request:
    """One request, as far as it came.

    Attributes:
        number: from 0, in the order in which heads were read.
        method: of HTTP.
        path: unquoted: "/bucket/prefix/key".
        query: still quoted, without the question mark.
        headers: by name in lower case.
        started: when its head was read, on the monotonic clock.
        forwarded: how many bytes of its body the server was sent, framing included.
        server_status: what the server answered; None where it was not asked or has not answered.
        status: what the client was answered; None where it was not.
        faults: what was done to it, in order: "Delay(0.1)", "CutAfter(100)".
        broken: how a connection ended that nobody here cut: "server: [Errno 111] Connection refused".
        finished: when the proxy was through with it; None until then.
    """

    number: int
    method: str
    path: str
    query: str
    headers: Mapping[str, str] = field(repr=False)  # they hold signatures
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
    """All requests of a proxy; safe for use from any thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._requests: list[Request] = []  # owned by whoever holds _guard; the index is the number

    def begin(self, head: Head) -> Request:
        """Note a request whose head was read."""
        path, _, query = head.target.partition("?")
        with self._guard:
            number = len(self._requests)
            request = Request(number, head.method, unquote(path), query, head.fields, time.monotonic())
            self._requests.append(request)
        return request

    def get(self, number: int) -> Request:
        """As it stands now."""
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
        """Nothing more will happen to the request."""
        self.note(number, finished=time.monotonic())

    def snapshot(self) -> list[Request]:
        """All of them, in the order of their numbers."""
        with self._guard:
            return list(self._requests)
