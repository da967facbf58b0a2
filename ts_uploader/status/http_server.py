"""What the agent serves over HTTP, on loopback unless told otherwise.

/metrics        for Prometheus
/healthz        200 while no restart would help, else 503
/readyz         200 once everything that the agent needs has answered, else 503
/status.json    how it does, with every partition
/               the same for a person, trouble first

GET and HEAD. The last two are served only under names that `allowed_hosts` accepts.
"""

import errno
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ts_common.errors import AddressInUse, ConfigurationError
from ts_uploader.status.allowed_hosts import AllowedHosts
from ts_uploader.status.bounded_server import BoundedServer
from ts_uploader.status.page import POLICY, status_page
from ts_uploader.status.snapshot import Status, health_facts, status_json

# A page is no script, comes from nowhere else, is shown in no frame, and is kept by no cache.
_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_PUBLIC = frozenset({"/metrics", "/healthz", "/readyz"})  # probes and scrapers ask for them under any name
_SILENT_SECONDS = 30.0  # after which a client that asks nothing, or takes nothing, is let go: each has a thread
_KNOWN = b"/ and /status.json, /healthz, /readyz and /metrics are served here\n"


class HealthServer:
    """Serves until `stop`, on a thread of its own.

    Args:
        address: `host:port`; port 0 takes a free one.
        registry: what `/metrics` shows.
        status: what the other pages show.
        allowed_hosts: returns the names that `ts_uploader.status.allowed_hosts` accepts besides this host's own.

    Raises:
        ConfigurationError: the address is none, or not of this machine.
        AddressInUse: another program listens there.
    """

    def __init__(
        self,
        address: str,
        registry: CollectorRegistry,
        status: Status,
        allowed_hosts: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise ConfigurationError("--http-address", [f"{address!r} is not of the form host:port"])
        hosts = AllowedHosts(host, allowed_hosts)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"  # for pages in chunks: one that breaks off is not taken for a whole one
            timeout = _SILENT_SECONDS

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                asked = self.headers.get_all("host") or ()
                versioned = self.request_version == "HTTP/1.1"
                if refused := hosts.refusal(asked, versioned=versioned, public=path in _PUBLIC):
                    self._answer(refused[0], "text/plain", f"{refused[1]}\n".encode())
                    return
                match path:
                    case "/metrics":
                        self._stream(CONTENT_TYPE_LATEST, metrics_page(registry))
                    case "/status.json":
                        self._stream("application/json", status_json(status))
                    case "/":
                        self._stream("text/html; charset=utf-8", status_page(status))
                    case "/healthz":
                        look = status.look()
                        facts = {"partitions_led": look.led if look.answering else None, **health_facts(look)}
                        self._verdict("ok" if look.healthy else "failing", facts, well=look.healthy)
                    case "/readyz":
                        look = status.look()
                        self._verdict("ready" if look.ready else "waiting", dict(look.answered), well=look.ready)
                    case _:
                        self._answer(404, "text/plain", _KNOWN)

            def do_HEAD(self) -> None:  # balancers probe so
                self.do_GET()

            def _verdict(self, verdict: str, facts: Mapping[str, object], *, well: bool) -> None:
                text = json.dumps({"status": verdict, **facts}) + "\n"
                self._answer(200 if well else 503, "application/json", text.encode())

            def _answer(self, status: int, content_type: str, body: bytes) -> None:
                self._head(status, content_type, ("Content-Length", str(len(body))))
                if self.command != "HEAD":
                    self.wfile.write(body)

            def _stream(self, content_type: str, pieces: Iterable[bytes]) -> None:
                chunked = self.request_version == "HTTP/1.1"
                self._head(200, content_type, ("Transfer-Encoding", "chunked") if chunked else None)
                if self.command == "HEAD":
                    return
                for piece in pieces:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                if chunked:
                    self.wfile.write(b"0\r\n\r\n")

            def _head(self, status: int, content_type: str, length: tuple[str, str] | None = None) -> None:
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Connection", "close")
                if length:
                    self.send_header(*length)
                self.end_headers()

            def end_headers(self) -> None:  # of refusals by the base class too
                for name, value in _HEADERS.items():
                    self.send_header(name, value)
                super().end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class names it so)
                """A line for each scrape would say nothing."""

        try:
            self._server = BoundedServer((host, int(port)), Handler)
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
