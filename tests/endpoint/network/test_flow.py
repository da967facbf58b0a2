"""Bytes in flight are bounded, and a user's connections share a quota."""

import asyncio
from collections.abc import Iterable
from typing import Any

from tests.endpoint.network.raw_client import RawClient, framed
from tests.endpoint.network.requests import FETCH, fetched
from tests.endpoint.network.small_cluster import SmallCluster, serve
from ts_endpoint.contract import Session
from ts_endpoint.network.flow import BytesInFlight, Quotas
from ts_endpoint.protocol.replies import Values
from ts_endpoint.protocol.requests import Request
from ts_endpoint.protocol.versions import Api


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def sessions(count: int, user: str | None = "alice") -> Iterable[Session]:
    return [Session(host="h", user=user) for _ in range(count)]


def test_the_room_of_a_reply_is_what_others_leave() -> None:
    """A handler gets what is left, then nothing, until another reply is sent."""
    one, two, three = sessions(3)
    in_flight = BytesInFlight(100)

    in_flight.replace(one, 70)
    assert in_flight.room(two) == 30
    in_flight.replace(two, 30)
    assert in_flight.room(three) == 0
    in_flight.replace(one, 40)
    assert in_flight.room(three) == 30
    in_flight.sent(one, 35)
    assert in_flight.used == 35
    for each in (one, two):
        in_flight.release(each)
    assert in_flight.used == 0


def test_a_reply_above_the_limit_leaves_no_room_and_no_debt() -> None:
    """A first batch may be larger than the limit; its bytes are counted, and released."""
    one, two = sessions(2)
    in_flight = BytesInFlight(100)
    in_flight.replace(one, 500)

    assert in_flight.room(two) == 0
    in_flight.sent(one, 450)
    assert in_flight.room(two) == 50
    in_flight.sent(one, 70)
    assert in_flight.used == 0


def test_a_user_pays_a_debt_by_muted_time() -> None:
    """A second's bytes are free; what exceeds them is paid at the rate, over all connections of the user."""
    clock = Clock()
    quotas = Quotas(lambda user: 1000 if user == "alice" else 10, clock)

    assert quotas.charge("alice", 1000) == 0
    assert quotas.charge("alice", 500) == 0.5
    assert quotas.charge("alice", 500) == 1.0
    assert quotas.charge("bob", 10) == 0
    clock.now = 3.0
    assert quotas.allowance("alice") == 1000
    assert quotas.charge("alice", 10_000_000) == 30.0


def test_a_user_without_a_quota_is_not_muted() -> None:
    """So is a listener without users."""
    quotas = Quotas(lambda user: None, Clock())

    assert quotas.charge(None, 1 << 40) == 0
    assert quotas.allowance(None) is None


def test_room_is_bounded_by_the_quota() -> None:
    """A reply does not exceed what the user may receive now by more than a batch."""
    clock = Clock()
    quotas = Quotas(lambda user: 1000 if user else None, clock)
    in_flight = BytesInFlight(1 << 20, quotas)
    (session,) = sessions(1)

    assert in_flight.room(session) == 1000
    in_flight.replace(session, 1000)
    quotas.charge("alice", 1500)
    assert in_flight.room(session) == 0
    clock.now = 1.0
    assert in_flight.room(session) == 500
    assert in_flight.room(Session(host="h")) == (1 << 20) - 1000


def test_a_reply_above_the_quota_has_its_throttle_time_and_mutes_the_connection() -> None:
    """The reply arrives at once (KIP-219); the next one after the time that it has. Others are not muted."""
    cluster = SmallCluster()
    rate = 200_000

    async def fetch(request: Request, session: Session) -> Values:
        return fetched(memoryview(bytes(rate + rate // 2)))

    cluster.handlers[Api.FETCH] = fetch
    quotas = Quotas(lambda user: rate)

    async def client() -> tuple[Any, Any, float]:
        loop = asyncio.get_running_loop()
        raw = await RawClient.open(cluster.bootstrap)
        other = await RawClient.open(cluster.bootstrap)
        first = await raw.ask(Api.FETCH, 12, **FETCH)
        began = loop.time()
        await raw.send(framed(Api.API_VERSIONS, 0))
        second = await other.ask(Api.API_VERSIONS, 3, client_software_name="a", client_software_version="1")
        await raw.frame()
        muted = loop.time() - began
        for each in (raw, other):
            await each.close()
        return first, second, muted

    first, second, muted = serve(cluster, client, quotas=quotas)

    assert 0.45 < first.throttle_time.total_seconds() < 0.55
    assert second.throttle_time.total_seconds() == 0
    assert muted > first.throttle_time.total_seconds() * 0.9
    assert cluster.server is not None
    assert cluster.server.counters.throttled_seconds > 0.4


def test_a_server_counts_the_bytes_that_a_client_has_not_read() -> None:
    """They are released as the client reads, and when it leaves."""
    cluster = SmallCluster()
    size = 32 << 20

    async def fetch(request: Request, session: Session) -> Values:
        return fetched(memoryview(bytes(size)))

    cluster.handlers[Api.FETCH] = fetch

    async def client() -> None:
        assert cluster.server is not None
        in_flight = cluster.server.in_flight
        reader, leaver = [await RawClient.open(cluster.bootstrap) for _ in range(2)]
        for each in (reader, leaver):
            each.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await each.send(framed(Api.FETCH, 12, 1, **FETCH))
        async with asyncio.timeout(60):
            while in_flight.used <= size or in_flight.used > 2 * size - 100_000:  # the kernel accepts some of each
                await asyncio.sleep(0)
        leaver.writer.transport.abort()
        while in_flight.used > size + 1000:
            await asyncio.sleep(0)
        reader.writer.transport.resume_reading()  # type: ignore[attr-defined]
        await reader.frame()
        while in_flight.used:
            await asyncio.sleep(0)
        await reader.close()

    serve(cluster, client)
