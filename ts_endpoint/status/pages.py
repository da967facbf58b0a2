"""What the endpoint serves over HTTP.

/metrics        for Prometheus
/healthz        200 while a restart would not help, else 503; other processes of the cluster read it too
/readyz         200 once clients are served and the archive has answered, else 503

GET and HEAD, under any host name: probes and scrapers use any.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from prometheus_client import CollectorRegistry

from ts_common.http_server.answers import CONTENT_TYPE, Answers, metrics_page
from ts_common.http_server.listening import HttpServer

BEAT_SECONDS: Final = 0.5
_KNOWN = b"/metrics, /healthz and /readyz are served here\n"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a probe.

    Attributes:
        status: one word.
        well: whether the answer is 200.
    """

    status: str
    well: bool
    facts: Mapping[str, object] = field(default_factory=dict)


class Pages(HttpServer):
    """The endpoint's HTTP server, on its own thread from `start` to `stop`.

    Args:
        address: `host:port`; port 0 picks a free port.
        registry: the metrics of `/metrics`.
        health: returns the answer of `/healthz`; called on a thread of the server.
        readiness: returns the answer of `/readyz`; as `health`.

    Raises:
        ConfigurationError: the address is malformed, or not of this machine.
        AddressInUse: another program listens there.
    """

    def __init__(
        self,
        address: str,
        registry: CollectorRegistry,
        health: Callable[[], Verdict],
        readiness: Callable[[], Verdict],
    ) -> None:
        class Handler(Answers):
            def page(self, path: str) -> None:
                match path:
                    case "/metrics":
                        self.stream(CONTENT_TYPE, metrics_page(registry))
                    case "/healthz":
                        self._probe(health())
                    case "/readyz":
                        self._probe(readiness())
                    case _:
                        self.answer(404, "text/plain", _KNOWN)

            def _probe(self, verdict: Verdict) -> None:
                self.verdict(verdict.status, verdict.facts, well=verdict.well)

        super().__init__(address, Handler, "endpoint")


class Pulse:
    """The age of the last beat of an event loop.

    Args:
        clock: seconds, monotonic.
        beat_seconds: between two beats.
        on_beat: called on the loop at each beat.
    """

    def __init__(
        self,
        clock: Callable[[], float] = monotonic,
        beat_seconds: float = BEAT_SECONDS,
        on_beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock
        self._beat_seconds = beat_seconds
        self._on_beat = on_beat
        self._last = clock()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def age(self) -> float:
        """Seconds since the last beat; on any thread."""
        return self._clock() - self._last

    def start(self) -> None:
        """Beat on the running loop until `stop`."""
        self._last = self._clock()
        self._on_beat()
        self._timer = asyncio.get_running_loop().call_later(self._beat_seconds, self.start)

    def stop(self) -> None:
        """Beat no more."""
        if self._timer is not None:
            self._timer.cancel()
