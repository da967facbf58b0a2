"""A listener: it accepts connections, sweeps out those that are idle or too slow, and ends all in order."""

import asyncio
import contextlib
import errno
import socket
from collections import Counter
from typing import Final

import structlog

from ts_endpoint.contract import Handlers, Session
from ts_endpoint.network.channel import Channel, TlsChannel
from ts_endpoint.network.connection import ClientConnection, Shared
from ts_endpoint.network.flow import BytesInFlight, Quotas
from ts_endpoint.network.limits import Counters, ListenerLimits
from ts_endpoint.network.refusals import REFUSALS
from ts_endpoint.security.audit import Audit
from ts_endpoint.security.login import Sasl
from ts_endpoint.security.tls import Tls

_BACKLOG: Final = 1024
_ACCEPTED_AT_ONCE: Final = 64  # other connections are served in between
_SWEEP_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 1.0
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_IN_FLIGHT: Final = 256 << 20
# A host that vanished is noticed after 2 minutes: 60 seconds of silence, and 6 probes.
_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 6))

log = structlog.get_logger()


class Server:
    """Listens on one address and answers the requests of its connections.

    Attributes:
        counters: since the start.
        in_flight: bytes of replies that are not sent.

    Args:
        handlers: of requests. ApiVersions and SASL need no handler; Produce and DeleteRecords are refused without one.
        host: name or address to listen on.
        port: 0 chooses a free one.
        tls: None for plain TCP.
        sasl: None if clients need not authenticate by SASL.
        in_flight: shared with the handlers that reserve bytes; None for an own one of 256 MiB.
        quotas: bytes a second of users; None for no quotas.
    """

    def __init__(
        self,
        handlers: Handlers,
        *,
        host: str,
        port: int,
        limits: ListenerLimits | None = None,
        tls: Tls | None = None,
        sasl: Sasl | None = None,
        in_flight: BytesInFlight | None = None,
        quotas: Quotas | None = None,
        audit: Audit | None = None,
    ) -> None:
        self.counters = Counters()
        self.in_flight = in_flight or BytesInFlight(_IN_FLIGHT, quotas)
        self._limits = limits or ListenerLimits()
        self._shared = Shared(
            {**REFUSALS, **handlers}, self._limits, self.counters, self.in_flight, quotas, sasl, audit
        )
        self._host = host
        self._port = port
        self._tls = tls
        self._audit = audit
        self._listener: socket.socket | None = None
        self._connections: dict[asyncio.Task[None], ClientConnection] = {}
        self._of_host: Counter[str] = Counter()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address is in use, or is not of this machine.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        self._listener = socket.create_server(address, family=family, backlog=_BACKLOG)
        self._listener.setblocking(False)
        loop.add_reader(self._listener, self._accept, self._listener)
        self._timers["sweep"] = loop.call_later(_SWEEP_SECONDS, self._sweep)

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port that the server listens on.

        Raises:
            RuntimeError: the server does not listen.
        """
        if self._listener is None:
            raise RuntimeError("the server does not listen: call start() first")
        host, port = self._listener.getsockname()[:2]
        return host, port

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    async def close(self, grace_seconds: float) -> None:
        """Accept no further connection, answer the requests in progress, and close all connections.

        Args:
            grace_seconds: after that, requests in progress are cancelled.
        """
        self._stop_listening()
        for connection in [*self._connections.values()]:
            connection.finish()
        tasks = [*self._connections]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace_seconds)
            for task in late:
                self._connections[task].abort("stopped", "the endpoint stops")
            await asyncio.gather(*tasks, return_exceptions=True)
        for timer in self._timers.values():
            timer.cancel()
        self._shared.large_messages.close()

    def _stop_listening(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, peer = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._pause(listener, error)
                else:  # accept() also returns errors of the new connection
                    log.warning("accept_failed", error=str(error))
                return
            self._begin(accepted, peer[0])

    def _pause(self, listener: socket.socket, error: OSError) -> None:
        """Do not accept for a while: the listener stays readable, so the loop would spin."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener)
        self.counters.accept_pauses += 1
        log.warning(
            "accept_paused", error=str(error), connections=self.connections, remedy="raise the limit of open files"
        )
        self._timers["pause"] = loop.call_later(_PAUSE_SECONDS, self._resume, listener)

    def _resume(self, listener: socket.socket) -> None:
        if self._listener is listener:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _begin(self, accepted: socket.socket, host: str) -> None:
        reason = self._refusal(host)
        if reason is not None:
            accepted.close()
            self.counters.refused[reason] += 1
            log.warning("connection_refused", client=host, limit=reason, connections=self.connections)
            return
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEPALIVE:
                accepted.setsockopt(socket.IPPROTO_TCP, option, value)
            channel = Channel(accepted) if self._tls is None else TlsChannel(accepted, self._tls.context())
        except OSError:  # the client has closed the connection
            accepted.close()
            return
        names_users = self._tls is not None and self._tls.names_users
        connection = ClientConnection(channel, Session(host=host), self._shared, names_users=names_users)
        task = asyncio.get_running_loop().create_task(connection.run())
        self.counters.accepted += 1
        self._connections[task] = connection
        self._of_host[host] += 1
        task.add_done_callback(self._ended)

    def _refusal(self, host: str) -> str | None:
        if self.connections >= self._limits.connections:
            return "connections"
        return "connections_per_host" if self._of_host[host] >= self._limits.connections_per_host else None

    def _ended(self, task: "asyncio.Task[None]") -> None:
        host = self._connections.pop(task).session.host
        self._of_host[host] -= 1
        if not self._of_host[host]:
            del self._of_host[host]
        with contextlib.suppress(asyncio.CancelledError):
            error = task.exception()
            if error is not None:
                log.warning("connection_failed", client=host, error=repr(error))

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._timers["sweep"] = loop.call_later(_SWEEP_SECONDS, self._sweep)
        now = loop.time()
        for connection in [*self._connections.values()]:
            connection.expire(now)
        if self._audit is not None:
            self._audit.write_due()
