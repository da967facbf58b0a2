"""What may happen to a request on its way to the store and back.

| action | the server | the client |
| --- | --- | --- |
| Pass() | gets the request | gets the answer |
| Delay(seconds, then) | gets it later | waits |
| Hold(then) | gets it after release() | waits |
| CutBefore() | hears nothing | connection reset |
| CutAfter(size) | gets `size` bytes of the body, then a reset | connection reset |
| Answer(status, code, message) | hears nothing | gets this error of S3 |
| WebPage(body) | hears nothing | gets 200 and a web page |
| TruncateAnswer(size) | gets the request | gets the real head, `size` bytes of the body, and the end |
| SwallowAnswer() | gets the request and answers | connection reset |
| LandLate(silent) | gets the whole request after release() | connection reset at once, or silence until then |

Each counts in `fired` how often it happened: when the request is held, refused or cut, not when a rule matched. A test
waits for that count, or asserts it, and so knows that the fault was there.
"""

import threading
from abc import ABC, abstractmethod

from ts_local.proxy.exchange import Exchange


class Action(ABC):
    """One fault, for any number of requests and from any thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._fired = 0  # owned by whoever holds _guard

    @property
    def fired(self) -> int:
        """How often it happened."""
        with self._guard:
            return self._fired

    @abstractmethod
    def perform(self, exchange: Exchange) -> None:
        """Take a request along its way, as far as it goes.

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
    """Nothing happens; what is left of a request after a Delay or a Hold. It counts nothing."""

    def perform(self, exchange: Exchange) -> None:
        """Forward, receive, relay."""
        exchange.forward()
        exchange.receive()
        exchange.relay()


class Delay(Action):
    """The request waits before it is forwarded.

    Args:
        seconds: how long.
        then: what happens after; None passes it on.
    """

    def __init__(self, seconds: float, then: Action | None = None) -> None:
        super().__init__()
        self.seconds = seconds
        self.then = then or Pass()

    def perform(self, exchange: Exchange) -> None:
        """Wait, and go on."""
        self._happens(exchange)
        exchange.pause(self.seconds)
        self.then.perform(exchange)

    def __repr__(self) -> str:
        return f"Delay({self.seconds:g})"


class Hold(Action):
    """The request waits, its body unread, until `release()`.

    A client that gives up meanwhile may have left the whole request in the sockets' buffers, which then lands: use
    LandLate where that matters, as it always lands, and a before-hook that raises DropRequest where it never may.

    Args:
        then: what happens after; None passes it on.
    """

    def __init__(self, then: Action | None = None) -> None:
        super().__init__()
        self.then = then or Pass()
        self._released = threading.Event()

    def release(self) -> None:
        """Let all requests go on: those that are held, and those to come."""
        self._released.set()

    def perform(self, exchange: Exchange) -> None:
        """Wait, and go on."""
        self._happens(exchange)
        exchange.wait(self._released)
        self.then.perform(exchange)


class CutBefore(Action):
    """The client's connection is reset, and the server hears nothing of it."""

    def perform(self, exchange: Exchange) -> None:
        """Cut."""
        self._happens(exchange)
        exchange.cut()


class CutAfter(Action):
    """Both connections are reset in the middle of the request's body.

    Args:
        size: bytes of the body that the server gets, chunk sizes included; the whole body where it is not longer.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def perform(self, exchange: Exchange) -> None:
        """Forward a part, and cut."""
        exchange.forward(self.size)
        self._happens(exchange)
        exchange.cut()

    def __repr__(self) -> str:
        return f"CutAfter({self.size})"


class Answer(Action):
    """The store refuses: `Answer(503, "SlowDown", "Reduce your request rate.")`; it never sees the request.

    Args:
        status: of HTTP.
        code: of S3.
        message: for people.
    """

    def __init__(self, status: int, code: str, message: str = "as the test asks") -> None:
        super().__init__()
        self.status = status
        self.code = code
        self.message = message

    def perform(self, exchange: Exchange) -> None:
        """Refuse."""
        self._happens(exchange)
        exchange.refuse(self.status, self.code, self.message)

    def __repr__(self) -> str:
        return f"Answer({self.status}, {self.code!r})"


class WebPage(Action):
    """A balancer in maintenance: it answers 200 with a page of its own, and the store never sees the request.

    Args:
        body: of the page; this one is well-formed XML, as many are.
    """

    def __init__(self, body: bytes = b"<html><body>maintenance</body></html>") -> None:
        super().__init__()
        self.body = body

    def perform(self, exchange: Exchange) -> None:
        """Answer."""
        self._happens(exchange)
        exchange.show_page(self.body)


class TruncateAnswer(Action):
    """The answer's body ends early, though its head promises more.

    Args:
        size: bytes of the body that the client gets.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def perform(self, exchange: Exchange) -> None:
        """Relay a part. The end comes in order: a reset could take bytes with it that were sent."""
        exchange.forward()
        exchange.receive()
        self._happens(exchange)
        exchange.relay(self.size)

    def __repr__(self) -> str:
        return f"TruncateAnswer({self.size})"


class SwallowAnswer(Action):
    """The server does what was asked, and the client never hears of it; `Request.server_status` tells the answer."""

    def perform(self, exchange: Exchange) -> None:
        """Forward, receive, cut."""
        exchange.forward()
        exchange.receive()
        self._happens(exchange)
        exchange.cut()


class LandLate(Action):
    """The client gives the request up, and it reaches the server all the same, when `release()` is called.

    It has happened (`fired`) once the whole request is here, so that the client's end no longer matters. What the
    server answers then stands in `Request.server_status`, and in `outcomes`.

    Args:
        silent: keep the client waiting, until its own patience ends or the request has landed; else reset it at once.
    """

    def __init__(self, *, silent: bool = False) -> None:
        super().__init__()
        self.silent = silent
        self._released = threading.Event()
        self._outcomes: list[int] = []  # owned by whoever holds _guard

    def release(self) -> None:
        """Let all requests land: those that are kept, and those to come."""
        self._released.set()

    @property
    def outcomes(self) -> tuple[int, ...]:
        """The statuses that the server gave, in the order in which requests landed."""
        with self._guard:
            return tuple(self._outcomes)

    def perform(self, exchange: Exchange) -> None:
        """Take the request in, cut, wait, forward."""
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
