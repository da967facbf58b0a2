"""The loop of a connection: it receives a frame, answers it and sends the reply, one request after the other."""

import asyncio
from typing import Final

import structlog

from ts_endpoint.contract import Handlers, Session
from ts_endpoint.network.channel import Channel
from ts_endpoint.protocol.replies import Piece, api_versions, encode_reply, encode_unserved_versions
from ts_endpoint.protocol.requests import MalformedRequest, UnservedVersions, parse_request
from ts_endpoint.protocol.versions import Api

_log = structlog.get_logger()
_CHUNK: Final = 64 << 10  # of a frame: its memory grows as bytes arrive, so a wrong length costs nothing


class ConnectionEnds(Exception):
    """The endpoint closes the connection; the message is the reason. A handler may raise it."""


class Connection:
    """One client.

    Args:
        channel: its socket.
        session: what handlers receive.
        handlers: of requests.
    """

    def __init__(self, channel: Channel, session: Session, handlers: Handlers, frame_bytes: int) -> None:
        self._channel = channel
        self._session = session
        self._handlers = handlers
        self._frame_bytes = frame_bytes
        self._is_idle = False
        self._is_closing = False
        self._task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serve until the client closes the connection, or it fails."""
        self._task = asyncio.current_task()
        try:
            while not self._is_closing:
                frame = await self._receive()
                if frame is None:
                    return
                pieces = await self._answer(frame)
                if pieces is not None:
                    await self._channel.send(pieces, lambda _count: None)
        except (ConnectionEnds, MalformedRequest) as error:
            _log.warning("connection_closed", client=self._session.host, reason=str(error))
        except OSError as error:
            _log.debug("connection_failed", client=self._session.host, error=str(error))
        except Exception:  # noqa: BLE001  (it ends this connection and no other)
            _log.exception("request_failed", client=self._session.host)
        finally:
            self._channel.close()

    def finish(self) -> None:
        """End the connection after the request in progress, at once if there is none."""
        self._is_closing = True
        if self._is_idle:
            self.abort()

    def abort(self) -> None:
        """End the connection at once."""
        if self._task is not None:
            self._task.cancel()

    async def _receive(self) -> bytes | None:
        """Return the next frame; None at the end of the stream."""
        length = bytearray(4)
        self._is_idle = True
        count = await self._channel.receive_into(memoryview(length))
        self._is_idle = False
        if count == 0:
            return None
        await self._fill(memoryview(length)[count:])
        size = int.from_bytes(length, "big", signed=True)
        if not 0 < size <= self._frame_bytes:
            raise ConnectionEnds(f"a frame of {size} bytes: from 1 to {self._frame_bytes} are expected")
        frame = bytearray(min(size, _CHUNK))
        await self._fill(memoryview(frame))
        while len(frame) < size:
            chunk = memoryview(bytearray(min(size - len(frame), len(frame))))
            await self._fill(chunk)
            frame += chunk
        return bytes(frame)  # kio reads no memory that can change

    async def _fill(self, memory: memoryview) -> None:
        while memory:
            count = await self._channel.receive_into(memory)
            if count == 0:
                raise ConnectionEnds("the client closed the connection within a frame")
            memory = memory[count:]

    async def _answer(self, frame: bytes) -> list[Piece] | None:
        request = parse_request(frame)
        if isinstance(request, UnservedVersions):
            return encode_unserved_versions(request.correlation)
        if request.api is Api.API_VERSIONS:
            return encode_reply(request, api_versions())
        handler = self._handlers.get(request.api)
        if handler is None:
            raise ConnectionEnds(f"{request.api.name} has no handler")
        values = await handler(request, self._session)
        return None if values is None else encode_reply(request, values)
