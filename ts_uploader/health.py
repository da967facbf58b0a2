"""`/metrics` and `/healthz`, on loopback unless told otherwise."""

import errno
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ts_common.errors import AddressInUse, ConfigurationError

Health = Callable[[], tuple[bool, dict[str, object]]]


class HealthServer:
    """Serves until `stop`, on a thread of its own.

    Args:
        address: `host:port`; port 0 takes a free one.
        registry: what `/metrics` shows.
        health: whether all is well, and the facts that `/healthz` shows.

    Raises:
        ConfigurationError: the address is none, or not of this machine.
        AddressInUse: another program listens there.
    """

    def __init__(self, address: str, registry: CollectorRegistry, health: Health) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise ConfigurationError("--http-address", [f"{address!r} is not of the form host:port"])

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"  # for pages in chunks: one that breaks off is not taken for a whole one

            def do_GET(self) -> None:
                if self.path == "/metrics":
                    self._stream(CONTENT_TYPE_LATEST, metrics_page(registry))
                elif self.path == "/healthz":
                    well, facts = health()
                    text = json.dumps({"status": "ok" if well else "failing", **facts}) + "\n"
                    self._answer(200 if well else 503, "application/json", text.encode())
                else:
                    self._answer(404, "text/plain", b"/metrics and /healthz are served here\n")

            def _answer(self, status: int, content_type: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(body)

            def _stream(self, content_type: str, pieces: Iterable[bytes]) -> None:
                chunked = self.request_version == "HTTP/1.1"
                self.send_response(200)
                self.send_header("Content-Type", content_type)
                self.send_header("Connection", "close")
                if chunked:
                    self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for piece in pieces:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                if chunked:
                    self.wfile.write(b"0\r\n\r\n")

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class names it so)
                """A line for each scrape would say nothing."""

        try:
            self._server = ThreadingHTTPServer((host, int(port)), Handler)
        except (OSError, OverflowError) as error:
            if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                # Where a former agent is about to end, this one has to come after it, and not to stay away for good.
                raise AddressInUse(
                    f"--http-address {address}: another program listens there, perhaps another agent; end it, or name "
                    "another host:port"
                ) from error
            reason = getattr(error, "strerror", None) or error
            raise ConfigurationError(
                "--http-address", [f"cannot listen on {address}: {reason}; name another host:port"]
            ) from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)

    @property
    def address(self) -> str:
        """`host:port` that is listened on."""
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """End serving and give the port back."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


def metrics_page(registry: CollectorRegistry) -> Iterator[bytes]:
    """Prometheus' text format in pieces, one for each family.

    Ten thousand partitions are a page of 5 MB, and 27 MB of memory where all its lines and samples stand there at once.
    """
    for family in registry.collect():
        yield generate_latest(_Alone(family))


class _Alone(Collector):
    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family
