"""One request and its response, as steps that an action performs, omits or interrupts.

Without a fault the steps are

    forward()    before-hooks, the head, the server's "100 Continue" if the client requested it, the body
    receive()    the head of the server's response, after-hooks
    relay()      the response to the client

`dev.local.proxy.actions` defines how each fault differs. Bodies are streamed. Only `keep()` reads a whole one, into
memory up to 1 MiB and into a temporary file above that.

Each request has its own connection to the server. The server could close a reused connection at the moment of its next
use, and the proxy would break a request without a rule.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from tempfile import SpooledTemporaryFile
from xml.sax.saxutils import escape

from dev.local.proxy.journal import Journal, Request
from dev.local.proxy.wire import BLOCK, CONTINUE, Framing, Head, Peer, PeerGoneError, answer_framing, request_framing

Hook = Callable[[Request], None]

_KEPT_IN_MEMORY = 1 << 20
_LOOK_EVERY_SECONDS = 0.02


class DropRequest(Exception):
    """A before-hook raises it to drop the request: it is not forwarded, and the client's connection is reset."""


@dataclass(frozen=True)
class Surroundings:
    """The shared state of all exchanges of a proxy.

    Attributes:
        server: its host and port.
        journal: of the proxy.
        before, after: hooks; the proxy changes the content of these lists, but not the lists.
        closing: set when the proxy ends.
        peers: all open connections; the end of the proxy interrupts them.
    """

    server: tuple[str, int]
    journal: Journal = field(default_factory=Journal)
    before: list[Hook] = field(default_factory=list)
    after: list[Hook] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)
    peers: set[Peer] = field(default_factory=set)


