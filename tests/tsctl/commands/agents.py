"""Servers that answer as the agents of a test."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.http_servers import Handler, serving

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

    class Page(Handler):
        def do_GET(self) -> None:
            self.answer(status if self.path == path else 404, body, **headers)

    with serving(Page) as port:
        yield f"127.0.0.1:{port}"
