"""A secured kazoo client, and the reason why it has no session.

kazoo reports only that an attempt failed, and retries. This module records the step that failed: no process listens,
the TLS handshake failed, the server gave no session, or it rejected the credentials.

kazoo's own TLS is not used: it trusts the host's authorities in addition to the named ones, and reads PEM files only.
Callers may replace kazoo's handler, which makes all connections.
"""

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kazoo.client import KazooClient, KazooState
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry

from ts_common.config.zookeeper_options import PREFIX
from ts_common.errors import ConfigurationError
from ts_uploader.leadership.zookeeper.sasl import register_errors, sasl_options
from ts_uploader.leadership.zookeeper.security import Security
from ts_uploader.leadership.zookeeper.tls import connect_tls, tls_context, why_tls_failed

_ENDED = {KeeperState.AUTH_FAILED, KeeperState.CLOSED}
_LONGEST_PAUSE_SECONDS = 2.0  # of kazoo between attempts to connect; its own limit is an hour
_LEFT_OPEN = "it accepted the connection and gave no session"
_REFUSED = "ZooKeeper rejects this identity"


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why there is no session.

    Attributes:
        server: `host:port`; empty if the agent reached no server.
        why: what failed, and what to do if the operator must act.
        lasting: whether the operator must act; else it may end by itself.
    """

    server: str
    why: str
    lasting: bool

    def __str__(self) -> str:
        return f"{self.server}: {self.why}" if self.server else self.why


class Connection:
    """A client, not yet started.

    Attributes:
        troubles: by server, why the last attempt failed; empty once a session answers.

    Args:
        hosts: `host:port,host:port/chroot`.
        security: TLS and SASL.
        session_seconds: the session timeout.
        noticed: called from another thread when a session begins or ends, and when an attempt failed.
        before: the trouble of the client that this one replaces.

    Raises:
        ConfigurationError: `hosts` is malformed, or the SASL credentials cannot be read.
    """

    def __init__(
        self,
        hosts: str,
        security: Security,
        session_seconds: float = 10.0,
        noticed: Callable[[], None] = lambda: None,
        before: Trouble | None = None,
    ) -> None:
        register_errors()
        self.troubles: dict[str, Trouble] = {}
        self._security = security
        self._noticed = noticed
        self._lock = threading.Lock()
        self._awaited: str | None = None  # the server that accepted the connection and has not answered yet
        self._login_failed = ""  # the reason on this side
        self._last = before
        self._closing = False
        self._ended = False
        self._rejection_noted = False
        sasl = None if security.sasl is None else sasl_options(security.sasl, self._note_login)
        try:
            retry = KazooRetry(max_tries=-1, max_delay=_LONGEST_PAUSE_SECONDS)
            handler = _Handler(self._connect)
            self.client = KazooClient(
                hosts=hosts, timeout=session_seconds, connection_retry=retry, handler=handler, sasl_options=sasl
            )
            for host, _ in self.client.hosts:
                host.encode("idna")  # the resolver does the same, where an error would end kazoo's thread
        except ValueError as error:
            problem = f"{hosts!r} is not host:port,host:port/chroot: {error}"
            raise ConfigurationError("zookeeper.connect", [problem]) from error
        self.client.add_listener(self._session_changed)

    @property
    def in_session(self) -> bool:
        """Whether there is a session; with SASL, also before ZooKeeper accepts the credentials."""
        return bool(self.client.connected) and not self._ended

    @property
    def ended(self) -> bool:
        """Whether this client no longer retries: ZooKeeper rejected it, or its thread died."""
        return self._ended

    @property
    def trouble(self) -> Trouble | None:
        """Why the last attempt gave no session; None while no attempt failed."""
        return self._last

    def answered(self) -> None:
        """Forget all failures, because ZooKeeper answered a request."""
        with self._lock:
            self.troubles.clear()
            self._last = self._awaited = None

    def refused(self) -> None:
        """Note that ZooKeeper rejects the identity; another client has to replace this one later."""
        with self._lock:
            noted, self._rejection_noted, self._ended = self._rejection_noted, True, True
        if noted:  # kazoo's thread and the thread of a failed request may both report it
            return
        if self._security.sasl is None:
            way = f"it requires SASL; name the broker's JAAS file by {PREFIX}jaas.file"
        else:
            way = self._login_failed or "it does not accept this user and password, or this principal"
        self._note("", f"{_REFUSED}: {way}", lasting=True)

    def unusable(self, error: ConfigurationError) -> None:
        """Note that the replacing client cannot be created at this moment."""
        self._ended = True
        self._note("", "; ".join(error.problems), lasting=True)

    def close(self, seconds: float) -> None:
        """Close the client on another thread, and wait for that at most this long.

        During a handshake with a server that does not answer, kazoo closes slowly.
        """
        if self._closing:
            return
        self._closing = True

        def close() -> None:
            try:
                self.client.stop()
                self.client.close()
            except Exception:  # noqa: BLE001, S110  (the client is no longer used; its threads are daemons)
                pass

        thread = threading.Thread(target=close, name="zookeeper-close", daemon=True)
        thread.start()
        thread.join(seconds)

    def _connect(self, address: tuple[str, int], host: str, seconds: float | None) -> socket.socket:
        """Make a connection; on kazoo's thread."""
        self._note_left_open()
        server = f"{host}:{address[1]}"
        try:
            connection = self._connected(address, host, server, seconds)
        except ConfigurationError as error:
            self._note("", "; ".join(error.problems), lasting=True)
            raise OSError(str(error)) from error  # kazoo retries after an OSError
        except OSError as error:
            why = why_tls_failed(error)
            self._note(server, why or error.strerror or str(error) or repr(error), lasting=why is not None)
            raise
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._awaited = server
        return connection

    def _connected(self, address: tuple[str, int], host: str, server: str, seconds: float | None) -> socket.socket:
        if self._security.tls is None:
            return socket.create_connection(address, seconds)
        context = tls_context(self._security.tls)

        def note(error: OSError) -> None:
            if (why := why_tls_failed(error)) is not None:
                self._note(server, why, lasting=True)

        return connect_tls(context, address, host, seconds, note)

    def _note_left_open(self) -> None:
        with self._lock:
            server, self._awaited = self._awaited, None
        if server is None or server in self.troubles:
            return
        others = " and a port that speaks TLS (zookeeper.ssl.client.enable)" if self._security.tls is None else ""
        self._note(server, f"{_LEFT_OPEN}, as a ZooKeeper without a quorum{others} does", lasting=False)

    def _note_login(self, why: str) -> None:
        self._login_failed = why

    def _note(self, server: str, why: str, *, lasting: bool) -> None:
        with self._lock:
            self._last = self.troubles[server] = Trouble(server, why, lasting)
            self._awaited = None
        self._noticed()

    def _session_changed(self, state: str) -> None:
        # On kazoo's connection thread.
        if state == KazooState.CONNECTED:
            with self._lock:
                self._awaited = None
        elif state == KazooState.LOST and self.client.client_state in _ENDED and not self._closing:
            if self.client.client_state == KeeperState.AUTH_FAILED:
                self.refused()
            self._ended = True
        self._noticed()


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's handler, with another way to connect."""

    def __init__(self, connect: Callable[[tuple[str, int], str, float | None], socket.socket]) -> None:
        super().__init__()
        self._connect = connect

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **_: Any
    ) -> socket.socket:
        return self._connect((address[0], address[1]), hostname or address[0], timeout)