class Exchange:
    """One request in progress; owned by the thread of the client's connection.

    Args:
        client: the connection that its body is read from.
    """

    def __init__(self, head: Head, client: Peer, surroundings: Surroundings) -> None:
        self._head = head
        self._client = client
        self._around = surroundings
        self._journal = surroundings.journal
        self._number = self._journal.begin(head).number
        self._server: Peer | None = None
        self._answer: Head | None = None
        self._kept: SpooledTemporaryFile[bytes] | None = None
        self._body_unread = request_framing(head) != 0

    @property
    def request(self) -> Request:
        """The current state of the request."""
        return self._journal.get(self._number)

    def run(self, perform: "Callable[[Exchange], None]") -> None:
        """Perform an action, and record how it ended."""
        try:
            perform(self)
        except DropRequest:
            self._journal.note_fault(self._number, "DropRequest")
            self.cut()
        except PeerGoneError as gone:
            self._journal.note(self._number, broken=str(gone))
            self.cut()
        finally:
            if self._kept is not None:
                self._kept.close()
            self._leave_server()
            self._journal.finish(self._number)

    def note_fault(self, fault: str) -> None:
        """Record a fault before the client can observe it."""
        self._journal.note_fault(self._number, fault)

    def pause(self, seconds: float) -> None:
        """Wait for a time.

        Raises:
            PeerGoneError: the proxy was closed during the wait.
        """
        if self._around.closing.wait(seconds):
            raise PeerGoneError("proxy: closed while a request was delayed")

    def wait(self, event: threading.Event) -> None:
        """Wait for an event.

        Raises:
            PeerGoneError: the proxy was closed during the wait.
        """
        while not event.wait(_LOOK_EVERY_SECONDS):
            self.pause(0)

    def keep(self) -> None:
        """Read the whole body from the client; `forward` then sends this copy.

        Raises:
            PeerGoneError: the client did not send all of it.
        """
        kept: SpooledTemporaryFile[bytes] = SpooledTemporaryFile(_KEPT_IN_MEMORY)  # noqa: SIM115 - run() closes it
        self._kept = kept
        if self._head.expects_continue:
            self._client.send(CONTINUE)
        for block in self._client.blocks(request_framing(self._head)):
            kept.write(block)
        kept.seek(0)
        self._body_unread = False

    def forward(self, limit: int | None = None) -> None:
        """Send the request to the server, at most `limit` bytes of its body.

        Raises:
            DropRequest: raised by a before-hook.
            PeerGoneError: the client disconnected, or the server is unreachable.
        """
        for hook in tuple(self._around.before):
            hook(self.request)
        server = self._connect()
        server.send(self._head.raw)
        if self._head.expects_continue and self._refused_unseen(server):
            return
        for block in _limited(self._body(), limit):
            try:
                server.send(block)
            except PeerGoneError:
                # A server that rejects a body may respond before it closes; receive() reads that response.
                return
            self._journal.note_forwarded(self._number, len(block))
        self._body_unread = self._body_unread and limit is not None

    def receive(self) -> int:
        """Read the head of the server's response, and return its status.

        Raises:
            PeerGoneError: the server closed the connection without a response.
        """
        while self._answer is None:
            head = self._answer_head(self._open_server())
            if head.status >= 200:
                self._answer = head
        self._journal.note(self._number, server_status=self._answer.status)
        for hook in tuple(self._around.after):
            hook(self.request)
        return self._answer.status

    def relay(self, limit: int | None = None) -> None:
        """Send the server's response to the client, at most `limit` bytes of its body.

        Raises:
            PeerGoneError: the client disconnected, or the server closed the connection within the body.
        """
        if self._answer is None:
            raise RuntimeError("relay() before receive()")
        framing: Framing = answer_framing(self._answer, self._head.method)
        self._journal.note(self._number, status=self._answer.status)
        self._client.send(self._answer.raw)
        for block in _limited(self._open_server().blocks(framing), limit):
            self._client.send(block)
        if limit is not None or framing == "close" or self._answer.says_close or self._body_unread:
            self._client.finish()

    def refuse(self, status: int, code: str, message: str) -> None:
        """Answer with an error of S3, in place of the server.

        Raises:
            PeerGoneError: the client disconnected.
        """
        body = (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            f"<Error><Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
            f"<Resource>{escape(self.request.path)}</Resource><RequestId>proxy-{self._number}</RequestId></Error>"
        ).encode()
        self._answer_itself(
            status, code, body, "Content-Type: application/xml", f"x-amz-request-id: proxy-{self._number}"
        )

    def show_page(self, body: bytes) -> None:
        """Answer 200 with a web page, in place of the server.

        Raises:
            PeerGoneError: the client disconnected.
        """
        self._answer_itself(200, "OK", body, "Content-Type: text/html")

    def _answer_itself(self, status: int, reason: str, body: bytes, *headers: str) -> None:
        # A client that waits for "100 Continue" receives the response instead; otherwise the body is read first.
        if not self._head.expects_continue:
            for _ in self._body():
                pass
            self._body_unread = False
        self._journal.note(self._number, status=status)
        lines = [
            f"HTTP/1.1 {status} {reason}",
            f"Content-Length: {len(body)}",
            *headers,
            *(["Connection: close"] if self._body_unread else []),
        ]
        self._client.send(Head(tuple(line.encode() for line in lines)).raw)
        if self._head.method != "HEAD":
            self._client.send(body)
        if self._body_unread:
            self._client.finish()

    def cut(self) -> None:
        """Reset both connections."""
        self.cut_client()
        if self._server is not None:
            self._server.reset()

    def cut_client(self) -> None:
        """Reset the client's connection."""
        self._client.reset()

    def _refused_unseen(self, server: Peer) -> bool:
        """Return whether the server responds before the body; otherwise relay its "100 Continue" to the client."""
        first = self._answer_head(server)
        if first.status >= 200:
            self._answer = first
            return True
        if self._kept is None:
            self._client.send(CONTINUE)
        return False

    def _answer_head(self, server: Peer) -> Head:
        head = server.read_head()
        if head is None:
            raise PeerGoneError("server: closed without a response")
        return head

    def _body(self) -> Iterator[bytes]:
        if self._kept is None:
            yield from self._client.blocks(request_framing(self._head))
            return
        while block := self._kept.read(BLOCK):
            yield block

    def _connect(self) -> Peer:
        try:
            connection = socket.create_connection(self._around.server)
        except OSError as error:
            raise PeerGoneError(f"server: {error}") from error
        server = Peer(connection, "server")
        self._server = server
        self._around.peers.add(server)
        self.pause(0)  # the proxy may have interrupted all peers before this one was added
        return server

    def _open_server(self) -> Peer:
        if self._server is None:
            raise RuntimeError("receive() before forward()")
        return self._server

    def _leave_server(self) -> None:
        if self._server is not None:
            self._around.peers.discard(self._server)
            with suppress(OSError):
                self._server.close()


def _limited(blocks: Iterator[bytes], limit: int | None) -> Iterator[bytes]:
    """Yield at most `limit` bytes, without reading more."""
    if limit is None:
        yield from blocks
        return
    left = limit
    while left > 0 and (block := next(blocks, b"")):
        yield block[:left]
        left -= len(block)
