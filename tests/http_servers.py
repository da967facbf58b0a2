"""Servers on loopback that run as long as a test needs them."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer

from dev.local.ports import LOOPBACK


class Handler(BaseHTTPRequestHandler):
    """Answers HTTP requests, and writes no log."""

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Send a response."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@contextmanager
def running(server: TCPServer) -> Iterator[int]:
    """Run a server, and yield its port."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def serving(handler: Callable[..., BaseHTTPRequestHandler]) -> AbstractContextManager[int]:
    """Run an HTTP server on a free port, and yield the port."""
    return running(ThreadingHTTPServer((LOOPBACK, 0), handler))
