"""Servers that answer as the agents of a test."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

IDLE = {
    "topic": "u",
    "partition": 1,
    "next_offset": 7,
    "lag_offsets": 0,
    "unshipped_segments": 0,
    "unshipped_bytes": 0,
    "oldest_unshipped_age_seconds": 0,
    "retention_left_ratio": None,
    "hole": False,
    "waits_for": None,
}


WELL: dict[str, Any] = {
    "version": "0.1.0",
    "cluster": "prod",
    "broker": 1,
    "started": "2026-11-22T06:00:00Z",
    "ready": True,
    "healthy": True,
    "partitions": [IDLE],
    "queue_length": 0,
    "last_errors": [],
}


@contextmanager
def answering(status: int, body: bytes, path: str = "/status.json", **headers: str) -> Iterator[str]:
    """Yield the address of a server that answers every request for a page in this way."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = status if self.path == path else 404
            self.send_response(found)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
