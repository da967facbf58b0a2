"""Processes of a cluster on one event loop: each with a real port for its health."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from ts_endpoint.peers.addresses import Address, Peer
from ts_endpoint.peers.cluster import Peers

HOST = "127.0.0.1"
WHOLE_TEST = 60.0  # seconds; a guard against hangs


class HealthPort:
    """A port that answers a request with fields as JSON, or never.

    Args:
        fields: returns those of the next answer; None leaves the client without one.
    """

    def __init__(self, fields: Callable[[], Mapping[str, Any] | bytes | None]) -> None:
        self._fields = fields
        self._server: asyncio.Server | None = None
        self._open: list[asyncio.StreamWriter] = []
        self.asked = 0
        self.was_asked = asyncio.Event()
        self.port = 0

    async def open(self, port: int = 0) -> None:
        """Listen on a port; 0 picks one."""
        self._server = await asyncio.start_server(self._answer, HOST, port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Close the port and its connections, as the end of a process does."""
        if self._server is not None:
            self._server.close()
            for writer in self._open:
                writer.close()
            await self._server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        self.asked += 1
        self.was_asked.set()
        fields = self._fields()
        if fields is None:
            return
        body = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + body)
        writer.close()


class Member:
    """One process: its peers, and its health as the others see it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.status = "ok"
        self.other_fields: dict[str, Any] = {}
        self.port = HealthPort(lambda: {**self.peers.health_fields(), "status": self.status, **self.other_fields})
        self.changed = asyncio.Event()
        self.peers: Peers

    def join(self, listed: list[Peer], deadline: float = 30.0) -> None:
        """Check the others of a list, without a pause between two checks."""
        own = listed[self.number]
        self.peers = Peers("prod", listed, own, self.changed.set, check_seconds=0.005, deadline_seconds=deadline)
        self.peers.start()

    async def sees(self, living: set[int]) -> None:
        """Wait until this process sees these node ids as living."""
        while {node_id for node_id, _, _ in self.peers.brokers()} != living:
            self.changed.clear()
            await self.changed.wait()

    async def checked(self, other: "Member", times: int) -> None:
        """Wait for answers of another process."""
        until = other.port.asked + times
        while other.port.asked < until:
            other.port.was_asked.clear()
            await other.port.was_asked.wait()


async def members(number: int) -> tuple[list[Member], list[Peer]]:
    """Return processes with open ports, and their list; none has joined."""
    found = [Member(each) for each in range(number)]
    for member in found:
        await member.port.open()
    return found, [Peer(m.number, Address(HOST, 20_000 + m.number), Address(HOST, m.port.port)) for m in found]
