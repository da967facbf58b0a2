"""Clients cannot make the process keep more than its limits."""

import asyncio
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.endpoint.groups.client import Client, room
from tests.endpoint.groups.virtual_time import in_virtual_time
from ts_endpoint.groups.limits import GroupLimits


@in_virtual_time
async def test_a_group_has_a_largest_number_of_members() -> None:
    """Members stay and can join again; there is room once one has left."""
    async with room(limits=GroupLimits(members=2)) as client:
        first, second = await client.stable(2)
        for version in (3, 9):
            assert (await client.joined(version=version)).error_code is ErrorCode.group_max_size_reached
        again = await asyncio.gather(client.join(first.member_id), client.join(second.member_id))
        assert {each.error_code for each in again} == {ErrorCode.none}
        await client.leave({"member_id": first.member_id, "group_instance_id": None})
        third = client.joining()
        await asyncio.sleep(1)
        await client.join(second.member_id)
        assert (await third).error_code is ErrorCode.none


@in_virtual_time
async def test_ids_that_are_not_used_count_as_members() -> None:
    """Otherwise a client that only requests ids fills the memory. They expire."""
    async with room(limits=GroupLimits(members=3)) as client:
        given = [(await client.join(session=10)).error_code for _ in range(5)]
        assert given == [ErrorCode.member_id_required] * 3 + [ErrorCode.group_max_size_reached] * 2
        await asyncio.sleep(11)
        assert (await client.joined()).error_code is ErrorCode.none


@in_virtual_time
async def test_a_static_member_can_restart_in_a_full_group() -> None:
    """It replaces itself."""
    async with room(limits=GroupLimits(members=1)) as client:
        joined = await client.join(instance="a")
        await client.sync(joined)
        assert (await client.join(instance="a")).error_code is ErrorCode.none
        assert (await client.join(instance="b")).error_code is ErrorCode.group_max_size_reached


@pytest.mark.parametrize("limits", [GroupLimits(group_bytes=100_000), GroupLimits(member_bytes=100_000)])
@in_virtual_time
async def test_metadata_of_members_has_a_largest_size(limits: GroupLimits) -> None:
    """For a new member, for one that joins again with more, and for the leader's assignments."""
    async with room(limits=limits) as client:
        (joined,) = await client.stable(protocols=[("range", bytes(60_000))])
        large = [("range", bytes(99_000))]
        assert (await client.joined(version=3, protocols=large)).error_code is ErrorCode.group_max_size_reached
        assert (await client.join(joined.member_id, protocols=large)).error_code is ErrorCode.group_max_size_reached
        assert await client.heartbeat(joined) is ErrorCode.none
        again = await client.join(joined.member_id, protocols=[("range", bytes(70_000))])
        synced = await client.sync(again, {again.member_id: bytes(60_000)})
        assert synced.error_code is ErrorCode.unknown_server_error
        again = await client.join(joined.member_id, protocols=[("range", b"")])
        assert (await client.sync(again, {again.member_id: bytes(60_000)})).error_code is ErrorCode.none
        await client.leave({"member_id": joined.member_id, "group_instance_id": None})
        assert (await client.joined(protocols=[("range", bytes(90_000))])).error_code is ErrorCode.none


@in_virtual_time
async def test_groups_of_another_process_need_no_memory() -> None:
    """Their members are removed with them."""
    owned = {"a", "b"}
    large = [("range", bytes(60_000))]
    async with room(limits=GroupLimits(member_bytes=100_000), owns=lambda group: group in owned) as client:
        await client.stable(group="a", protocols=large)
        assert (await client.joined(group="b", protocols=large)).error_code is ErrorCode.group_max_size_reached
        owned.remove("a")
        client.groups.ownership_changed()
        assert (await client.joined(group="b", protocols=large)).error_code is ErrorCode.none


@in_virtual_time
async def test_the_number_of_groups_is_limited() -> None:
    """A group without members makes room, one with a member does not."""
    async with room(limits=GroupLimits(groups=2)) as client:
        (first,) = await client.stable(group="a")
        await client.stable(group="b")
        assert (await client.join(group="c")).error_code is ErrorCode.group_max_size_reached
        await client.leave({"member_id": first.member_id, "group_instance_id": None}, group="a")
        assert (await client.joined(group="c")).error_code is ErrorCode.none
        assert set(await client.listed()) == {"b", "c"}


@in_virtual_time
async def test_a_group_that_expects_a_member_makes_no_room() -> None:
    """The member has its id and joins with it."""
    async with room(limits=GroupLimits(groups=1)) as client:
        given = await client.join(group="a")
        assert (await client.join(group="b")).error_code is ErrorCode.group_max_size_reached
        assert (await client.join(given.member_id, group="a")).error_code is ErrorCode.none


@in_virtual_time
async def test_committed_offsets_of_a_group_have_a_largest_size() -> None:
    """Commits beyond it are refused; those of partitions that the group has are not."""
    async with room(limits=GroupLimits(group_offset_bytes=4_000)) as client:
        errors = await client.commit({f"orders-{number}": 1 for number in range(20)})
        assert errors == [ErrorCode.none] * 11 + [ErrorCode.invalid_commit_offset_size] * 9
        assert await client.commit({"orders-0": 2, "orders-19": 2}) == [
            ErrorCode.none,
            ErrorCode.invalid_commit_offset_size,
        ]
        assert len(await client.fetched()) == 11


@in_virtual_time
async def test_committed_offsets_of_all_groups_have_a_largest_size() -> None:
    """A deleted group makes room."""
    async with room(limits=GroupLimits(offset_bytes=1_000)) as client:
        assert await client.commit({"orders-0": 1, "orders-1": 1}, group="a") == [ErrorCode.none] * 2
        assert await client.commit({"orders-0": 1}, group="b") == [ErrorCode.invalid_commit_offset_size]
        await client.delete("a")
        assert await client.commit({"orders-0": 1}, group="b") == [ErrorCode.none]


@in_virtual_time
async def test_a_group_id_that_no_store_can_keep_is_refused() -> None:
    """Its name in the store, percent-encoded, would be above 200 characters."""
    async with room() as client:
        for group, error in (("x" * 200, ErrorCode.none), ("x" * 201, ErrorCode.invalid_group_id)):
            assert await client.commit({"orders-0": 1}, group=group) == [error]
        assert (await client.join(group="/" * 67)).error_code is ErrorCode.invalid_group_id


@in_virtual_time
async def test_a_long_client_id_is_cut_in_the_member_id() -> None:
    """A member id must be sendable in every version."""
    async with room() as client:
        long = Client(client.groups, client_id="c" * 30_000)
        assert len((await long.join(version=5)).member_id) < 300


@pytest.mark.parametrize("long", [{"instance": "i" * 256}, {"protocol_type": "c" * 256}], ids=["instance", "type"])
@in_virtual_time
async def test_long_names_of_a_member_are_refused(long: dict[str, Any]) -> None:
    """No limit counts them, and a request can have a megabyte; Kafka's clients send at most 249 characters."""
    async with room() as client:
        refused = await client.join(**long)
        accepted = await client.joined(**{name: text[:249] for name, text in long.items()})
        assert client.groups.numbers().members == 1

    assert (refused.error_code, accepted.error_code) == (ErrorCode.invalid_request, ErrorCode.none)


@in_virtual_time
async def test_a_long_name_of_a_client_is_cut() -> None:
    """In the id of the member, and in what tools show of it."""
    async with room() as client:
        long = Client(client.groups, client_id="c" * 30_000)
        joined = await long.joined()
        described = await client.describe()

    assert len(joined.member_id) < 300
    assert described.members[0].client_id == "c" * 255
