"""A listener serves clients of Kafka, and ends their connections in order."""

import asyncio
import os
import resource
import socket
import tracemalloc
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from kio.schema.errors import ErrorCode
from kio.schema.sync_group.v0.request import SyncGroupRequestAssignment

from tests.endpoint.network.java_tools import TOPICS, run_tool
from tests.endpoint.network.raw_client import RawClient, framed, parsed
from tests.endpoint.network.requests import FETCH, HEARTBEAT, fetched
from tests.endpoint.network.small_cluster import LOOPBACK, TOPIC, SmallCluster, serve
from ts_endpoint.contract import Session
from ts_endpoint.protocol.replies import Values
from ts_endpoint.protocol.requests import Request
from ts_endpoint.protocol.versions import Api


def test_librdkafka_lists_the_topics() -> None:
    """ApiVersions is answered by the server, Metadata by its handler."""
    cluster = SmallCluster()

    async def client() -> list[str]:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        return [*(await asyncio.to_thread(admin.list_topics, timeout=10)).topics]

    assert serve(cluster, client) == [TOPIC]


@pytest.mark.full
def test_javas_tool_lists_the_topics() -> None:
    """Kafka 4 requests a version of ApiVersions that is served, and Metadata."""
    cluster = SmallCluster()

    async def client() -> tuple[int | None, str]:
        return await run_tool(TOPICS, ["--bootstrap-server", cluster.bootstrap, "--list"])

    status, printed = serve(cluster, client)
    assert status == 0
    assert TOPIC in printed.splitlines()


def test_requests_that_arrive_together_are_answered_in_order_one_at_a_time() -> None:
    """A client may send further requests before it has a reply; the second waits for the first."""
    cluster = SmallCluster()
    at_once = 0
    most = 0

    async def heartbeat(request: Request, session: Session) -> Values:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        for _ in range(20 - request.correlation):  # the first one needs most turns of the loop
            await asyncio.sleep(0)
        at_once -= 1
        return {"error_code": ErrorCode.none}

    cluster.handlers[Api.HEARTBEAT] = heartbeat

    async def client() -> list[int]:
        raw = await RawClient.open(cluster.bootstrap)
        await raw.send(b"".join(framed(Api.HEARTBEAT, 0, number, **HEARTBEAT) for number in range(10)))
        found = [int.from_bytes((await raw.frame())[:4], "big") for _ in range(10)]
        await raw.close()
        return found

    assert serve(cluster, client) == [*range(10)]
    assert most == 1


def test_a_frame_that_arrives_byte_by_byte_is_a_request() -> None:
    """The length and the frame are received in parts of any size."""
    cluster = SmallCluster()

    async def client() -> Any:
        raw = await RawClient.open(cluster.bootstrap)
        for byte in framed(Api.API_VERSIONS, 0):
            await raw.send(bytes([byte]))
            await asyncio.sleep(0)
        found = parsed(Api.API_VERSIONS, 0, await raw.frame())
        await raw.close()
        return found

    assert serve(cluster, client).error_code is ErrorCode.none


def test_a_large_request_arrives_whole() -> None:
    """A frame that is larger than the first part of its memory has all its bytes."""
    cluster = SmallCluster()
    received = []

    async def sync(request: Request, session: Session) -> Values:
        received.append(request.body.assignments[0].assignment)
        return {"assignment": b""}

    cluster.handlers[Api.SYNC_GROUP] = sync
    assignment = os.urandom(900_000)

    async def client() -> None:
        raw = await RawClient.open(cluster.bootstrap)
        member = SyncGroupRequestAssignment(member_id="m", assignment=assignment)
        await raw.ask(Api.SYNC_GROUP, 0, **HEARTBEAT, assignments=(member,))
        await raw.close()

    serve(cluster, client)
    assert received == [assignment]


def test_a_reply_of_50_mib_is_not_copied() -> None:
    """The memory of its records is the only copy in this process, although the client reads slowly."""
    cluster = SmallCluster()
    records = bytes(50 << 20)
    peaks: list[int] = []

    async def fetch(request: Request, session: Session) -> Values:
        tracemalloc.start()
        return fetched(memoryview(records))

    cluster.handlers[Api.FETCH] = fetch

    async def client() -> int:
        loop = asyncio.get_running_loop()
        host, _, port = cluster.bootstrap.rpartition(":")
        with socket.create_connection((host, int(port))) as raw:
            raw.setblocking(False)
            await loop.sock_sendall(raw, framed(Api.FETCH, 12, 1, **FETCH))
            size = 0
            buffer = bytearray(1 << 16)
            while size <= len(records):
                size += await loop.sock_recv_into(raw, buffer)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        return size

    assert serve(cluster, client) > len(records)
    assert peaks[0] < 4 << 20


def test_a_reply_of_more_pieces_than_one_system_call_sends_arrives_whole() -> None:
    """More than IOV_MAX views are sent in order."""
    cluster = SmallCluster()
    pieces = [number.to_bytes(3, "big") for number in range(5_000)]

    async def fetch(request: Request, session: Session) -> Values:
        return fetched(*[memoryview(piece) for piece in pieces])

    cluster.handlers[Api.FETCH] = fetch

    async def client() -> bytes:
        raw = await RawClient.open(cluster.bootstrap)
        await raw.send(framed(Api.FETCH, 12, 1, **FETCH))
        frame = await raw.frame()
        await raw.close()
        return frame

    assert b"".join(pieces) in serve(cluster, client)


