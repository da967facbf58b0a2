"""A non-blocking socket of the event loop: it receives into the caller's memory and sends pieces without a copy.

asyncio's own transports join the pieces of a reply in Python 3.11, and keep a receive buffer for each connection.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from typing import Final

from ts_endpoint.protocol.replies import Piece

_MOST_PIECES: Final = min(1024, os.sysconf("SC_IOV_MAX"))  # of one system call; 1024 on Linux


class Channel:
    """One connection's socket.

    Args:
        connected: the socket, which the channel owns; it becomes non-blocking.
    """

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._loop = asyncio.get_running_loop()

    async def receive_into(self, memory: memoryview) -> int:
        """Wait for bytes, write them to `memory`, and return their number; 0 at the end of the stream.

        Raises:
            OSError: the connection failed.
        """
        while True:
            try:
                return self._socket.recv_into(memory)
            except (BlockingIOError, InterruptedError):
                await self._readable()

    async def send(self, pieces: Sequence[Piece], sent: Callable[[int], None]) -> None:
        """Send pieces in order.

        Args:
            pieces: of a reply; none of them is copied.
            sent: called with each number of bytes that the kernel accepted.

        Raises:
            OSError: the connection failed.
        """
        views = [memoryview(piece).cast("B") for piece in pieces if len(piece)]
        first = 0
        while first < len(views):
            try:
                count = self._socket.sendmsg(views[first : first + _MOST_PIECES])
            except (BlockingIOError, InterruptedError):
                await self._writable()
                continue
            sent(count)
            while count:
                size = views[first].nbytes
                if count < size:
                    views[first] = views[first][count:]
                    break
                count -= size
                views[first] = memoryview(b"")  # sent memory is freed while the rest waits
                first += 1

    def end_sending(self) -> None:
        """Notify the client that no further reply follows; the client's bytes can still be received."""
        with contextlib.suppress(OSError):  # the client has closed the connection
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket; no other call may wait."""
        self._socket.close()

    async def _readable(self) -> None:
        ready = self._loop.create_future()
        self._loop.add_reader(self._socket, _set, ready)
        try:
            await ready
        finally:
            self._loop.remove_reader(self._socket)

    async def _writable(self) -> None:
        ready = self._loop.create_future()
        self._loop.add_writer(self._socket, _set, ready)
        try:
            await ready
        finally:
            self._loop.remove_writer(self._socket)


def _set(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)
