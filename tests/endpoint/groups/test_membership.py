"""Members join, sync, send heartbeats and leave."""

import asyncio
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.endpoint.groups.client import room
from tests.endpoint.groups.virtual_time import current, in_virtual_time
from ts_endpoint.protocol.versions import SERVED, Api

JOIN_VERSIONS = range(SERVED[Api.JOIN_GROUP][0], SERVED[Api.JOIN_GROUP][1] + 1)


@pytest.mark.parametrize("version", JOIN_VERSIONS)
@in_virtual_time
async def test_a_member_joins_in_every_version(version: int) -> None:
    """It leads a group of one, from version 4 on with the id that the first reply gave it."""
    async with room() as client:
        first = await client.join(version=version)
        assert first.error_code is (ErrorCode.member_id_required if version >= 4 else ErrorCode.none)
        reply = await client.join(first.member_id, version=version) if version >= 4 else first
        assert reply.error_code is ErrorCode.none
        assert reply.member_id == reply.leader == first.member_id
        assert reply.member_id.startswith("c-")
        assert (reply.generation_id, reply.protocol_name) == (1, "range")
        assert [(each.member_id, each.metadata) for each in reply.members] == [(reply.member_id, b"orders")]


@in_virtual_time
async def test_a_group_of_one_starts_after_a_fifth_of_a_second() -> None:
    """A console tool does not wait for Kafka's three seconds."""
    async with room() as client:
        await client.joined()
        assert current().time() == pytest.approx(0.2)


@in_virtual_time
async def test_members_that_start_together_are_in_one_generation() -> None:
    """Each new member lets the group wait a little longer, so no second rebalance follows."""
    async with room() as client:
        first = client.joining()
        await asyncio.sleep(0.15)
        second = client.joining()
        await asyncio.sleep(0.15)
        third = client.joining()
        replies = [await each for each in (first, second, third)]
        assert {reply.generation_id for reply in replies} == {1}
        assert {reply.leader for reply in replies} == {replies[0].member_id}
        assert [len(reply.members) for reply in replies] == [3, 0, 0]


@in_virtual_time
async def test_a_generation_has_the_protocol_with_most_votes() -> None:
    """Each member votes for the first of its protocols that all support."""
    async with room() as client:
        favourites = [("a", "b", "c"), ("c", "b", "a"), ("c", "a", "b"), ("x", "c", "a")]
        replies = await asyncio.gather(
            *(client.joined(protocols=[(name, name.encode()) for name in names]) for names in favourites)
        )
        assert {reply.protocol_name for reply in replies} == {"c"}
        leader = next(reply for reply in replies if reply.members)
        assert [each.metadata for each in leader.members] == [b"c"] * 4


@pytest.mark.parametrize(
    ("protocol_type", "protocols"), [("connect", ["range"]), ("consumer", ["other"]), ("consumer", [])]
)
@in_virtual_time
async def test_a_member_without_a_common_protocol_is_refused(protocol_type: str, protocols: list[str]) -> None:
    """Its type or all of its protocols differ from those of the members."""
    async with room() as client:
        await client.stable()
        reply = await client.join(protocol_type=protocol_type, protocols=[(name, b"") for name in protocols])
        assert reply.error_code is ErrorCode.inconsistent_group_protocol
        assert (await client.describe()).group_state == "Stable"


@pytest.mark.parametrize("session", [5.9, 1800.1])
@in_virtual_time
async def test_a_session_timeout_outside_of_the_bounds_is_refused(session: float) -> None:
    """The bounds are those of Kafka's defaults."""
    async with room() as client:
        assert (await client.join(session=session)).error_code is ErrorCode.invalid_session_timeout


@in_virtual_time
async def test_an_unknown_member_id_must_be_given_up() -> None:
    """In a group that does not exist, and in one that does; also for heartbeats, syncs and leaves."""
    async with room() as client:
        assert (await client.join("nobody")).error_code is ErrorCode.unknown_member_id
        assert await client.listed() == {}
        (joined,) = await client.stable()
        assert (await client.join("nobody")).error_code is ErrorCode.unknown_member_id
        for group in ("g", "other"):
            assert await client.heartbeat(joined, member_id="nobody", group=group) is ErrorCode.unknown_member_id
            assert (
                await client.sync(joined, member_id="nobody", group=group)
            ).error_code is ErrorCode.unknown_member_id
            left = await client.leave({"member_id": "nobody", "group_instance_id": None}, group=group)
            assert (left.error_code, left.members[0].error_code) == (ErrorCode.none, ErrorCode.unknown_member_id)


