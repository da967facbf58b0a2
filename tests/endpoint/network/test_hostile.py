"""Bytes of any kind end their own connection; no other client notices, and nothing grows."""

import asyncio
import contextlib
import random
import threading
from typing import Any

import psutil
import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.endpoint.network.raw_client import RawClient, framed, parsed
from tests.endpoint.network.requests import HEARTBEAT
from tests.endpoint.network.small_cluster import SmallCluster, serve
from ts_endpoint.contract import ConnectionEnds, Session
from ts_endpoint.network import frames
from ts_endpoint.protocol.replies import Values
from ts_endpoint.protocol.requests import Request
from ts_endpoint.protocol.versions import SERVED, Api
from ts_endpoint.serving.line_limit import LimitedLines

VALID = framed(Api.API_VERSIONS, 3, client_software_name="librdkafka", client_software_version="2.16.1")


async def answered(raw: RawClient) -> None:
    await raw.send(framed(Api.API_VERSIONS, 0))
    parsed(Api.API_VERSIONS, 0, await raw.frame())


async def attack(bootstrap: str, data: bytes) -> None:
    """Send bytes, and read until the connection ends, or nothing more arrives."""
    raw = await RawClient.open(bootstrap)
    with contextlib.suppress(ConnectionError):
        await raw.send(data)
        raw.writer.write_eof()
        await raw.reader.read()
    await raw.close()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff\xff\xff\xff", "a frame of -1 bytes"),
        (b"\x80\0\0\0", "a frame of -2147483648 bytes"),
        (b"\0\0\0\0", "a frame of 0 bytes"),
        (b"\x7f\xff\xff\xff", "a frame of 2147483647 bytes"),
        (b"\0\x10\0\1", "a frame of 1048577 bytes: from 1 to 1048576 are expected"),
        (b"GET / HTTP/1.1\r\n\r\n", "the client seems to use HTTP"),
        (b"\0\0\0\1x", "1 byte is no request"),
        (b"\0\0\0\x08\x7f\xff\0\0\0\0\0\1", "request 32767 of version 0: this kind is not served"),
        (b"\0\0\0\x0a\0\3\0\x0c\0\0\0\1\0\0", "METADATA of version 12"),
        (b"\0\0\0\x10\0\3\0\x09\0\0\0\1\xff\xff\0\xff\xff\xff\xff\x0f", "an array of 4294967294 elements"),
        (b"\0\0\0\x64\0", "the client closed the connection within a frame"),
        (framed(Api.METADATA, 1, topics=None)[:-1], "the client closed the connection within a frame"),
        (framed(Api.LIST_GROUPS, 0), "LIST_GROUPS has no handler"),
    ],
)
def test_damaged_requests_end_their_connection_with_one_line(data: bytes, reason: str) -> None:
    """The line has the reason; a client that was connected before is served afterwards."""
    cluster = SmallCluster()

    async def client() -> None:
        other = await RawClient.open(cluster.bootstrap)
        await attack(cluster.bootstrap, data)
        await answered(other)
        await other.close()

    with structlog.testing.capture_logs() as logs:
        serve(cluster, client)

    assert [line["event"] for line in logs] == ["connection_closed"]
    assert reason in logs[0]["reason"]
    assert cluster.server is not None
    assert cluster.server.counters.ended.total() == 1


def test_an_exception_of_a_handler_ends_its_connection_with_one_line() -> None:
    """The line has the request, the error and its place, and no traceback."""
    cluster = SmallCluster()

    async def broken(request: Request, session: Session) -> Values:
        raise ZeroDivisionError("of the handler")

    async def wrong(request: Request, session: Session) -> Values:
        return {"no": "values"}

    async def leaving(request: Request, session: Session) -> Values:
        raise ConnectionEnds("as the handler decided")

    async def cancelled(request: Request, session: Session) -> Values:
        future: asyncio.Future[Values] = asyncio.get_running_loop().create_future()
        future.cancel()
        return await future

    cluster.handlers |= {
        Api.HEARTBEAT: broken,
        Api.DESCRIBE_GROUPS: wrong,
        Api.LIST_GROUPS: leaving,
        Api.SYNC_GROUP: cancelled,
    }

    async def client() -> None:
        other = await RawClient.open(cluster.bootstrap)
        await attack(cluster.bootstrap, framed(Api.HEARTBEAT, 0, **HEARTBEAT))
        await attack(cluster.bootstrap, framed(Api.DESCRIBE_GROUPS, 0, groups=("g",)))
        await attack(cluster.bootstrap, framed(Api.LIST_GROUPS, 0))
        await attack(cluster.bootstrap, framed(Api.SYNC_GROUP, 0, **HEARTBEAT, assignments=()))
        await answered(other)
        await other.close()

    with structlog.testing.capture_logs() as logs:
        serve(cluster, client)

    reasons = [line["reason"] for line in logs]
    assert len(reasons) == 4
    assert "HEARTBEAT of version 0 failed: ZeroDivisionError('of the handler') at test_hostile.py:" in reasons[0]
    assert "DESCRIBE_GROUPS has a wrong reply" in reasons[1]
    assert reasons[2] == "as the handler decided"
    assert reasons[3] == "SYNC_GROUP was cancelled by its handler"
    assert cluster.server is not None
    assert cluster.server.counters.failed_requests == {Api.HEARTBEAT: 1, Api.DESCRIBE_GROUPS: 1}


