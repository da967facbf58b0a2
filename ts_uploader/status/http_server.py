"""The agent's HTTP server, on loopback unless configured otherwise.

/metrics        for Prometheus
/healthz        200 while a restart would not help, else 503
/readyz         200 if every dependency has answered and nothing prevents the agent from shipping, else 503
/status.json    the agent's state, with every partition
/               the same as a page, trouble first

GET and HEAD. The last two are served only under names that `allowed_hosts` accepts.
"""

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry

from ts_common.http_server.answers import CONTENT_TYPE, Answers, metrics_page
from ts_common.http_server.listening import HttpServer, host_and_port
from ts_uploader.status.allowed_hosts import AllowedHosts
from ts_uploader.status.page import POLICY, status_page
from ts_uploader.status.snapshot import AgentStatus
from ts_uploader.status.status_json import health_facts, state_fields, status_json

_PUBLIC = frozenset({"/metrics", "/healthz", "/readyz"})  # probes and scrapers use any name for the host
_KNOWN = b"/ and /status.json, /healthz, /readyz and /metrics are served here\n"


class HealthServer(HttpServer):
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
        status: AgentStatus,
        allowed_hosts: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        hosts = AllowedHosts(host_and_port(address)[0], allowed_hosts)

        class Handler(Answers):
            policy = POLICY

            def page(self, path: str) -> None:
                asked = self.headers.get_all("host") or ()
                versioned = self.request_version == "HTTP/1.1"
                if refused := hosts.refusal(asked, versioned=versioned, public=path in _PUBLIC):
                    self.answer(refused[0], "text/plain", f"{refused[1]}\n".encode())
                    return
                match path:
                    case "/metrics":
                        self.stream(CONTENT_TYPE, metrics_page(registry))
                    case "/status.json":
                        self.stream("application/json", status_json(status))
                    case "/":
                        self.stream("text/html; charset=utf-8", status_page(status))
                    case "/healthz":
                        snapshot = status.snapshot()
                        facts = {
                            "partitions_led": snapshot.led if snapshot.answering else None,
                            **health_facts(snapshot),
                        }
                        self.verdict("ok" if snapshot.healthy else "failing", facts, well=snapshot.healthy)
                    case "/readyz":
                        snapshot = status.snapshot()
                        facts = {**snapshot.answers, "state": state_fields(snapshot)}
                        self.verdict("ready" if snapshot.ready else "waiting", facts, well=snapshot.ready)
                    case _:
                        self.answer(404, "text/plain", _KNOWN)

        super().__init__(address, Handler, "agent")
