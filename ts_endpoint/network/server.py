"""A listener: it accepts connections and ends them."""

import asyncio
import socket
from typing import Final

from ts_endpoint.contract import Handlers, Session
from ts_endpoint.network.channel import Channel
from ts_endpoint.network.connection import Connection

_BACKLOG: Final = 1024
_FRAME_BYTES: Final = 1 << 20


class Server:
    """Listens on one address and answers the requests of its connections.

    Args:
        handlers: of requests; ApiVersions needs no handler.
        host: name or address to listen on.
        port: 0 chooses a free one.
    """

    def __init__(self, handlers: Handlers, *, host: str, port: int) -> None:
        self._handlers = handlers
        self._host = host
        self._port = port
        self._listener: socket.socket | None = None
        self._connections: dict[asyncio.Task[None], Connection] = {}

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address is in use, or is not of this machine.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        listener = socket.create_server(address, family=family, backlog=_BACKLOG)
        listener.setblocking(False)
        self._listener = listener
        loop.add_reader(listener, self._accept, listener)

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

    async def close(self, grace_seconds: float) -> None:
        """Accept no further connection, answer the requests in progress, and close all connections.

        Args:
            grace_seconds: after that, requests in progress are cancelled.
        """
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        tasks = [*self._connections]
        if not tasks:
            return
        for connection in [*self._connections.values()]:
            connection.finish()
        _, late = await asyncio.wait(tasks, timeout=grace_seconds)
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, listener: socket.socket) -> None:
        try:
            accepted, peer = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(Channel(accepted), Session(host=peer[0]), self._handlers, _FRAME_BYTES)
        task = asyncio.get_running_loop().create_task(connection.run())
        self._connections[task] = connection
        task.add_done_callback(self._connections.pop)
