"""Members that disappear, and rebalances that hang."""

import asyncio

import pytest
from kio.schema.errors import ErrorCode

from tests.endpoint.groups.client import room
from tests.endpoint.groups.virtual_time import current, in_virtual_time


@in_virtual_time
async def test_a_member_without_heartbeats_is_removed_after_its_session_timeout() -> None:
    """The other one stays by its heartbeats, and gets all partitions."""
    async with room() as client:
        first, second = await client.stable(2, session=10)
        began = current().time()
        while (error := await client.heartbeat(second)) is ErrorCode.none:
            assert current().time() - began <= 12
            await asyncio.sleep(3)
        assert error is ErrorCode.rebalance_in_progress
        assert current().time() - began > 10
        again = await client.join(second.member_id)
        assert [each.member_id for each in again.members] == [second.member_id]
        assert await client.heartbeat(first) is ErrorCode.unknown_member_id


@in_virtual_time
async def test_a_commit_counts_as_a_heartbeat() -> None:
    """A consumer that only commits stays a member."""
    async with room() as client:
        (joined,) = await client.stable(session=10)
        for _ in range(5):
            await asyncio.sleep(9)
            assert await client.commit({"orders-0": 1}, joined) == [ErrorCode.none]
        await asyncio.sleep(11)
        assert await client.heartbeat(joined) is ErrorCode.unknown_member_id


@in_virtual_time
async def test_a_member_that_does_not_join_again_is_removed_after_the_rebalance_timeout() -> None:
    """The rebalance ends without it; its heartbeats do not keep it."""
    async with room() as client:
        leader, follower = await client.stable(2, session=30, rebalance=60)
        began = current().time()
        newcomer = client.joining(rebalance=45)
        while not newcomer.done():
            await client.heartbeat(leader)
            follower_joins = client.joining(follower.member_id) if current().time() == began else None
            await asyncio.sleep(5)
            del follower_joins
        joined = await newcomer
        assert current().time() - began == pytest.approx(60, abs=5)
        assert joined.generation_id == 2
        assert joined.leader == follower.member_id
        assert await client.heartbeat(leader) is ErrorCode.unknown_member_id


@in_virtual_time
async def test_members_that_do_not_sync_are_removed_after_the_rebalance_timeout() -> None:
    """A leader that hangs before it assigns blocks no follower longer than that."""
    async with room() as client:
        leader, follower = await client.stable(2, rebalance=40)
        again = await asyncio.gather(
            client.join(leader.member_id, rebalance=40), client.join(follower.member_id, rebalance=40)
        )
        began = current().time()
        waiting = client.syncing(again[1])
        while not waiting.done():
            await client.heartbeat(again[0])
            await asyncio.sleep(5)
        assert (await waiting).error_code is ErrorCode.rebalance_in_progress
        assert current().time() - began == pytest.approx(40, abs=5)
        joined = await client.join(follower.member_id)
        assert (joined.generation_id, joined.leader) == (3, follower.member_id)
        assert await client.heartbeat(again[0]) is ErrorCode.unknown_member_id


@in_virtual_time
async def test_an_id_that_is_not_used_expires() -> None:
    """A client that got an id and ended delays a rebalance at most by its session timeout."""
    async with room() as client:
        (first,) = await client.stable()
        await client.join(session=10)
        began = current().time()
        await client.join(first.member_id)
        assert current().time() - began == pytest.approx(10)


@in_virtual_time
async def test_a_new_member_that_ended_while_it_waited_expires() -> None:
    """It cannot send heartbeats, so its first JoinGroup waits for five minutes at most."""
    async with room() as client:
        (first,) = await client.stable(rebalance=1000)
        began = current().time()
        newcomer = client.joining(rebalance=1000)
        while not newcomer.done():
            await client.heartbeat(first)
            await asyncio.sleep(5)
        assert (await newcomer).error_code is ErrorCode.unknown_member_id
        assert current().time() - began == pytest.approx(300, abs=5)


@in_virtual_time
async def test_a_waiting_member_needs_no_heartbeats() -> None:
    """A member whose JoinGroup waits longer than its session stays; its session begins with the reply."""
    async with room() as client:
        leader, follower = await client.stable(2, session=6, rebalance=60)
        waiting = client.joining(leader.member_id, session=6, rebalance=60)
        for _ in range(8):
            await asyncio.sleep(5)
            assert await client.heartbeat(follower) is ErrorCode.rebalance_in_progress
        await client.join(follower.member_id, session=6)
        again = await waiting
        assert (again.error_code, len(again.members)) == (ErrorCode.none, 2)
        await asyncio.sleep(5)
        assert await client.heartbeat(again) is ErrorCode.none


@in_virtual_time
async def test_a_group_whose_members_all_disappear_is_empty() -> None:
    """Also while a rebalance waits for them; later members begin a new generation."""
    async with room() as client:
        first, _ = await client.stable(2, session=10)
        await client.leave({"member_id": first.member_id, "group_instance_id": None})
        assert await client.listed() == {"g": "PreparingRebalance"}
        await asyncio.sleep(11)
        assert await client.listed() == {"g": "Empty"}
        assert (await client.joined()).generation_id == 3


@in_virtual_time
async def test_a_member_that_ends_before_it_syncs_is_removed_after_its_session_timeout() -> None:
    """The session begins with the JoinGroup reply. The rebalance timeout is much later."""
    async with room() as client:
        replies = await asyncio.gather(*(client.joined(session=10, rebalance=300) for _ in range(2)))
        leader, ended = sorted(replies, key=lambda reply: not reply.members)
        began = current().time()
        while (error := await client.heartbeat(leader)) is ErrorCode.none:
            assert current().time() - began < 15
            await asyncio.sleep(1)
        assert error is ErrorCode.rebalance_in_progress
        assert await client.heartbeat(ended) is ErrorCode.unknown_member_id


@in_virtual_time
async def test_a_member_that_ends_after_a_long_sync_is_removed_after_its_session_timeout() -> None:
    """Its SyncGroup waited for longer than its session, which begins again with the reply."""
    async with room() as client:
        replies = await asyncio.gather(*(client.joined(session=10, rebalance=300) for _ in range(2)))
        leader, follower = sorted(replies, key=lambda reply: not reply.members)
        waiting = client.syncing(follower)
        for _ in range(5):
            await asyncio.sleep(5)
            assert await client.heartbeat(leader) is ErrorCode.none
        await client.sync(leader)
        assert (await waiting).error_code is ErrorCode.none
        began = current().time()
        while await client.heartbeat(leader) is ErrorCode.none:
            assert current().time() - began < 15
            await asyncio.sleep(1)
        assert current().time() - began > 9


@in_virtual_time
async def test_members_that_join_all_the_time_do_not_delay_the_first_generation_forever() -> None:
    """The first wait ends with the rebalance timeout at the latest."""
    async with room() as client:
        first = client.joining(rebalance=2)
        others = []
        while not first.done():
            others.append(client.joining(rebalance=2))
            await asyncio.sleep(0.1)
            assert current().time() < 3
        assert (await first).generation_id == 1
        for each in others:
            each.cancel()
        await asyncio.gather(*others, return_exceptions=True)
