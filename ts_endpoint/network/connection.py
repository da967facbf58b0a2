"""The loop of a connection: it receives a frame, answers it and sends the reply, one request after the other."""

import asyncio
import math
import ssl
import traceback
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto
from pathlib import Path
from typing import Final

import structlog

from ts_endpoint.contract import ConnectionEnds, Handlers, Session
from ts_endpoint.network.channel import Channel
from ts_endpoint.network.flow import BytesInFlight, Quotas
from ts_endpoint.network.frames import LENGTH_BYTES, SMALL_BYTES, LargeMessages, fill, receive_frame, size_of
from ts_endpoint.network.limits import Counters, ListenerLimits
from ts_endpoint.protocol.replies import Piece, Values, api_versions, encode_reply, encode_unserved_versions
from ts_endpoint.protocol.requests import MalformedRequest, Request, UnservedRequest, UnservedVersions, parse_request
from ts_endpoint.protocol.versions import Api
from ts_endpoint.security.audit import Audit
from ts_endpoint.security.login import Login, Sasl, UnexpectedRequest
from ts_endpoint.security.tls import subject_of

_PROGRESS_BYTES: Final = 256 << 10
_PART_SECONDS: Final = 2.0
_LONGEST_REASON: Final = 500
_NO_MEMORY: Final = "its reply was the largest, and clients do not read theirs: raise --in-flight-mib if they are yours"
_NO_MEMORY_KIND: Final = "reply_memory"

log = structlog.get_logger()


class Phase(Enum):
    """What a connection does."""

    OPENING = auto()
    IDLE = auto()
    RECEIVING = auto()
    ANSWERING = auto()
    SENDING = auto()
    MUTED = auto()
    PARTING = auto()


# By phase: the kind of the end, and what is logged.
_EXPIRED: Final = {
    Phase.OPENING: ("login_timeout", "no login in time"),
    Phase.IDLE: ("idle", None),
    Phase.RECEIVING: ("frame_timeout", "a frame did not end in time"),
    Phase.SENDING: ("reply_timeout", "a reply was not read in time"),
    Phase.PARTING: ("parting_timeout", None),  # a refused login was logged
}


@dataclass(eq=False)
class Shared:
    """What the connections of a listener share.

    Attributes:
        quotas: of users; None for no quotas.
        sasl: of the listener; None if clients need not authenticate by SASL.
    """

    handlers: Handlers
    limits: ListenerLimits
    counters: Counters
    in_flight: BytesInFlight
    quotas: Quotas | None
    sasl: Sasl | None
    audit: Audit | None
    large_frames: asyncio.Semaphore = field(init=False)
    large_messages: LargeMessages = field(default_factory=LargeMessages)
    _connections: "dict[Session, ClientConnection]" = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.large_frames = asyncio.Semaphore(self.limits.large_frames)

    def begin(self, connection: "ClientConnection") -> None:
        """Register a connection."""
        self._connections[connection.session] = connection

    def end(self, connection: "ClientConnection") -> None:
        """Forget a connection, and the bytes of its reply."""
        self._connections.pop(connection.session, None)
        self.in_flight.release(connection.session)

    def make_room(self, session: Session, size: int) -> None:
        """End the connections with the largest replies, if there is no memory for a further reply.

        Args:
            session: of the further reply.
            size: its bytes.

        Raises:
            ConnectionEnds: the further reply is the largest one.
        """
        while (largest := self.in_flight.in_the_way(session, size)) is not None:
            if largest is session or largest not in self._connections:
                raise ConnectionEnds(_NO_MEMORY, _NO_MEMORY_KIND)
            self._connections[largest].abort(_NO_MEMORY_KIND, _NO_MEMORY)
            self.in_flight.release(largest)