@in_virtual_time
async def test_a_request_of_another_generation_is_refused() -> None:
    """A heartbeat and a SyncGroup of an earlier or later generation."""
    async with room() as client:
        (joined,) = await client.stable()
        for generation in (0, 2):
            assert await client.heartbeat(joined, generation_id=generation) is ErrorCode.illegal_generation
            assert (await client.sync(joined, generation_id=generation)).error_code is ErrorCode.illegal_generation


@pytest.mark.parametrize("wrong", [{"protocol_type": "connect"}, {"protocol_name": "other"}, {"protocol_name": None}])
@in_virtual_time
async def test_a_sync_with_another_protocol_is_refused(wrong: dict[str, Any]) -> None:
    """From version 5 on it must name the type and the protocol of the generation."""
    async with room() as client:
        joined = await client.joined()
        assert (await client.sync(joined, **wrong)).error_code is ErrorCode.inconsistent_group_protocol


@pytest.mark.parametrize("version", range(6))
@in_virtual_time
async def test_followers_get_their_assignment_when_the_leader_sends_it(version: int) -> None:
    """In every version of SyncGroup; a member without an assignment gets an empty one."""
    async with room() as client:
        leader, *followers = sorted(
            await asyncio.gather(*(client.joined() for _ in range(3))), key=lambda reply: not reply.members
        )
        waiting = [client.syncing(each, version=version) for each in followers]
        await asyncio.sleep(1)
        assert not any(each.done() for each in waiting)
        own = await client.sync(leader, {leader.member_id: b"L", followers[0].member_id: b"F"}, version=version)
        replies = [own, *[await each for each in waiting]]
        assert [each.error_code for each in replies] == [ErrorCode.none] * 3
        assert [each.assignment for each in replies] == [b"L", b"F", b""]
        again = await client.sync(followers[0], version=version)
        assert again.assignment == b"F"  # as when the reply was lost


@in_virtual_time
async def test_heartbeats_report_a_rebalance() -> None:
    """A new member starts one; the others learn it by a heartbeat and join again."""
    async with room() as client:
        (first,) = await client.stable()
        assert await client.heartbeat(first) is ErrorCode.none
        second = client.joining()
        await asyncio.sleep(1)
        assert await client.heartbeat(first) is ErrorCode.rebalance_in_progress
        assert (await client.sync(first)).error_code is ErrorCode.rebalance_in_progress
        again = await client.join(first.member_id)
        assert (await second).generation_id == again.generation_id == 2
        assert again.leader == first.member_id
        assert await client.heartbeat(again) is ErrorCode.none  # while the leader assigns


@in_virtual_time
async def test_a_rebalance_while_members_sync_cancels_their_requests() -> None:
    """They get REBALANCE_IN_PROGRESS and join again."""
    async with room() as client:
        leader, follower = await client.stable(2)
        again = await asyncio.gather(client.join(leader.member_id), client.join(follower.member_id))
        waiting = client.syncing(again[1])
        newcomer = client.joining()
        assert (await waiting).error_code is ErrorCode.rebalance_in_progress
        third = await asyncio.gather(client.join(leader.member_id), client.join(follower.member_id), newcomer)
        assert {each.generation_id for each in third} == {3}


@in_virtual_time
async def test_a_member_that_joins_again_without_a_change_gets_the_same_generation() -> None:
    """Its reply was lost. A leader starts a rebalance so, and a member with other metadata too."""
    async with room() as client:
        leader, follower = await client.stable(2)
        same = await client.join(follower.member_id)
        assert (same.generation_id, same.members) == (1, ())
        changed = client.joining(follower.member_id, protocols=[("range", b"payments")])
        await asyncio.sleep(1)
        assert await client.heartbeat(leader) is ErrorCode.rebalance_in_progress
        again = await client.join(leader.member_id)
        assert {each.metadata for each in again.members} == {b"orders", b"payments"}
        completing = await client.join(leader.member_id)
        assert (completing.generation_id, len(completing.members)) == (2, 2)
        assert (await changed).generation_id == 2
        await asyncio.gather(client.sync(again), client.sync(await changed))
        by_leader = client.joining(leader.member_id)
        await asyncio.sleep(1)
        assert await client.heartbeat(await changed) is ErrorCode.rebalance_in_progress
        await client.join(follower.member_id)
        assert (await by_leader).generation_id == 3


