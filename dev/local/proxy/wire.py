"""HTTP/1.1 as bytes on a socket: heads are parsed, bodies keep their framing.

A proxy that injects faults must not repair others by accident: it sends the bytes that it received, chunk sizes and
trailers included. So this module decodes no body, and a `Head` keeps its lines. The length of a body is defined by RFC
9112; `request_framing` and `answer_framing` return it.

    Framing     a number of bytes, "chunked", or "close" for a body up to the end of the connection
    Head        start line and headers
    Peer        one connection, to the client or to the server; each failure is a PeerGoneError with its name
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
# The time for a client that still sends to read its response.
_LINGER_SECONDS = 0.5
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


class PeerGoneError(ConnectionError):
    """A connection ended in the middle of an exchange. The message names the peer and the reason."""


@dataclass(frozen=True)
class Head:
    """The lines before a body, without their ends; the first is the request line or the status line."""

    lines: tuple[bytes, ...]

    @property
    def raw(self) -> bytes:
        """The bytes on the wire."""
        return b"\r\n".join(self.lines) + b"\r\n\r\n"

    @cached_property
    def fields(self) -> dict[str, str]:
        """Header values by name in lower case; for equal names the last value."""
        split = (line.decode("latin-1").partition(":") for line in self.lines[1:])
        return {name.strip().lower(): value.strip() for name, _, value in split}

    @property
    def method(self) -> str:
        """Method of a request."""
        return self._word(0)

    @property
    def target(self) -> str:
        """Target of a request: the path, still quoted, and the query."""
        return self._word(1)

    @property
    def status(self) -> int:
        """Status of a response."""
        return int(self._word(1))

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits for "100 Continue" before it sends the body."""
        return self.fields.get("expect", "").lower() == "100-continue"

    @property
    def says_close(self) -> bool:
        """Whether the connection ends after this."""
        return "close" in self.fields.get("connection", "").lower()

    def _word(self, number: int) -> str:
        return self.lines[0].decode("latin-1").split(" ")[number]


def request_framing(head: Head) -> Framing:
    """Return the framing of a request's body; without a header it is empty."""
    if "chunked" in head.fields.get("transfer-encoding", "").lower():
        return "chunked"
    return int(head.fields.get("content-length", 0))


def answer_framing(head: Head, method: str) -> Framing:
    """Return the framing of the body of a response to `method`."""
    if method == "HEAD" or head.status in {204, 304}:
        return 0
    if "chunked" in head.fields.get("transfer-encoding", "").lower():
        return "chunked"
    length = head.fields.get("content-length")
    return "close" if length is None else int(length)


class Peer:
    """One connection; owned by one thread, but any thread may call `interrupt`.

    Args:
        connection: owned and closed by this object.
        name: "client" or "server", for errors.
    """

    def __init__(self, connection: socket.socket, name: str) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._reader = io.BufferedReader(connection.makefile("rb", buffering=0), BLOCK)
        self.name = name
        self.closed = False

    def read_head(self) -> Head | None:
        """Return the next head; None if the peer closed the connection before it.

        Raises:
            PeerGoneError: the connection ended within the head, or a line has no end.
        """
        lines: list[bytes] = []
        with self._attributed():
            while (line := self._reader.readline(_LONGEST_LINE)) not in {b"\r\n", b"\n"}:
                if not line and not lines:
                    return None
                if not line.endswith(b"\n"):
                    raise PeerGoneError(f"{self.name}: closed within a head, after {line[:80]!r}")
                lines.append(line.rstrip(b"\r\n"))
        return Head(tuple(lines))

    def blocks(self, framing: Framing) -> Iterator[bytes]:
        """Yield the body as it is received, framing included.

        Raises:
            PeerGoneError: the connection ended before the end of the framing.
        """
        if framing == "chunked":
            yield from self._chunks()
        elif framing == "close":
            while block := self._read(BLOCK):
                yield block
        else:
            yield from self._exactly(framing)

    def send(self, data: bytes) -> None:
        """Send all bytes.

        Raises:
            PeerGoneError: the peer closed or reset the connection.
        """
        with self._attributed():
            self._socket.sendall(data)

    def reset(self) -> None:
        """Reset the connection, as a crash or a firewall does: the peer reads ECONNRESET."""
        if not self.closed:
            with suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        self.close()

    def finish(self) -> None:
        """Shut the connection down, so that the peer reads all that was sent, even if it is still sending.

        Closing with unread bytes would reset the connection, and the peer could lose the response.
        """
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            self._socket.settimeout(_LINGER_SECONDS)
            while self._socket.recv(BLOCK):
                pass
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.closed = True
        self._reader.close()
        self._socket.close()

    def interrupt(self) -> None:
        """End all waits on this connection; any thread may call it."""
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
        while True:  # trailers and the empty line
            line = self._line()
            yield line
            if line in {b"\r\n", b"\n"}:
                return

    def _exactly(self, size: int) -> Iterator[bytes]:
        left = size
        while left:
            block = self._read(min(left, BLOCK))
            if not block:
                raise PeerGoneError(f"{self.name}: closed with {left} of {size} bytes missing")
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
