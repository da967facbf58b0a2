"""A server on loopback that answers each connection with the next of some bytes, and closes it.

Answers are text with marks, so that an input of a few bytes makes an answer of many gigabytes:

    {{length}}          bytes of the body, for a content-length that is right
    {{host}}            this server, `127.0.0.1:port`
    {{other}}           another one, which answers as this does, and notes what it is sent
    {{1000000*text}}    the text so many times; 10^18 is endless in practice

The head of an answer may end its lines in LF. A line `=====` separates answers. The last one is repeated. An answer
that is not HTTP is sent unchanged; an empty one closes the connection.
"""

import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

BETWEEN = b"\n=====\n"
_REPEATED = re.compile(rb"\{\{(\d{1,19})\*(.*?)\}\}", re.DOTALL)
_PIECE = 1 << 16
_THREADS = 16
_HEAD_BYTES = 1 << 20
_SILENCE_SECONDS = 5.0


class ScriptedServer:
    """The two servers.

    Attributes:
        address: `127.0.0.1:port` of the first one.
        requests: the heads of its requests since the last script.
        others: the heads of requests to the other one.
    """

    def __init__(self) -> None:
        self._listeners = [socket.create_server(("127.0.0.1", 0), backlog=64) for _ in range(2)]
        self.address, self._other = (f"127.0.0.1:{each.getsockname()[1]}" for each in self._listeners)
        self._threads = ThreadPoolExecutor(_THREADS, "scripted")
        self._lock = threading.Lock()  # guards what follows
        self._answers: list[bytes] = [b""]
        self._open: set[socket.socket] = set()
        self._script = 0
        self.requests: list[bytes] = []
        self.others: list[bytes] = []
        for listener, heads in zip(self._listeners, ("requests", "others"), strict=True):
            threading.Thread(target=self._accept, args=(listener, heads), daemon=True).start()

    def follow(self, script: bytes) -> None:
        """Send these answers from now on; connections that wait for an earlier answer are closed."""
        with self._lock:
            self._script += 1
            self._answers = script.split(BETWEEN)
            self.requests, self.others = [], []
            left, self._open = self._open, set()
        for connection in left:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket, heads: str) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with self._lock:
                self._open.add(connection)
                script = self._script
            self._threads.submit(self._serve, connection, heads, script)

    def _serve(self, connection: socket.socket, heads: str, script: int) -> None:
        try:
            connection.settimeout(_SILENCE_SECONDS)
            head = _received(connection)
            with self._lock:
                if script != self._script or not head:
                    return
                getattr(self, heads).append(head)
                answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
            for piece in self._pieces(answer):
                connection.sendall(piece)
        except OSError:
            pass  # the client has closed the connection
        finally:
            with self._lock:
                self._open.discard(connection)
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
            connection.close()

    def _pieces(self, answer: bytes) -> Iterator[bytes]:
        answer = answer.replace(b"{{host}}", self.address.encode()).replace(b"{{other}}", self._other.encode())
        head, blank, body = _parted(answer)
        head = head.replace(b"{{length}}", str(expanded_length(body)).encode())
        yield from expanded(head + blank)
        yield from expanded(body)


def _parted(answer: bytes) -> tuple[bytes, bytes, bytes]:
    """Head, blank line and body; the head's lines end in CR LF."""
    if not answer.startswith(b"HTTP/"):
        return b"", b"", answer
    ends = [(at, end) for end in (b"\r\n\r\n", b"\n\n") if (at := answer.find(end)) >= 0]
    if not ends:
        return answer, b"", b""
    at, end = min(ends)
    return re.sub(rb"\r?\n", b"\r\n", answer[:at]), b"\r\n\r\n", answer[at + len(end) :]


def expanded(text: bytes) -> Iterator[bytes]:
    """What a text with marks is, by pieces."""
    at = 0
    for mark in _REPEATED.finditer(text):
        yield text[at : mark.start()]
        count, repeated = int(mark[1]), mark[2]
        if repeated:
            each = max(1, _PIECE // len(repeated))
            block = repeated * min(each, count)
            while count > 0:
                yield block if count >= each else repeated * count
                count -= each
        at = mark.end()
    yield text[at:]


def expanded_length(text: bytes) -> int:
    """How many bytes that is."""
    return len(_REPEATED.sub(b"", text)) + sum(int(mark[1]) * len(mark[2]) for mark in _REPEATED.finditer(text))


def _received(connection: socket.socket) -> bytes:
    """The head of a request, whose body is read too."""
    got = b""
    while b"\r\n\r\n" not in got:
        piece = connection.recv(1 << 16)
        if not piece or len(got) > _HEAD_BYTES:
            return b""
        got += piece
    head, _, body = got.partition(b"\r\n\r\n")
    if b"\r\nexpect: 100-continue" in head.lower():
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    found = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    left = int(found[1]) - len(body) if found else 0
    while left > 0:
        piece = connection.recv(min(left, 1 << 16))
        if not piece:
            break
        left -= len(piece)
    return head