def test_a_client_with_an_unserved_version_of_api_versions_is_answered() -> None:
    """It learns the served ones, and the connection continues."""
    cluster = SmallCluster()

    async def client() -> Any:
        raw = await RawClient.open(cluster.bootstrap)
        await raw.send(b"\0\0\0\x0a\0\x12\0\x63\0\0\0\5\0\0")
        first = parsed(Api.API_VERSIONS, 0, await raw.frame())
        await answered(raw)
        await raw.close()
        return first

    reply = serve(cluster, client)

    assert reply.error_code.value == 35
    assert len(reply.api_keys) == len(SERVED)


def attacks() -> st.SearchStrategy[bytes]:
    """Return a strategy of garbage, and of requests that are cut, changed, or have another length or number."""
    header = st.builds(
        lambda api, version, rest: (
            (8 + len(rest)).to_bytes(4, "big")
            + api.to_bytes(2, "big", signed=True)
            + version.to_bytes(2, "big", signed=True)
            + b"\0\0\0\1"
            + rest
        ),
        st.one_of(st.sampled_from([int(api) for api in Api]), st.integers(-(2**15), 2**15 - 1)),
        st.integers(-1, 15),
        st.binary(max_size=200),
    )
    changed = st.builds(
        lambda at, byte, end: (VALID[:at] + bytes([byte]) + VALID[at + 1 :])[:end],
        st.integers(0, len(VALID) - 1),
        st.integers(0, 255),
        st.integers(1, len(VALID)),
    )
    return st.one_of(st.binary(min_size=1, max_size=300), header, changed)


@settings(max_examples=30)
@given(st.lists(attacks(), min_size=1, max_size=20))
def test_no_bytes_crash_the_server(drawn: list[bytes]) -> None:
    """After any attacks a client that was connected before, and a new one, are served; no task failed."""
    cluster = SmallCluster()

    async def client() -> None:
        failed: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
        other = await RawClient.open(cluster.bootstrap)
        await asyncio.gather(*(attack(cluster.bootstrap, data) for data in drawn))
        await answered(other)
        late = await RawClient.open(cluster.bootstrap)
        await answered(late)
        for each in (other, late):
            await each.close()
        assert failed == []

    with structlog.testing.capture_logs() as logs:
        serve(cluster, client)
    assert {line["event"] for line in logs} <= {"connection_closed"}


def test_a_client_that_sends_many_requests_at_once_does_not_stop_the_others() -> None:
    """Its next request is always there; a request of another client is answered in between."""
    cluster = SmallCluster()

    async def client() -> int:
        assert cluster.server is not None
        flooder, other = [await RawClient.open(cluster.bootstrap) for _ in range(2)]
        await answered(other)
        await flooder.send(framed(Api.API_VERSIONS, 0) * 5_000)
        await answered(other)
        served = cluster.server.counters.requests[Api.API_VERSIONS]
        for each in (flooder, other):
            each.writer.transport.abort()
        return served

    assert serve(cluster, client) < 500


@pytest.mark.parametrize("name", ["parse_request", "encode_reply"])
def test_a_large_message_does_not_stop_the_others(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is parsed, or its reply is encoded, another client is served."""
    cluster = SmallCluster()
    served = threading.Event()
    original = getattr(frames, name)

    def slow(*arguments: Any) -> Any:
        assert served.wait(30), "no other client was served"
        return original(*arguments)

    async def describe(request: Request, session: Session) -> Values:
        nothing = {"group_state": "Dead", "protocol_type": "", "protocol_data": "", "members": ()}
        return {"groups": [{"group_id": each, **nothing} for each in request.body.groups]}

    async def client() -> Any:
        monkeypatch.setattr(frames, name, slow)
        attacker, other = [await RawClient.open(cluster.bootstrap) for _ in range(2)]
        await attacker.send(framed(Api.DESCRIBE_GROUPS, 0, groups=("a group with a name",) * 5_000))
        for _ in range(100):
            await answered(other)
        served.set()
        reply = parsed(Api.DESCRIBE_GROUPS, 0, await attacker.frame())
        for each in (attacker, other):
            await each.close()
        return reply

    cluster.handlers[Api.DESCRIBE_GROUPS] = describe
    assert len(serve(cluster, client).groups) == 5_000


@pytest.mark.full
def test_memory_does_not_grow_under_attack() -> None:
    """20,000 hostile connections leave as much memory as 2,000."""
    cluster = SmallCluster()
    seeded = random.Random(7)

    async def client() -> int:
        other = await RawClient.open(cluster.bootstrap)

        async def wave(count: int) -> int:
            for _ in range(count // 50):
                datas = [
                    VALID[: seeded.randrange(len(VALID))] + seeded.randbytes(seeded.randrange(300)) for _ in range(50)
                ]
                await asyncio.gather(*(attack(cluster.bootstrap, data) for data in datas))
                await answered(other)
            return int(psutil.Process().memory_info().rss)

        first = await wave(2_000)
        last = await wave(18_000)
        await other.close()
        return last - first

    with structlog.testing.capture_logs([LimitedLines()]) as logs:
        assert serve(cluster, client) < 8 << 20
    assert len(logs) < 2_000