def test_closing_answers_the_request_in_progress_and_accepts_no_further_connection() -> None:
    """A client that waits for a reply receives it, then the end of its connection; an idle one only the end."""
    cluster = SmallCluster()
    begun = asyncio.Event()
    may_end = asyncio.Event()

    async def heartbeat(request: Request, session: Session) -> Values:
        begun.set()
        await may_end.wait()
        return {"error_code": ErrorCode.none}

    cluster.handlers[Api.HEARTBEAT] = heartbeat

    async def client() -> tuple[Any, bool, bool]:
        assert cluster.server is not None
        address = cluster.bootstrap
        waiting = await RawClient.open(address)
        idle = await RawClient.open(address)
        await idle.ask(Api.API_VERSIONS, 0)
        await waiting.send(2 * framed(Api.HEARTBEAT, 0, 1, **HEARTBEAT))  # the second one is never answered
        await begun.wait()
        closing = asyncio.ensure_future(cluster.server.close(60))
        idle_ended = await idle.ended()
        with pytest.raises(ConnectionRefusedError):
            await RawClient.open(address)
        assert not closing.done()
        may_end.set()
        reply = parsed(Api.HEARTBEAT, 0, await waiting.frame())
        ended = await waiting.ended()
        for each in (waiting, idle):
            await each.close()
        await closing
        return reply, ended, idle_ended

    reply, ended, idle_ended = serve(cluster, client)

    assert reply.error_code is ErrorCode.none
    assert ended
    assert idle_ended


def test_closing_loses_no_byte_of_a_reply_that_the_client_has_not_read() -> None:
    """A further request of the client, which the server does not read, does not reset the connection meanwhile."""
    cluster = SmallCluster()
    records = os.urandom(8 << 20)

    async def fetch(request: Request, session: Session) -> Values:
        return fetched(memoryview(records))

    cluster.handlers[Api.FETCH] = fetch

    async def client() -> tuple[bytes, bool]:
        assert cluster.server is not None
        raw = await RawClient.open(cluster.bootstrap)
        raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await raw.send(2 * framed(Api.FETCH, 12, 1, **FETCH))
        while not cluster.server.counters.bytes_sent:
            await asyncio.sleep(0)
        closing = asyncio.ensure_future(cluster.server.close(60))
        await asyncio.sleep(0)
        raw.writer.transport.resume_reading()  # type: ignore[attr-defined]
        frame = await raw.frame()
        ended = await raw.ended()
        await raw.close()
        await closing
        return frame, ended

    frame, ended = serve(cluster, client)

    assert records in frame
    assert ended


def test_closing_cancels_a_request_that_outlasts_the_grace() -> None:
    """A handler that never ends does not keep the endpoint."""
    cluster = SmallCluster()
    cancelled = []
    begun = asyncio.Event()

    async def heartbeat(request: Request, session: Session) -> Values:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return {}

    cluster.handlers[Api.HEARTBEAT] = heartbeat

    async def client() -> None:
        assert cluster.server is not None
        raw = await RawClient.open(cluster.bootstrap)
        await raw.send(framed(Api.HEARTBEAT, 0, 1, **HEARTBEAT))
        await begun.wait()
        await cluster.server.close(0.01)
        assert cluster.server.connections == 0
        await raw.close()

    serve(cluster, client)
    assert cancelled == [True]
    assert cluster.server is not None
    assert cluster.server.counters.ended == {"stopped": 1}


def test_a_client_that_left_ends_the_handler_of_its_request() -> None:
    """A handler that waits for a client is cancelled once the client has closed its connection."""
    cluster = SmallCluster()
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def heartbeat(request: Request, session: Session) -> Values:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return {}

    cluster.handlers[Api.HEARTBEAT] = heartbeat

    async def client() -> bool:
        raw = await RawClient.open(cluster.bootstrap)
        await raw.send(framed(Api.HEARTBEAT, 0, 1, **HEARTBEAT))
        await begun.wait()
        await raw.close()
        return await asyncio.wait_for(cancelled.wait(), 60)

    assert serve(cluster, client)
    assert cluster.server is not None
    assert cluster.server.counters.ended == {}


def test_without_file_descriptors_the_listener_pauses_and_then_serves_again() -> None:
    """accept() that fails by EMFILE is tried again after a while, not in every turn of the loop."""
    cluster = SmallCluster()

    async def client() -> tuple[int, Any]:
        assert cluster.server is not None
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        raw = socket.socket()
        raw.setblocking(False)
        host, _, port = cluster.bootstrap.rpartition(":")
        used = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used, hard))
        fillers = []
        try:
            while True:  # numbers below the limit that are free
                try:
                    fillers.append(os.dup(0))
                except OSError:
                    break
            await asyncio.get_running_loop().sock_connect(raw, (host, int(port)))
            while not cluster.server.counters.accept_pauses:
                await asyncio.sleep(0)
            for _ in range(1000):
                await asyncio.sleep(0)
            pauses = cluster.server.counters.accept_pauses
        finally:
            for each in fillers:
                os.close(each)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        await asyncio.get_running_loop().sock_sendall(raw, framed(Api.API_VERSIONS, 0))
        reader, writer = await asyncio.open_connection(sock=raw)
        served = RawClient(reader, writer)
        found = parsed(Api.API_VERSIONS, 0, await served.frame())
        await served.close()
        return pauses, found

    pauses, found = serve(cluster, client)

    assert pauses == 1
    assert found.error_code is ErrorCode.none


def test_the_address_is_that_of_the_listener() -> None:
    """Port 0 chooses a free port."""
    cluster = SmallCluster()

    async def client() -> tuple[str, int]:
        assert cluster.server is not None
        return cluster.server.address

    host, port = serve(cluster, client)

    assert host == LOOPBACK
    assert port > 0
