"""An HTTP server with scripted responses."""

import socket
import threading
from typing import Self

Answer = bytes | None


class FakeServer:
    """A server that sends the next of `answers` for each connection, and closes it; the last answer is repeated.

    An answer is sent unchanged; None means silence until the server is closed.

    Attributes:
        endpoint: its URL.
        answers: set by the test.
        stalls: whether a connection stays open after its answer.
        consent: is sent to a request with `Expect: 100-continue`; without an empty line the connection is closed then.
        requests: the first line of each request.
        headers: of each request, names in lower case.
        bodies: of each request with an answer.
    """

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.answers: list[Answer] = [None]
        self.stalls = False
        self.consent = b"HTTP/1.1 100 Continue\r\n\r\n"
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[bytes] = []
        self._closed = threading.Event()
        self._threads: list[threading.Thread] = []
        self._acceptor = threading.Thread(target=self._accept)

    def __enter__(self) -> Self:
        self._acceptor.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._socket.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            thread = threading.Thread(target=self._serve, args=(connection, answer))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket, answer: Answer) -> None:
        with connection, connection.makefile("rb") as reader:
            head = []
            while (line := reader.readline()) not in {b"\r\n", b""}:
                head.append(line.decode().strip())
            if not head:
                return
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head[1:])}
            self.requests.append(head[0])
            self.headers.append(headers)
            if answer is None:
                self._closed.wait()
                return
            if headers.get("expect") == "100-continue":
                connection.sendall(self.consent)
                if not self.consent.endswith(b"\r\n\r\n"):
                    return
            self.bodies.append(reader.read(int(headers.get("content-length", 0))))
            connection.sendall(answer)
            if self.stalls:
                self._closed.wait()


def answer(status: str, body: bytes = b"", **headers: str) -> bytes:
    """Return a whole HTTP response; `content_length` may differ from the body.

    It has `Connection: close`, because otherwise a fast client could reuse the connection before the server closes it.
    """
    ends = {"content-length": str(len(body)), "connection": "close"}
    fields = {**ends, **{name.replace("_", "-"): value for name, value in headers.items()}}
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode() + body


def error(status: str, code: str) -> bytes:
    """Return an error response of S3."""
    return answer(status, f"<Error><Code>{code}</Code><Message>as told</Message></Error>".encode())
