"""Clients that are idle, slow or many lose their connections; the others are served."""

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import structlog

from dev.local.certificates import Certificates
from tests.endpoint.network.raw_client import RawClient, framed
from tests.endpoint.network.requests import FETCH, fetched
from tests.endpoint.network.small_cluster import SmallCluster, advance, serve
from ts_endpoint.contract import Session
from ts_endpoint.network.flow import BytesInFlight
from ts_endpoint.network.limits import ListenerLimits
from ts_endpoint.protocol.replies import Values
from ts_endpoint.protocol.requests import Request
from ts_endpoint.protocol.versions import Api
from ts_endpoint.security.tls import Tls, TlsFiles
from ts_endpoint.serving.line_limit import LimitedLines


def counters(cluster: SmallCluster) -> Any:
    assert cluster.server is not None
    return cluster.server.counters


async def is_served(cluster: SmallCluster) -> bool:
    """Return whether a further client is answered."""
    raw = await RawClient.open(cluster.bootstrap)
    await raw.ask(Api.API_VERSIONS, 0)
    await raw.close()
    return True


@pytest.mark.parametrize("name", ["connections", "connections_per_host"])
def test_connections_above_a_limit_are_closed_at_once(name: str) -> None:
    """A place that becomes free is given to the next client."""
    cluster = SmallCluster()

    async def client() -> None:
        served = [await RawClient.open(cluster.bootstrap) for _ in range(3)]
        for each in served:
            await each.ask(Api.API_VERSIONS, 0)
        for _ in range(100):
            refused = await RawClient.open(cluster.bootstrap)
            assert await refused.ended()
            await refused.close()
        await served.pop().close()
        assert cluster.server is not None
        while cluster.server.connections > 2:
            await asyncio.sleep(0)
        assert await is_served(cluster)
        for each in served:
            await each.ask(Api.API_VERSIONS, 0)
            await each.close()

    with structlog.testing.capture_logs([LimitedLines()]) as logs:
        serve(cluster, client, limits=ListenerLimits(**{name: 3}))

    assert counters(cluster).refused == {name: 100}
    assert len(logs) <= 20


def test_an_idle_connection_is_closed_without_a_line_in_the_log() -> None:
    """After 10 minutes, as by a broker; a connection that sends requests meanwhile is not idle."""
    cluster = SmallCluster()

    async def client() -> None:
        idle, busy = [await RawClient.open(cluster.bootstrap) for _ in range(2)]
        for each in (idle, busy):
            await each.ask(Api.API_VERSIONS, 0)
        for _ in range(3):
            advance(299)
            await busy.ask(Api.API_VERSIONS, 0)
        assert await idle.ended()
        await busy.ask(Api.API_VERSIONS, 0)
        for each in (idle, busy):
            await each.close()

    with structlog.testing.capture_logs() as logs:
        serve(cluster, client)

    assert counters(cluster).ended == {"idle": 1}
    assert logs == []


def test_a_frame_that_does_not_end_is_disconnected() -> None:
    """After 30 seconds, wherever it stops, although the connection may be idle for longer."""
    cluster = SmallCluster()
    parts = [b"\0", b"\0\0\0", b"\0\0\1\0", b"\0\0\1\0abc", b"\0\x0f\0\0" + bytes(70_000)]

    async def client() -> None:
        begun = [await RawClient.open(cluster.bootstrap) for _ in parts]
        idle = await RawClient.open(cluster.bootstrap)
        await idle.ask(Api.API_VERSIONS, 0)
        for each, part in zip(begun, parts, strict=True):
            await each.send(part)
        ended = asyncio.gather(*(each.ended() for each in begun))
        while counters(cluster).ended.total() < len(parts):
            advance(1)
            await asyncio.sleep(0)
        assert all(await ended)
        await idle.ask(Api.API_VERSIONS, 0)
        for each in [*begun, idle]:
            await each.close()

    serve(cluster, client)
    assert counters(cluster).ended == {"frame_timeout": len(parts)}


def test_a_client_that_does_not_read_is_disconnected_and_one_that_reads_slowly_is_not() -> None:
    """Each part of a reply that arrives gives the client the whole time again."""
    cluster = SmallCluster()
    size = 24 << 20

    async def fetch(request: Request, session: Session) -> Values:
        return fetched(memoryview(bytes(size)))

    cluster.handlers[Api.FETCH] = fetch

    async def client() -> int:
        loop = asyncio.get_running_loop()
        host, _, port = cluster.bootstrap.rpartition(":")
        stalled, slow = [socket.socket() for _ in range(2)]
        for each in (stalled, slow):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            each.setblocking(False)
            await loop.sock_connect(each, (host, int(port)))
            await loop.sock_sendall(each, framed(Api.FETCH, 12, 1, **FETCH))
        received = 0
        buffer = bytearray(1 << 18)
        due = counters(cluster).bytes_sent + (4 << 20)
        while received <= size:  # in a time that is several times the limit
            received += await loop.sock_recv_into(slow, buffer)
            if counters(cluster).bytes_sent >= due:
                due += 4 << 20
                advance(29)
                await asyncio.sleep(0)
        while counters(cluster).ended.total() == 0:
            await asyncio.sleep(0)
        for each in (stalled, slow):
            each.close()
        return received

    assert serve(cluster, client) > size
    assert counters(cluster).ended == {"reply_timeout": 1}


