"""HTTP/1.1 as bytes on a socket: heads are parsed, bodies pass by in the framing that they came in.

A proxy that breaks things on purpose must not repair others by accident: what it sends on is what it received, byte
by byte, chunk sizes and trailers included. So nothing here decodes a body, and a `Head` keeps its lines. RFC 9112
says how long a body is: `request_framing` and `answer_framing` say it in three words.

    Framing     a number of bytes, "chunked", or "close" for what lasts until the connection ends
    Head        start line and headers
    Peer        one connection, to the client or to the server; every trouble on it is a PeerGoneError that says whose
"""

import io
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Framing = int | Literal["chunked", "close"]

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
BLOCK = 1 << 17
_LONGEST_LINE = 1 << 16
# How long a client that still sends may take to notice that it was answered.
_LINGER_SECONDS = 0.5
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


class PeerGoneError(ConnectionError):
    """A connection ended, or was ended, in the middle of an exchange. The message says whose and how."""


@dataclass(frozen=True)
class Head:
    """The lines before a body, without their ends; the first is the request line or the status line."""

    lines: tuple[bytes, ...]

    @property
    def raw(self) -> bytes:
        """As it goes over the wire."""
        return b"\r\n".join(self.lines) + b"\r\n\r\n"

    @cached_property
    def fields(self) -> dict[str, str]:
        """Header values by name in lower case; of several equal names the last."""
        split = (line.decode("latin-1").partition(":") for line in self.lines[1:])
        return {name.strip().lower(): value.strip() for name, _, value in split}

    @property
    def method(self) -> str:
        """Of a request."""
        return self._word(0)

    @property
    def target(self) -> str:
        """Of a request: the path, still quoted, and the query."""
        return self._word(1)

    @property
    def status(self) -> int:
        """Of an answer."""
        return int(self._word(1))

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits for the server's word before it sends the body."""
        return self.fields.get("expect", "").lower() == "100-continue"

    @property
    def says_close(self) -> bool:
        """Whether the connection ends after this."""
        return "close" in self.fields.get("connection", "").lower()

    def _word(self, number: int) -> str:
        return self.lines[0].decode("latin-1").split(" ")[number]


def request_framing(head: Head) -> Framing:
    """How long a request's body is; without a word of it there is none."""
    if "chunked" in head.fields.get("transfer-encoding", "").lower():
        return "chunked"
    return int(head.fields.get("content-length", 0))


def answer_framing(head: Head, method: str) -> Framing:
    """How long the body of an answer to `method` is."""
    if method == "HEAD" or head.status in {204, 304}:
        return 0
    if "chunked" in head.fields.get("transfer-encoding", "").lower():
        return "chunked"
    length = head.fields.get("content-length")
    return "close" if length is None else int(length)


class Peer:
    """One connection; owned by one thread, but `interrupt` may come from any.

    Args:
        connection: taken over.
        name: "client" or "server", for the errors.
    """

    def __init__(self, connection: socket.socket, name: str) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._reader = io.BufferedReader(connection.makefile("rb", buffering=0), BLOCK)
        self.name = name
        self.closed = False

    def read_head(self) -> Head | None:
        """The next head, or None where the peer ended the connection before one began.

        Raises:
            PeerGoneError: it ended within the head, or sent a line without an end.
        """
        lines: list[bytes] = []
        with self._attributed():
            while (line := self._reader.readline(_LONGEST_LINE)) not in {b"\r\n", b"\n"}:
                if not line and not lines:
                    return None
                if not line.endswith(b"\n"):
                    raise PeerGoneError(f"{self.name}: a head that breaks off after {line[:80]!r}")
                lines.append(line.rstrip(b"\r\n"))
        return Head(tuple(lines))

    def blocks(self, framing: Framing) -> Iterator[bytes]:
        """The body as it comes, framing included.

        Raises:
            PeerGoneError: it ended before the framing said so.
        """
        if framing == "chunked":
            yield from self._chunks()
        elif framing == "close":
            while block := self._read(BLOCK):
                yield block
        else:
            yield from self._exactly(framing)

    def send(self, data: bytes) -> None:
        """All of it.

        Raises:
            PeerGoneError: nobody takes it.
        """
        with self._attributed():
            self._socket.sendall(data)

    def reset(self) -> None:
        """End the connection as a crash or a firewall does: the peer reads ECONNRESET."""
        if not self.closed:
            with suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        self.close()

    def finish(self) -> None:
        """End the connection in order, so that the peer reads all that was sent, even where it still sends itself.

        Closing with bytes unread would reset the connection, and the peer could lose the answer.
        """
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            self._socket.settimeout(_LINGER_SECONDS)
            while self._socket.recv(BLOCK):
                pass
        self.close()

    def close(self) -> None:
        """Close."""
        self.closed = True
        self._reader.close()
        self._socket.close()

    def interrupt(self) -> None:
        """From another thread: whoever waits on this connection sees it end."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _chunks(self) -> Iterator[bytes]:
        while True:
            line = self._line()
            yield line
            size = int(line.partition(b";")[0], 16)
            if size == 0:
                break
            yield from self._exactly(size + 2)
        while True:  # trailers, and the empty line
            line = self._line()
            yield line
            if line in {b"\r\n", b"\n"}:
                return

    def _exactly(self, size: int) -> Iterator[bytes]:
        left = size
        while left:
            block = self._read(min(left, BLOCK))
            if not block:
                raise PeerGoneError(f"{self.name}: closed with {left} of {size} bytes to come")
            left -= len(block)
            yield block

    def _line(self) -> bytes:
        with self._attributed():
            line = self._reader.readline(_LONGEST_LINE)
        if not line.endswith(b"\n"):
            raise PeerGoneError(f"{self.name}: closed within a chunked body")
        return line

    def _read(self, size: int) -> bytes:
        with self._attributed():
            return self._reader.read1(size)

    @contextmanager
    def _attributed(self) -> Iterator[None]:
        try:
            yield
        except PeerGoneError:
            raise
        except OSError as error:
            raise PeerGoneError(f"{self.name}: {error}") from error
