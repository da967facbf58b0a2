"""Faults of a request between client and store.

| action | the server | the client |
| --- | --- | --- |
| Pass() | receives the request | receives the response |
| Delay(seconds, then) | receives it later | waits |
| Hold(then) | receives it after release() | waits |
| CutBefore() | receives nothing | connection reset |
| CutAfter(size) | receives `size` bytes of the body, then a reset | connection reset |
| Answer(status, code, message) | receives nothing | receives this error of S3 |
| WebPage(body) | receives nothing | receives 200 and a web page |
| TruncateAnswer(size) | receives the request | receives the real head, `size` bytes of the body, and the end |
| SwallowAnswer() | receives the request and responds | connection reset |
| LandLate(silent) | receives the whole request after release() | connection reset at once, or silence until then |

Each action counts in `fired` how often it happened: when the request is held, rejected or cut, not when a rule matched.
A test waits for that count, or asserts it, to be sure that the fault happened.
"""

import threading
from abc import ABC, abstractmethod

from dev.local.proxy.exchange import Exchange


class Action(ABC):
    """One fault, for any number of requests and from any thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._fired = 0  # guarded by _guard

    @property
    def fired(self) -> int:
        """Number of times that it happened."""
        with self._guard:
            return self._fired

    @abstractmethod
    def perform(self, exchange: Exchange) -> None:
        """Perform the steps of an exchange, with the fault.

        Raises:
            PeerGoneError, DropRequest: as the exchange's steps.
        """

    def _happens(self, exchange: Exchange) -> None:
        exchange.note_fault(repr(self))
        with self._guard:
            self._fired += 1

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Pass(Action):
    """No fault; also the rest of a request after a Delay or a Hold. It is not counted."""

    def perform(self, exchange: Exchange) -> None:
        """Forward, receive and relay."""
        exchange.forward()
        exchange.receive()
        exchange.relay()


class Delay(Action):
    """The request waits before it is forwarded.

    Args:
        then: the next action; None means Pass.
    """

    def __init__(self, seconds: float, then: Action | None = None) -> None:
        super().__init__()
        self.seconds = seconds
        self.then = then or Pass()

    def perform(self, exchange: Exchange) -> None:
        """Wait, then perform the next action."""
        self._happens(exchange)
        exchange.pause(self.seconds)
        self.then.perform(exchange)

    def __repr__(self) -> str:
        return f"Delay({self.seconds:g})"


class Hold(Action):
    """The request waits, its body unread, until `release()`.

    If the client gives up during the wait, the sockets' buffers may contain the whole request, which then reaches the
    server. Use LandLate to be sure that it does, or a before-hook that raises DropRequest to be sure that it does not.

    Args:
        then: the next action; None means Pass.
    """

    def __init__(self, then: Action | None = None) -> None:
        super().__init__()
        self.then = then or Pass()
        self._released = threading.Event()

    def release(self) -> None:
        """Continue all requests: held ones and later ones."""
        self._released.set()

    def perform(self, exchange: Exchange) -> None:
        """Wait for the release, then perform the next action."""
        self._happens(exchange)
        exchange.wait(self._released)
        self.then.perform(exchange)


class CutBefore(Action):
    """The client's connection is reset, and the server receives nothing."""

    def perform(self, exchange: Exchange) -> None:
        """Cut both connections."""
        self._happens(exchange)
        exchange.cut()


class CutAfter(Action):
    """Both connections are reset in the middle of the request's body.

    Args:
        size: bytes of the body that the server receives, chunk sizes included; all of a shorter body.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def perform(self, exchange: Exchange) -> None:
        """Forward a part, then cut both connections."""
        exchange.forward(self.size)
        self._happens(exchange)
        exchange.cut()

    def __repr__(self) -> str:
        return f"CutAfter({self.size})"


class Answer(Action):
    """The proxy answers with an error, `Answer(503, "SlowDown", "Reduce your request rate.")`; the store sees nothing.

    Args:
        code: of S3.
        message: for people.
    """

    def __init__(self, status: int, code: str, message: str = "injected by the test") -> None:
        super().__init__()
        self.status = status
        self.code = code
        self.message = message

    def perform(self, exchange: Exchange) -> None:
        """Answer with the error."""
        self._happens(exchange)
        exchange.refuse(self.status, self.code, self.message)

    def __repr__(self) -> str:
        return f"Answer({self.status}, {self.code!r})"


class WebPage(Action):
    """A load balancer in maintenance: it answers 200 with its own page, and the store sees nothing.

    Args:
        body: of the page; the default is well-formed XML, like many pages.
    """

    def __init__(self, body: bytes = b"<html><body>maintenance</body></html>") -> None:
        super().__init__()
        self.body = body

    def perform(self, exchange: Exchange) -> None:
        """Answer with the page."""
        self._happens(exchange)
        exchange.show_page(self.body)


class TruncateAnswer(Action):
    """The body of the response is shorter than its Content-Length.

    Args:
        size: bytes of the body that the client receives.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def perform(self, exchange: Exchange) -> None:
        """Relay a part, then close the connection; a reset could discard bytes that were sent."""
        exchange.forward()
        exchange.receive()
        self._happens(exchange)
        exchange.relay(self.size)

    def __repr__(self) -> str:
        return f"TruncateAnswer({self.size})"


class SwallowAnswer(Action):
    """The server processes the request, but the client receives no response; it is in `Request.server_status`."""

    def perform(self, exchange: Exchange) -> None:
        """Forward, receive, then cut both connections."""
        exchange.forward()
        exchange.receive()
        self._happens(exchange)
        exchange.cut()


class LandLate(Action):
    """The client gives up, but the request reaches the server when `release()` is called.

    It has happened (`fired`) when the proxy has the whole request, so the client's end no longer matters. The server's
    response is in `Request.server_status` and in `outcomes`.

    Args:
        silent: True lets the client wait for its own timeout or for the server; False resets its connection at once.
    """

    def __init__(self, *, silent: bool = False) -> None:
        super().__init__()
        self.silent = silent
        self._released = threading.Event()
        self._outcomes: list[int] = []  # guarded by _guard

    def release(self) -> None:
        """Deliver all requests: kept ones and later ones."""
        self._released.set()

    @property
    def outcomes(self) -> tuple[int, ...]:
        """The server's statuses, ordered by the arrival of requests."""
        with self._guard:
            return tuple(self._outcomes)

    def perform(self, exchange: Exchange) -> None:
        """Read the whole request, cut the client, wait, then forward."""
        exchange.keep()
        self._happens(exchange)
        if not self.silent:
            exchange.cut_client()
        exchange.wait(self._released)
        exchange.forward()
        status = exchange.receive()
        with self._guard:
            self._outcomes.append(status)
        exchange.cut()

    def __repr__(self) -> str:
        return f"LandLate(silent={self.silent})"