def test_replies_that_no_client_reads_have_a_limit_in_memory() -> None:
    """Above 1.25 of the limit the connection with the largest reply ends; a client that reads gets all of its reply."""
    cluster = SmallCluster()
    mib = 1 << 20
    in_flight = BytesInFlight(8 * mib)

    async def describe(request: Request, session: Session) -> Values:
        (name,) = request.body.groups
        metadata = bytes(int(name) * mib)
        member = {"member_id": "m", "client_id": "c", "client_host": "h", "member_assignment": b""}
        group = {"group_id": name, "group_state": "Stable", "protocol_type": "", "protocol_data": ""}
        return {"groups": [{**group, "members": [{**member, "member_metadata": metadata}]}]}

    cluster.handlers[Api.DESCRIBE_GROUPS] = describe

    async def client() -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        host, _, port = cluster.bootstrap.rpartition(":")
        most, hogs = 0, []
        for number in range(20):
            hog = socket.socket()
            hog.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            hog.setblocking(False)
            hogs.append(hog)
            await loop.sock_connect(hog, (host, int(port)))
            await loop.sock_sendall(hog, framed(Api.DESCRIBE_GROUPS, 0, groups=("7",)))
            while counters(cluster).requests[Api.DESCRIBE_GROUPS] <= number or (
                len(in_flight._of) + counters(cluster).ended["reply_memory"] <= number
            ):
                await asyncio.sleep(0)
            most = max(most, in_flight.used)
        reader = await RawClient.open(cluster.bootstrap)
        reply = await reader.ask(Api.DESCRIBE_GROUPS, 0, groups=("5",))
        await reader.close()
        for hog in hogs:
            hog.close()
        return most, len(reply.groups[0].members[0].member_metadata)

    with structlog.testing.capture_logs() as logs:
        most, received = serve(cluster, client, in_flight=in_flight)

    assert most <= 10 * mib
    assert received == 5 * mib
    assert counters(cluster).ended["reply_memory"] > 10
    assert "raise --in-flight-mib" in logs[0]["reason"]
    assert in_flight.used == 0


@pytest.mark.parametrize("tls", [False, True], ids=["TCP", "TLS"])
def test_an_idle_connection_costs_less_than_64_kb(tls: bool, tmp_path: Path) -> None:
    """Measured over many connections, each after a request; the clients are another process."""
    certificates = Certificates(tmp_path)
    cluster = SmallCluster()
    count = 200 if tls else 1000
    script = (
        "import socket, ssl, struct, sys\n"
        "host, port, count, authority, frame = sys.argv[1:]\n"
        "context = ssl.create_default_context(cafile=authority) if authority else None\n"
        "connections = []\n"
        "for _ in range(int(count)):\n"
        "    raw = socket.create_connection((host, int(port)))\n"
        "    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)\n"
        "    each = context.wrap_socket(raw, server_hostname=host) if context else raw\n"
        "    each.sendall(bytes.fromhex(frame))\n"
        "    each.recv(4096)\n"
        "    connections.append(each)\n"
        "print(len(connections), flush=True)\n"
        "sys.stdin.read()\n"
    )
    options = {"tls": Tls(TlsFiles(certificates.server, certificates.server_key))} if tls else {}

    async def client() -> float:
        host, _, port = cluster.bootstrap.rpartition(":")
        authority = str(certificates.authority) if tls else ""
        frame = framed(Api.API_VERSIONS, 0).hex()
        before = psutil.Process().memory_info().rss
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", script, host, port, str(count), authority, frame),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert int(await process.stdout.readline()) == count
        grown = psutil.Process().memory_info().rss - before
        await process.communicate(b"")
        return grown / count

    each = serve(cluster, client, **options)

    assert each < 64_000


def test_a_large_length_costs_no_memory_before_its_bytes_arrive() -> None:
    """500 clients that announce 1 MiB and send a few bytes do not cost 500 MiB."""
    cluster = SmallCluster()

    async def client() -> int:
        before = psutil.Process().memory_info().rss
        liars = [await RawClient.open(cluster.bootstrap) for _ in range(500)]
        for each in liars:
            await each.send((1 << 20).to_bytes(4, "big") + b"x")
        assert await is_served(cluster)
        grown = psutil.Process().memory_info().rss - before
        for each in liars:
            each.writer.transport.abort()
        return grown

    assert serve(cluster, client) < 20 << 20


def test_a_flood_of_connections_leaves_nothing() -> None:
    """Connections that are opened and closed, also with a reset, are forgotten; file descriptors are closed."""
    cluster = SmallCluster()

    async def client() -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        host, _, port = cluster.bootstrap.rpartition(":")
        before = len(os.listdir("/proc/self/fd"))
        for number in range(2000):
            raw = socket.socket()
            raw.setblocking(False)
            await loop.sock_connect(raw, (host, int(port)))
            if number % 3 == 0:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # close() resets
            if number % 2 == 0:
                await loop.sock_sendall(raw, framed(Api.API_VERSIONS, 0)[: number % 30])
            raw.close()
        assert await is_served(cluster)
        assert cluster.server is not None
        while cluster.server.connections:
            await asyncio.sleep(0)
        return before, len(os.listdir("/proc/self/fd"))

    before, after = serve(cluster, client)

    assert after == before


def test_keepalive_finds_hosts_that_disappeared() -> None:
    """The kernel probes a connection whose client sends nothing, and small replies are sent at once."""
    cluster = SmallCluster()
    options: list[int] = []

    async def client() -> None:
        raw = await RawClient.open(cluster.bootstrap)
        await raw.ask(Api.API_VERSIONS, 0)
        assert cluster.server is not None
        (connection,) = cluster.server._connections.values()
        accepted = connection._channel._socket
        options.append(accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
        options.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        options.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE))
        await raw.close()

    serve(cluster, client)

    assert options == [1, 1, 60]
