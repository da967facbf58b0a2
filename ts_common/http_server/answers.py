"""The answers of a page: whole or in chunks, always with headers that protect a browser; Prometheus' text format."""

import json
from collections.abc import Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from typing import ClassVar, Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

_SILENT_SECONDS = 30.0  # then a client that sends or reads nothing is disconnected: each one has a thread
NO_PAGE_POLICY: Final = "default-src 'none'; frame-ancestors 'none'"


class Answers(BaseHTTPRequestHandler):
    """One connection, for one request; a subclass defines `page` by the methods of this class.

    Attributes:
        policy: the content security policy of all answers.
    """

    policy: ClassVar[str] = NO_PAGE_POLICY
    protocol_version = "HTTP/1.1"  # for chunked pages: clients notice one that breaks off
    timeout = _SILENT_SECONDS

    def page(self, path: str) -> None:
        """Answer a request; a subclass defines it.

        Args:
            path: without a query.
        """
        raise NotImplementedError

    def do_GET(self) -> None:
        """Answer a request."""
        self.page(self.path.partition("?")[0])

    def do_HEAD(self) -> None:
        """Answer with the head of the page, as load balancers probe."""
        self.do_GET()

    def verdict(self, verdict: str, facts: Mapping[str, object], *, well: bool) -> None:
        """Answer a probe with JSON.

        Args:
            verdict: one word, as `status`.
            well: 200 if true, else 503.
        """
        text = json.dumps({"status": verdict, **facts}) + "\n"
        self.answer(200 if well else 503, "application/json", text.encode())

    def answer(self, status: int, content_type: str, body: bytes) -> None:
        """Answer with a whole body.

        Args:
            body: all bytes; a HEAD request gets their number only.
        """
        self._head(status, content_type, ("Content-Length", str(len(body))))
        if self.command != "HEAD":
            self.wfile.write(body)

    def stream(self, content_type: str, pieces: Iterable[bytes]) -> None:
        """Answer with a body in pieces; an error while one is made cuts the answer off.

        Args:
            pieces: made while they are sent.
        """
        chunked = self.request_version == "HTTP/1.1"
        self._head(200, content_type, ("Transfer-Encoding", "chunked") if chunked else None)
        if self.command == "HEAD":
            return
        for piece in pieces:
            if piece:  # an empty chunk would end the body
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def end_headers(self) -> None:
        """Add what protects a browser, also to errors that the base class sends."""
        # Pages run no script, load nothing, are not shown in frames and are not cached.
        self.send_header("Content-Security-Policy", self.policy)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class names it so)
        """Log nothing: a line for each scrape has no use."""

    def _head(self, status: int, content_type: str, length: tuple[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Connection", "close")
        if length:
            self.send_header(*length)
        self.end_headers()


CONTENT_TYPE = CONTENT_TYPE_LATEST


def metrics_page(registry: CollectorRegistry) -> Iterator[bytes]:
    """Yield Prometheus' text format, one piece for each metric family.

    With ten thousand partitions the agent's page has 5 MB. Built at once, its lines and samples would use 27 MB of
    memory.
    """
    for family in registry.collect():
        yield generate_latest(_Alone(family))


class _Alone(Collector):
    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family