@in_virtual_time
async def test_a_second_join_of_a_member_ends_the_first() -> None:
    """A client that lost its connection sends it again; no request waits without an end."""
    async with room() as client:
        leader, follower = await client.stable(2)
        lost = client.joining(leader.member_id)
        await asyncio.sleep(1)
        repeated = client.joining(leader.member_id)
        assert (await lost).error_code is ErrorCode.rebalance_in_progress
        await client.join(follower.member_id)
        assert (await repeated).generation_id == 2


@in_virtual_time
async def test_a_sync_that_waits_ends_if_the_member_sends_another_or_leaves() -> None:
    """No request waits without an end."""
    async with room() as client:
        replies = await asyncio.gather(client.joined(), client.joined())
        _, follower = sorted(replies, key=lambda reply: not reply.members)
        lost = client.syncing(follower)
        await asyncio.sleep(1)
        repeated = client.syncing(follower)
        assert (await lost).error_code is ErrorCode.rebalance_in_progress
        await client.leave({"member_id": follower.member_id, "group_instance_id": None})
        assert (await repeated).error_code is ErrorCode.unknown_member_id


@in_virtual_time
async def test_several_members_leave_with_one_request() -> None:
    """Each has an error of its own, and the others share the partitions."""
    async with room() as client:
        first, second, third = await client.stable(3)
        left = await client.leave(
            *({"member_id": each, "group_instance_id": None} for each in (first.member_id, "nobody", second.member_id))
        )
        errors = [each.error_code for each in left.members]
        assert errors == [ErrorCode.none, ErrorCode.unknown_member_id, ErrorCode.none]
        again = await client.join(third.member_id)
        assert (again.generation_id, again.leader, len(again.members)) == (2, third.member_id, 1)


@pytest.mark.parametrize("version", [0, 1, 2])
@in_virtual_time
async def test_early_versions_leave_one_by_one(version: int) -> None:
    """The error of the member is that of the reply."""
    async with room() as client:
        (joined,) = await client.stable()
        for expected in (ErrorCode.none, ErrorCode.unknown_member_id):
            left = await client.send(Api.LEAVE_GROUP, version, group_id="g", member_id=joined.member_id)
            assert left.error_code is expected
        assert await client.listed() == {"g": "Empty"}


@in_virtual_time
async def test_an_id_that_was_given_and_not_used_can_leave() -> None:
    """It delays no rebalance afterwards."""
    async with room() as client:
        (first,) = await client.stable()
        given = (await client.join()).member_id
        waiting = client.joining(first.member_id)
        await asyncio.sleep(1)
        assert not waiting.done()
        left = await client.leave({"member_id": given, "group_instance_id": None})
        assert left.members[0].error_code is ErrorCode.none
        assert (await waiting).generation_id == 2
        assert current().time() < 2


@in_virtual_time
async def test_an_empty_group_id_is_refused() -> None:
    """Members need a group; only offsets can be committed without one."""
    async with room() as client:
        joined = await client.joined()
        assert (await client.join(group="")).error_code is ErrorCode.invalid_group_id
        assert await client.heartbeat(joined, group="") is ErrorCode.invalid_group_id
        assert (await client.sync(joined, group="")).error_code is ErrorCode.invalid_group_id
        assert (await client.leave(group="")).error_code is ErrorCode.invalid_group_id
        assert await client.commit({"orders-0": 1}, group="") == [ErrorCode.none]


@in_virtual_time
async def test_requests_that_wait_end_when_the_process_ends() -> None:
    """Members get COORDINATOR_NOT_AVAILABLE, at once and for later requests."""
    async with room() as client:
        first, second = await client.stable(2)
        waiting = client.joining(first.member_id)
        await asyncio.sleep(1)
        await client.groups.close()
        assert (await waiting).error_code is ErrorCode.coordinator_not_available
        assert await client.heartbeat(second) is ErrorCode.coordinator_not_available
        assert (await client.send(Api.LIST_GROUPS)).error_code is ErrorCode.coordinator_not_available
