"""The agent's HTTP server, on loopback unless configured otherwise.

/metrics        for Prometheus
/healthz        200 while a restart would not help, else 503
/readyz         200 once every dependency of the agent has answered, else 503
/status.json    the agent's state, with every partition
/               the same as a page, trouble first

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
from ts_uploader.status.snapshot import Status
from ts_uploader.status.status_json import health_facts, status_json

# Pages run no script, load nothing, are not shown in frames and are not cached.
_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_PUBLIC = frozenset({"/metrics", "/healthz", "/readyz"})  # probes and scrapers use any name for the host
_SILENT_SECONDS = 30.0  # then a client that sends or reads nothing is disconnected: each one has a thread
_KNOWN = b"/ and /status.json, /healthz, /readyz and /metrics are served here\n"


class HealthServer:
    """An HTTP server on its own thread, until `stop`.

    Args:
        address: `host:port`; port 0 picks a free port.
        registry: the metrics of `/metrics`.
        status: the state that the other pages show.
        allowed_hosts: returns the names that `ts_uploader.status.allowed_hosts` accepts in addition to this host's own.

    Raises:
        ConfigurationError: the address is malformed, or not of this machine.
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
            protocol_version = "HTTP/1.1"  # for chunked pages: clients notice one that breaks off
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
                        snapshot = status.snapshot()
                        facts = {
                            "partitions_led": snapshot.led if snapshot.answering else None,
                            **health_facts(snapshot),
                        }
                        self._verdict("ok" if snapshot.healthy else "failing", facts, well=snapshot.healthy)
                    case "/readyz":
                        snapshot = status.snapshot()
                        self._verdict(
                            "ready" if snapshot.ready else "waiting", dict(snapshot.answered), well=snapshot.ready
                        )
                    case _:
                        self._answer(404, "text/plain", _KNOWN)

            def do_HEAD(self) -> None:  # load balancers probe with HEAD
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

            def end_headers(self) -> None:  # also for errors that the base class sends
                for name, value in _HEADERS.items():
                    self.send_header(name, value)
                super().end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class names it so)
                """Log nothing: a line for each scrape has no use."""

        try:
            self._server = BoundedServer((host, int(port)), Handler)
        except (OSError, OverflowError) as error:
            if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                # A former agent may be about to end: then this one must retry and not exit permanently.
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
        """The address that the server listens on, as `host:port`."""
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"

    def start(self) -> None:
        """Start to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Stop to serve and close the port."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


def metrics_page(registry: CollectorRegistry) -> Iterator[bytes]:
    """Yield Prometheus' text format, one piece for each metric family.

    With ten thousand partitions the page has 5 MB. Built at once, its lines and samples would use 27 MB of memory.
    """
    for family in registry.collect():
        yield generate_latest(_Alone(family))


class _Alone(Collector):
    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family
