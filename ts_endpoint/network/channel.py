"""A non-blocking socket of the event loop: it receives into the caller's memory and sends pieces without a copy.

asyncio's own transports join the pieces of a reply in Python 3.11, and keep a receive buffer for each connection.
"""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from ts_endpoint.protocol.replies import Piece

_MOST_PIECES: Final = min(1024, os.sysconf("SC_IOV_MAX"))  # of one system call; 1024 on Linux
_TLS_RECORD: Final = 16 << 10
_TLS_SLICE: Final = 256 << 10  # encrypted at once, while other connections wait
_DISCARDED: Final = 16 << 10
_NOT_YET: Final = (BlockingIOError, InterruptedError)

T = TypeVar("T")
Sent = Callable[[int], None]


class Channel:
    """One connection's socket, without TLS.

    Args:
        connected: the socket, which the channel owns; it becomes non-blocking.
    """

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._loop = asyncio.get_running_loop()

    async def open(self) -> bytes | None:
        """Prepare the connection, and return the client's certificate in DER if there is one.

        Raises:
            OSError: the connection failed, or the client does not speak TLS.
        """
        return None

    async def receive_into(self, memory: memoryview) -> int:
        """Wait for bytes, write them to `memory`, and return their number; 0 at the end of the stream.

        Raises:
            OSError: the connection failed.
        """
        while True:
            try:
                return self._socket.recv_into(memory)
            except _NOT_YET:
                await self._readable()

    async def send(self, pieces: list[Piece], sent: Sent) -> None:
        """Send pieces in order.

        Args:
            pieces: of a reply; no piece is copied. The list is emptied, so that memory is freed while the rest waits.
            sent: called with each number of bytes that the kernel accepted.

        Raises:
            OSError: the connection failed.
        """
        views = [memoryview(piece).cast("B") for piece in reversed(pieces) if len(piece)]
        pieces.clear()
        while views:
            try:
                count = self._socket.sendmsg(views[: -_MOST_PIECES - 1 : -1])
            except _NOT_YET:
                await self._writable()
                continue
            sent(count)
            while count:
                view = views.pop()
                if count < view.nbytes:
                    views.append(view[count:])
                count -= min(count, view.nbytes)

    def has_ended(self) -> bool:
        """Return whether the client has closed the connection, and has sent nothing that was not received."""
        try:
            return socket.socket.recv(self._socket, 1, socket.MSG_PEEK) == b""
        except _NOT_YET:
            return False
        except OSError:
            return True

    async def part(self) -> None:
        """Notify the client that no further reply follows, and wait until it closes the connection.

        A socket that is closed before all bytes were received resets the connection, and the client can lose the reply.
        """
        discarded = memoryview(bytearray(_DISCARDED))
        with contextlib.suppress(OSError):  # the client closed the connection first
            self._end_sending()
            while True:
                try:
                    if socket.socket.recv_into(self._socket, discarded) == 0:
                        return
                except _NOT_YET:
                    await self._readable()

    def close(self) -> None:
        """Close the socket; no other call may wait."""
        self._socket.close()

    def _end_sending(self) -> None:
        socket.socket.shutdown(self._socket, socket.SHUT_WR)

    async def _readable(self) -> None:
        await self._ready(self._loop.add_reader, self._loop.remove_reader)

    async def _writable(self) -> None:
        await self._ready(self._loop.add_writer, self._loop.remove_writer)

    async def _ready(self, add: Callable[..., None], remove: Callable[[socket.socket], object]) -> None:
        ready = self._loop.create_future()
        add(self._socket, _set, ready)
        try:
            await ready
        finally:
            remove(self._socket)


class TlsChannel(Channel):
    """One connection's socket with TLS.

    Args:
        connected: as of `Channel`.
    """

    def __init__(self, connected: socket.socket, context: ssl.SSLContext) -> None:
        connected.setblocking(False)
        self._tls = context.wrap_socket(connected, server_side=True, do_handshake_on_connect=False)
        super().__init__(self._tls)

    async def open(self) -> bytes | None:
        """Shake hands, and return the client's certificate in DER if it has one.

        Raises:
            OSError: the connection failed, or the client does not speak TLS.
        """
        await self._done(self._tls.do_handshake)
        return self._tls.getpeercert(binary_form=True)

    async def receive_into(self, memory: memoryview) -> int:
        """Do as `Channel.receive_into`."""
        try:
            return await self._done(self._tls.recv_into, memory)
        except ssl.SSLZeroReturnError:
            return 0

    async def send(self, pieces: list[Piece], sent: Sent) -> None:
        """Do as `Channel.send`; pieces smaller than a record of TLS are joined to one."""
        waiting = pieces[::-1]
        pieces.clear()
        for view in _slices(waiting):
            rest = view
            while rest:
                count = await self._done(self._tls.send, rest)  # after an error OpenSSL expects the same bytes again
                sent(count)
                rest = rest[count:]

    async def _done(self, call: Callable[..., T], *arguments: object) -> T:
        """Repeat a call of OpenSSL until it needs no more bytes of the socket, and return its result."""
        while True:
            try:
                return call(*arguments)
            except ssl.SSLWantReadError:
                await self._readable()
            except ssl.SSLWantWriteError:
                await self._writable()

    def _end_sending(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._tls.unwrap()  # sends the alert, and does not wait for the client's
        super()._end_sending()


def _slices(waiting: list[Piece]) -> Iterator[memoryview]:
    """Yield the bytes of pieces, the last one first; the list is emptied meanwhile."""
    small = bytearray()
    while waiting:
        view = memoryview(waiting.pop()).cast("B")
        if len(small) + view.nbytes <= _TLS_RECORD:
            small += view
            continue
        if small:
            yield memoryview(bytes(small))
            small.clear()
        while view.nbytes > _TLS_RECORD:
            yield view[:_TLS_SLICE]
            view = view[_TLS_SLICE:]
        small += view
    if small:
        yield memoryview(bytes(small))


def _set(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)
