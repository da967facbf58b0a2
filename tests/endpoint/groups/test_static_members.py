"""Members with `group.instance.id`, which keep their partitions over a restart (KIP-345)."""

import asyncio
from typing import Any

from kio.schema.errors import ErrorCode

from tests.endpoint.groups.client import Client, room
from tests.endpoint.groups.virtual_time import current, in_virtual_time


async def two_static(client: Client) -> tuple[Any, Any]:
    """Return the replies of the static members `a`, the leader, and `b`, in a stable group."""
    a, b = await asyncio.gather(client.join(instance="a"), client.join(instance="b"))
    await asyncio.gather(client.sync(a, {a.member_id: b"A", b.member_id: b"B"}, group_instance_id="a"), client.sync(b))
    return a, b


@in_virtual_time
async def test_a_static_member_joins_with_one_request() -> None:
    """Its id begins with the instance, and the reply to the leader names the instances."""
    async with room() as client:
        joined = await client.join(instance="a")
        assert joined.error_code is ErrorCode.none
        assert joined.member_id.startswith("a-")
        assert [each.group_instance_id for each in joined.members] == ["a"]


@in_virtual_time
async def test_a_restarted_static_member_gets_its_partitions_without_a_rebalance() -> None:
    """It has another id in the same generation. A leader is excused from assigning from version 9 on."""
    async with room() as client:
        a, b = await two_static(client)
        again = await client.join(instance="b")
        assert (again.generation_id, again.leader, again.members) == (1, a.member_id, ())
        assert again.member_id != b.member_id
        assert (await client.sync(again)).assignment == b"B"
        leads = await client.join(instance="a")
        assert (leads.generation_id, leads.leader, leads.skip_assignment) == (1, leads.member_id, True)
        assert len(leads.members) == 2
        assert (await client.sync(leads)).assignment == b"A"


@in_virtual_time
async def test_an_early_client_that_restarts_does_not_lead() -> None:
    """Before version 9 the reply names the former id, so that the client does not assign in a stable group."""
    async with room() as client:
        a, _ = await two_static(client)
        again = await client.join(instance="a", version=8)
        assert (again.leader, again.members) == (a.member_id, ())
        assert (await client.sync(again, version=4)).assignment == b"A"


@in_virtual_time
async def test_the_former_process_of_a_static_member_is_fenced() -> None:
    """Its requests get FENCED_INSTANCE_ID, those that wait as well."""
    async with room() as client:
        a, b = await two_static(client)
        waiting = client.joining(a.member_id, instance="a")
        await asyncio.sleep(1)
        restarted = client.joining(instance="a")
        assert (await waiting).error_code is ErrorCode.fenced_instance_id
        await client.join(b.member_id, instance="b")
        again = await restarted
        assert again.generation_id == 2
        assert await client.heartbeat(a, group_instance_id="a") is ErrorCode.fenced_instance_id
        assert (await client.sync(a, group_instance_id="a")).error_code is ErrorCode.fenced_instance_id
        assert (await client.join(a.member_id, instance="a")).error_code is ErrorCode.fenced_instance_id
        assert await client.commit({"t-0": 1}, a, group_instance_id="a") == [ErrorCode.fenced_instance_id]
        left = await client.leave({"member_id": a.member_id, "group_instance_id": "a"})
        assert left.members[0].error_code is ErrorCode.fenced_instance_id
        unknown = await client.heartbeat(again, group_instance_id="z")
        assert unknown is ErrorCode.unknown_member_id


@in_virtual_time
async def test_a_restarted_member_with_another_protocol_starts_a_rebalance() -> None:
    """The group's protocol changes, so all join again."""
    async with room() as client:
        both = [("range", b""), ("sticky", b"")]
        a, b = await asyncio.gather(
            client.join(instance="a", protocols=both), client.join(instance="b", protocols=both)
        )
        await asyncio.gather(client.sync(a), client.sync(b))
        again = client.joining(instance="b", protocols=[("sticky", b"")])
        await asyncio.sleep(1)
        assert await client.heartbeat(a, group_instance_id="a") is ErrorCode.rebalance_in_progress
        assert (await client.join(a.member_id, instance="a", protocols=both)).protocol_name == "sticky"
        assert (await again).generation_id == 2


@in_virtual_time
async def test_a_restart_while_members_sync_starts_a_rebalance() -> None:
    """The leader assigns to the former id, so a new generation is needed."""
    async with room() as client:
        a, b = await asyncio.gather(client.join(instance="a"), client.join(instance="b"))
        waiting = client.syncing(b)
        restarted = client.joining(instance="b")
        assert (await waiting).error_code is ErrorCode.fenced_instance_id
        again = await client.join(a.member_id, instance="a")
        assert (again.generation_id, (await restarted).generation_id) == (2, 2)


@in_virtual_time
async def test_a_static_member_that_does_not_join_again_stays_until_its_session_ends() -> None:
    """A rebalance ends without it, but the leader assigns partitions to it."""
    async with room() as client:
        a, b = await asyncio.gather(
            client.join(instance="a", session=300, rebalance=30), client.join(instance="b", session=300, rebalance=30)
        )
        await asyncio.gather(client.sync(a), client.sync(b))
        began = current().time()
        again = await client.join(a.member_id, instance="a", session=300, rebalance=30)
        assert current().time() - began == 30
        assert {each.group_instance_id for each in again.members} == {"a", "b"}


@in_virtual_time
async def test_a_rebalance_without_any_member_waits_for_one() -> None:
    """All are down for longer than the rebalance timeout, and a generation needs a leader that is there."""
    async with room() as client:
        options: dict[str, Any] = {"session": 300, "rebalance": 30}
        joined = await asyncio.gather(*(client.join(instance=each, **options) for each in "abc"))
        await asyncio.gather(*(client.sync(each) for each in joined))
        await client.leave({"member_id": "", "group_instance_id": "c"})
        await asyncio.sleep(100)
        assert (await client.describe()).group_state == "PreparingRebalance"
        again = await client.join(joined[1].member_id, instance="b", **options)
        assert (again.generation_id, again.leader) == (2, again.member_id)
        assert {each.group_instance_id for each in again.members} == {"a", "b"}


@in_virtual_time
async def test_an_operator_removes_a_static_member_by_its_instance() -> None:
    """The request has no member id."""
    async with room() as client:
        a, b = await two_static(client)
        left = await client.leave(
            *({"member_id": "", "group_instance_id": each} for each in ("b", "z")),
            {"member_id": "", "group_instance_id": None},
        )
        assert [each.error_code for each in left.members] == [
            ErrorCode.none,
            ErrorCode.unknown_member_id,
            ErrorCode.unknown_member_id,
        ]
        assert await client.heartbeat(b) is ErrorCode.unknown_member_id
        again = client.joining(instance="b")
        await client.join(a.member_id, instance="a")
        assert (await again).error_code is ErrorCode.none


@in_virtual_time
async def test_a_member_that_restarts_before_it_syncs_starts_no_rebalance() -> None:
    """Its new id syncs in the place of the former one."""
    async with room() as client:
        options: dict[str, Any] = {"session": 300, "rebalance": 30}
        a, b = await asyncio.gather(*(client.join(instance=each, **options) for each in "ab"))
        await client.sync(a, {a.member_id: b"A", b.member_id: b"B"})
        again = await client.join(instance="b", **options)
        assert (await client.sync(again)).assignment == b"B"
        await asyncio.sleep(100)
        assert (await client.describe()).group_state == "Stable"