class ClientConnection:
    """One client.

    Attributes:
        session: what handlers receive.

    Args:
        shared: with the other connections.
        names_users: whether a certificate names the user (mutual TLS).
    """

    def __init__(self, channel: Channel, session: Session, shared: Shared, *, names_users: bool) -> None:
        self.session = session
        self._channel = channel
        self._shared = shared
        self._names_users = names_users
        self._login = Login(shared.sasl) if shared.sasl is not None else None
        self._loop = asyncio.get_running_loop()
        self._phase = Phase.OPENING
        self._must_log_in_until = self._loop.time() + shared.limits.login_seconds
        self._deadline = self._must_log_in_until
        self._progress = 0
        self._is_closing = False
        self._end: tuple[str, str | None] | None = None
        self._task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serve until the client closes the connection, or it fails. Nothing is raised."""
        self._task = asyncio.current_task()
        self._shared.begin(self)
        try:
            await self._open()
            while not self._is_closing:
                request = await self._receive()
                if request is None:
                    return
                if not await self._serve(request):
                    break
                del request  # it is not kept while the client is idle
                await asyncio.sleep(0)  # a client whose requests are always there does not stop the others
            self._enter(Phase.PARTING, _PART_SECONDS)
            await self._channel.part()
        except asyncio.CancelledError:
            if self._end is not None:
                self._count_end(*self._end)
        except (ConnectionEnds, MalformedRequest, UnservedRequest, UnexpectedRequest) as error:
            self._count_end(error.kind, str(error))
        except ssl.SSLEOFError:  # a health check of a load balancer connects and sends nothing
            pass
        except ssl.SSLError as error:
            self._count_end("tls", f"TLS failed: {error.reason or error}")
        except OSError:  # the client reset the connection, or does not answer
            pass
        finally:
            self._channel.close()
            self._shared.end(self)
            if self._shared.audit is not None:
                self._shared.audit.ended(self.session)

    def finish(self) -> None:
        """End the connection after the request in progress, at once if there is no request."""
        self._is_closing = True
        if self._phase in {Phase.OPENING, Phase.IDLE, Phase.MUTED}:
            self.abort()

    def abort(self, kind: str | None = None, reason: str | None = None) -> None:
        """End the connection at once.

        Args:
            kind: of the end, for the counter; None for one that is not counted.
            reason: for the log; None for a usual end.
        """
        self._is_closing = True
        self._end = None if kind is None else (kind, reason)
        if self._task is not None:
            self._task.cancel()

    def expire(self, now: float) -> None:
        """End the connection if its client is too slow, idle, or waits for a reply no longer.

        Args:
            now: the event loop's time.
        """
        if now >= self._deadline:
            is_late = self._deadline == self._must_log_in_until
            self.abort(*_EXPIRED[Phase.OPENING if is_late else self._phase])
        elif self._phase is Phase.ANSWERING and self._channel.has_ended():
            self.abort()

    async def _open(self) -> None:
        certificate = await self._channel.open()
        if certificate is not None and self._names_users:
            self.session.user = subject_of(certificate)
        if self._login is None:
            self._must_log_in_until = math.inf

    async def _receive(self) -> Request | UnservedVersions | None:
        """Return the next request; None at the end of the stream."""
        limits = self._shared.limits
        length = bytearray(LENGTH_BYTES)
        self._enter(Phase.IDLE, limits.idle_seconds)
        count = await self._channel.receive_into(memoryview(length))
        if count == 0:
            return None
        self._enter(Phase.RECEIVING, limits.stall_seconds)
        await fill(self._channel, memoryview(length)[count:])
        most = limits.frame_bytes if self._login is None else limits.frame_bytes_before_login
        size = size_of(bytes(length), most)
        self._shared.counters.bytes_received += LENGTH_BYTES + size
        if size <= SMALL_BYTES:
            return parse_request(await receive_frame(self._channel, size))
        async with self._shared.large_frames:
            self._enter(Phase.RECEIVING, limits.stall_seconds)
            frame = await receive_frame(self._channel, size)
            self._phase, self._deadline = Phase.ANSWERING, self._must_log_in_until
            return await self._shared.large_messages.parse(frame)

    async def _serve(self, request: Request | UnservedVersions) -> bool:
        """Answer a request, and return whether the connection continues."""
        self._phase, self._deadline = Phase.ANSWERING, math.inf
        if isinstance(request, UnservedVersions):
            await self._send(encode_unserved_versions(request.correlation))
            return True
        self._shared.counters.requests[request.api] += 1
        if request.api is Api.API_VERSIONS:
            self.session.software = getattr(request.body, "client_software_name", "")
            version = getattr(request.body, "client_software_version", "")
            await self._send(encode_reply(request, api_versions(self.session.software, version)))
            return True
        if self._login is not None:
            return await self._authenticate(request, self._login)
        await self._reply(request, await self._answer(request))
        return True

    async def _authenticate(self, request: Request, login: Login) -> bool:
        self._deadline = self._must_log_in_until
        step = await login.answer(request)
        if step.user is not None:
            self.session.user = step.user
            self._login = None
            self._must_log_in_until = math.inf
        if step.refused is not None:
            self._shared.counters.failed_logins[login.mechanism or "none"] += 1
            if self._shared.audit is not None:
                self._shared.audit.refused_login(self.session, login.claimed, login.mechanism, step.refused)
        await self._send(encode_reply(request, step.values))
        return step.refused is None

    async def _answer(self, request: Request) -> Values | None:
        """Return what the request's handler returns."""
        handler = self._shared.handlers.get(request.api)
        if handler is None:
            raise ConnectionEnds(f"{request.api.name} has no handler", "failed_request")
        task = asyncio.current_task()
        try:
            return await handler(request, self.session)
        except ConnectionEnds:
            raise
        except asyncio.CancelledError as error:
            if task is None or task.cancelling():
                raise
            raise ConnectionEnds(f"{request.api.name} was cancelled by its handler", "failed_request") from error
        except Exception as error:
            self._shared.counters.failed_requests[request.api] += 1
            raise ConnectionEnds(
                f"{request.api.name} of version {request.version} failed: {error!r} at {_place(error)}",
                "failed_request",
            ) from error

    async def _reply(self, request: Request, values: Values | None) -> None:
        """Send a reply. No variable keeps its values, so their memory is freed while the rest is sent."""
        if values is None:
            self._shared.in_flight.release(self.session)
            return
        try:
            pieces = await self._shared.large_messages.encode(request, values)
        except Exception as error:
            self._shared.counters.failed_requests[request.api] += 1
            reason = f"{request.api.name} has a wrong reply: {error!r} at {_place(error)}"
            raise ConnectionEnds(reason, "failed_request") from error
        quotas = self._shared.quotas
        muted = 0.0 if quotas is None else quotas.charge(self.session.user, sum(map(len, pieces)))
        if muted:
            values = {**values, "throttle_time": timedelta(milliseconds=round(muted * 1000))}
            pieces = await self._shared.large_messages.encode(request, values)
        del values
        self._shared.make_room(self.session, sum(map(len, pieces)))
        await self._send(pieces)
        if muted and not self._is_closing:
            self._shared.counters.throttled_seconds += muted
            self._phase = Phase.MUTED
            await asyncio.sleep(muted)

    async def _send(self, pieces: list[Piece]) -> None:
        in_flight = self._shared.in_flight
        in_flight.replace(self.session, sum(map(len, pieces)))
        self._progress = 0
        self._enter(Phase.SENDING, self._shared.limits.stall_seconds)
        await self._channel.send(pieces, self._sent)
        in_flight.release(self.session)

    def _sent(self, count: int) -> None:
        self._shared.counters.bytes_sent += count
        self._shared.in_flight.sent(self.session, count)
        self._progress += count
        if self._progress >= _PROGRESS_BYTES:
            self._progress = 0
            self._enter(Phase.SENDING, self._shared.limits.stall_seconds)

    def _enter(self, phase: Phase, seconds: float) -> None:
        self._phase = phase
        self._deadline = min(self._loop.time() + seconds, self._must_log_in_until)

    def _count_end(self, kind: str, reason: str | None) -> None:
        """Count the end of a connection, and log it if it has a reason."""
        self._shared.counters.ended[kind] += 1
        if reason is not None:
            client, user = self.session.host, self.session.user
            log.warning("connection_closed", client=client, user=user, reason=reason[:_LONGEST_REASON])


def _place(error: Exception) -> str:
    """Return the file and the line that raised an error."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "an unknown place"
