"""A TCP link that can be cut, stalled and delayed: an address in front of any server, for any protocol.

    flowing    bytes pass, and so do the ends of connections
    cut        every connection is reset, and each new one at once
    stalled    connections are accepted and stay open, but nothing passes: no byte, no end, no reset. A black hole

One thread runs an event loop for all connections of a link. Each connection buffers at most one block per direction; if
one peer does not read, TCP slows the other one down. A command from another thread returns when it is in effect.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

from dev.local.ports import LOOPBACK, listen

T = TypeVar("T")

_BLOCK = 1 << 16
_BACKLOG = 128
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class LinkCounters:
    """Counters of a link.

    Attributes:
        accepted: connections that clients opened and that were not reset.
        open: accepted connections that are still open.
        refused: connections that were reset at once, because the link was cut.
        cuts: calls of `cut()`.
        reset: connections that those calls ended.
        moved: bytes, both directions together.
    """

    accepted: int = 0
    open: int = 0
    refused: int = 0
    cuts: int = 0
    reset: int = 0
    moved: int = 0


class LinkProxy:
    """A free loopback port in front of a server, open from its construction to `close()`.

    Args:
        name: of the link, for its thread and errors: "broker-1:zookeeper".
        port: of the server, on loopback. While no server listens there, clients are reset.
    """

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self._target = (LOOPBACK, port)
        listener = listen(_BACKLOG)
        listener.setblocking(False)
        self._listener = listener
        self.port: int = listener.getsockname()[1]
        self.address = f"{LOOPBACK}:{self.port}"
        # From here on all state is owned by the loop's thread.
        self._counters = LinkCounters()
        self._is_cut = False
        self._delay = 0.0
        self._flows = asyncio.Event()  # cleared while stalled
        self._flows.set()
        self._hurries = asyncio.Event()  # cleared while delayed
        self._hurries.set()
        self._carried: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"link-{name}", daemon=True)
        self._thread.start()
        self._acceptor = self._do(self._begin())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cut(self) -> None:
        """Reset all connections, and each new one until `heal()`."""
        self._do(self._cut())

    def stall(self) -> None:
        """Keep all connections, accept new ones, and pass nothing until `heal()`.

        Bytes that were read before are kept; a block that is being written may still arrive.
        """
        self._do(self._stall())

    def delay(self, seconds: float) -> None:
        """Delay each block of at most 64 KiB in each direction until `heal()`.

        This also bounds the throughput: one block per direction in `seconds`.
        """
        self._do(self._slow(seconds))

    def heal(self) -> None:
        """Pass everything at once again, delayed and stalled bytes included."""
        self._do(self._heal())

    def counters(self) -> LinkCounters:
        """Return the counters."""
        return self._do(self._count())

    def close(self) -> None:
        """Reset all connections and stop; repeated calls have no effect.

        Raises:
            OSError: accepting a connection failed earlier, for example with too many open files.
        """
        if self._loop.is_closed():
            return
        try:
            self._do(self._end())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._listener.close()

    def _do(self, step: "Coroutine[Any, Any, T]") -> T:
        if self._loop.is_closed():
            step.close()
            raise RuntimeError(f"the link {self.name} is closed")
        return asyncio.run_coroutine_threadsafe(step, self._loop).result()

    # The methods below run in the loop's thread.

    async def _begin(self) -> "asyncio.Task[None]":
        return self._loop.create_task(self._accept())

    async def _cut(self) -> None:
        self._is_cut = True
        self._flows.set()
        ended = len(self._carried)
        await self._drop_all()
        self._counters = replace(self._counters, cuts=self._counters.cuts + 1, reset=self._counters.reset + ended)

    async def _stall(self) -> None:
        self._is_cut = False
        self._flows.clear()

    async def _slow(self, seconds: float) -> None:
        self._delay = seconds
        self._hurries.clear()

    async def _heal(self) -> None:
        self._is_cut = False
        self._flows.set()
        self._hurries.set()

    async def _count(self) -> LinkCounters:
        return replace(self._counters, open=len(self._carried))

    async def _end(self) -> None:
        self._acceptor.cancel()
        await self._drop_all()
        with suppress(asyncio.CancelledError):
            await self._acceptor

    async def _drop_all(self) -> None:
        tasks = list(self._carried)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self) -> None:
        while True:
            client, _ = await self._loop.sock_accept(self._listener)
            if self._is_cut:
                self._counters = replace(self._counters, refused=self._counters.refused + 1)
                _reset(client)
                continue
            self._counters = replace(self._counters, accepted=self._counters.accepted + 1)
            task = self._loop.create_task(self._carry(client))
            self._carried.add(task)
            task.add_done_callback(self._carried.discard)

    async def _carry(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        close: Callable[[socket.socket], None] = _reset
        try:
            for end in (client, server):
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._flows.wait()
            await self._loop.sock_connect(server, self._target)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(client, server))
                both.create_task(self._pump(server, client))
            close = socket.socket.close
        except* OSError:
            pass  # one end was reset, or no server listens: the other end is reset too
        finally:
            close(client)
            close(server)

    async def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        while True:
            try:
                block = await self._loop.sock_recv(source, _BLOCK)
            except OSError:
                await self._flows.wait()  # a stalled link does not pass a reset
                raise
            if not self._hurries.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._hurries.wait(), self._delay)
            await self._flows.wait()
            if not block:
                sink.shutdown(socket.SHUT_WR)
                return
            await self._loop.sock_sendall(sink, block)
            self._counters = replace(self._counters, moved=self._counters.moved + len(block))


def _reset(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
    connection.close()
