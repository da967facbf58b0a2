"""Tools describe, list and delete groups."""

import asyncio
import struct
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.endpoint.groups.client import Client, directory_store, room
from tests.endpoint.groups.virtual_time import in_virtual_time
from ts_common.model import TopicPartition
from ts_endpoint.protocol.versions import SERVED, Api


class OnlyTheirs:
    """Each user may use groups and topics that begin with the user's name."""

    def may_read(self, user: str | None, topic: str) -> bool:
        return topic.startswith(user or "")

    def may_use(self, user: str | None, group: str) -> bool:
        return group.startswith(user or "")


@pytest.mark.parametrize("version", range(6))
@in_virtual_time
async def test_a_stable_group_is_described_with_its_assignments(version: int) -> None:
    """In every version; the host has a slash as in Kafka's tools."""
    async with room() as client:
        joined = await client.stable(2)
        found = await client.describe(version=version)
        assert (found.error_code, found.group_state) == (ErrorCode.none, "Stable")
        assert (found.protocol_type, found.protocol_data) == ("consumer", "range")
        assert {each.member_id for each in found.members} == {each.member_id for each in joined}
        assert {each.member_assignment for each in found.members} == {b"0", b"1"}
        assert {(each.client_id, each.client_host) for each in found.members} == {("c", "/198.51.100.7")}
        assert {each.member_metadata for each in found.members} == {b"orders"}


@in_virtual_time
async def test_a_group_that_is_not_stable_is_described_without_assignments() -> None:
    """While the leader assigns, and after the last member left."""
    async with room() as client:
        joined = await client.joined()
        found = await client.describe()
        assert (found.group_state, found.protocol_data) == ("CompletingRebalance", "")
        assert [(each.member_metadata, each.member_assignment) for each in found.members] == [(b"", b"")]
        await client.leave({"member_id": joined.member_id, "group_instance_id": None})
        found = await client.describe()
        assert (found.group_state, found.protocol_type, found.members) == ("Empty", "consumer", ())


@in_virtual_time
async def test_a_group_that_does_not_exist_is_dead() -> None:
    """Without an error, as Kafka answers up to version 5. A group with offsets only is empty."""
    async with room() as client:
        found = await client.describe("unknown")
        assert (found.error_code, found.group_state, found.members) == (ErrorCode.none, "Dead", ())
        await client.commit({"orders-0": 1}, group="simple")
        assert (await client.describe("simple")).group_state == "Empty"


@in_virtual_time
async def test_authorized_operations_are_described_on_request() -> None:
    """Read, delete and describe, in Kafka's bits."""
    async with room() as client:
        await client.stable()
        assert (await client.describe()).authorized_operations == (1 << 3) + (1 << 6) + (1 << 8)
        plain = await client.send(Api.DESCRIBE_GROUPS, groups=["g"], include_authorized_operations=False)
        assert plain.groups[0].authorized_operations == -(1 << 31)


@in_virtual_time
async def test_groups_are_listed_by_state_and_type() -> None:
    """Filters ignore case; a type that is not served has no groups."""
    async with room() as client:
        await client.stable(group="busy")
        await client.commit({"orders-0": 1}, group="simple")
        assert await client.listed() == {"busy": "Stable", "simple": "Empty"}
        assert await client.listed(states=["stable"]) == {"busy": "Stable"}
        assert await client.listed(states=["EMPTY"], types=["Classic"]) == {"simple": "Empty"}
        assert await client.listed(types=["consumer"]) == {}
        for version in range(SERVED[Api.LIST_GROUPS][1] + 1):
            groups = (await client.send(Api.LIST_GROUPS, version)).groups
            assert [(each.group_id, each.protocol_type) for each in groups] == [("busy", "consumer"), ("simple", "")]


@in_virtual_time
async def test_groups_that_only_the_store_has_are_listed(tmp_path: Path) -> None:
    """After a restart no group is in memory."""
    with directory_store(tmp_path) as store:
        async with room(store) as client:
            await client.commit({"orders-0": 1}, group="a/b")
            await client.commit({"orders-0": 1}, group="ü c")
        async with room(store) as client:
            assert await client.listed() == {"a/b": "Empty", "ü c": "Empty"}
            assert (await client.describe("a/b")).group_state == "Empty"


@pytest.mark.parametrize("version", range(3))
@in_virtual_time
async def test_a_group_is_deleted_if_it_has_no_members(version: int) -> None:
    """Its offsets too; a group with members and an unknown one have errors of their own."""
    async with room() as client:
        (joined,) = await client.stable(group="busy")
        await client.commit({"orders-0": 1}, joined, group="busy")
        await client.commit({"orders-0": 1}, group="simple")
        reply = await client.send(Api.DELETE_GROUPS, version, groups_names=["busy", "simple", "unknown", "simple"])
        assert [(each.group_id, each.error_code) for each in reply.results] == [
            ("busy", ErrorCode.non_empty_group),
            ("simple", ErrorCode.none),
            ("unknown", ErrorCode.group_id_not_found),
        ]
        assert await client.fetched("simple") == {}
        assert await client.listed() == {"busy": "Stable"}
        await client.leave({"member_id": joined.member_id, "group_instance_id": None}, group="busy")
        assert await client.delete("busy") == {"busy": ErrorCode.none}
        assert await client.listed() == {}


@in_virtual_time
async def test_a_deleted_group_has_no_object(tmp_path: Path) -> None:
    """Also one that was stored and never read by this process; a commit afterwards begins without the others."""
    with directory_store(tmp_path) as store:
        async with room(store) as client:
            await client.commit({"orders-0": 1, "orders-1": 2})
        async with room(store) as client:
            assert await client.listed() == {"g": "Empty"}
            assert await client.delete("g") == {"g": ErrorCode.none}
            assert await client.listed() == {}
            await asyncio.sleep(0.1)
            assert list(store.list()) == []
            assert await client.listed() == {}
            assert await client.delete("g") == {"g": ErrorCode.group_id_not_found}
            await client.commit({"orders-1": 7})
        async with room(store) as client:
            assert await client.fetched() == {"orders-1": 7}


@in_virtual_time
async def test_a_commit_after_a_deletion_that_is_not_stored_yet_survives_alone(tmp_path: Path) -> None:
    """The flush replaces the object, and brings none of the deleted offsets back."""
    with directory_store(tmp_path) as store:
        async with room(store) as client:
            await client.commit({"orders-0": 1, "orders-1": 2})
            await client.groups.flush()
            assert await client.delete("g") == {"g": ErrorCode.none}
            await client.commit({"orders-1": 1})
            assert await client.fetched() == {"orders-1": 1}
        async with room(store) as client:
            assert await client.fetched() == {"orders-1": 1}


def subscription(*topics: str) -> bytes:
    """Return the metadata of a consumer, as Java's clients send it."""
    names = b"".join(struct.pack(">h", len(each)) + each.encode() for each in topics)
    return struct.pack(">hi", 1, len(topics)) + names + struct.pack(">ii", -1, 0)


async def deleted(client: Client, *partitions: str, group: str = "g") -> Any:
    """Return the error of an OffsetDelete, and those of its partitions."""
    named = [each.rpartition("-") for each in partitions]
    topics = [{"name": name, "partitions": [{"partition_index": int(number)}]} for name, _, number in named]
    reply = await client.send(Api.OFFSET_DELETE, group_id=group, topics=topics)
    return reply.error_code, {
        f"{topic.name}-{each.partition_index}": each.error_code for topic in reply.topics for each in topic.partitions
    }


@in_virtual_time
async def test_offsets_of_topics_that_a_group_does_not_read_are_deleted(tmp_path: Path) -> None:
    """As by kafka-consumer-groups --delete-offsets, also after a restart; a partition without an offset is no error."""
    none, subscribed = ErrorCode.none, ErrorCode.group_subscribed_to_topic
    with directory_store(tmp_path) as store:
        async with room(store) as client:
            (joined,) = await client.stable(protocols=[("range", subscription("orders"))])
            await client.commit({"orders-0": 1, "old-0": 2, "old-1": 3}, joined)
            answers = await deleted(client, "orders-0", "old-0", "old-7", "a/b-0")
            assert answers == (
                none,
                {"a/b-0": ErrorCode.unknown_topic_or_partition, "orders-0": subscribed, "old-0": none, "old-7": none},
            )
            assert next(iter(answers[1])) == "a/b-0"  # what the coordinator does not decide is first
            await client.groups.flush()
            await client.commit({"old-1": 4}, joined)
        async with room(store) as client:
            assert await client.fetched() == {"orders-0": 1, "old-1": 4}
            assert await deleted(client, "orders-0", "old-1") == (none, {"orders-0": none, "old-1": none})
            assert await client.fetched() == {}
        assert list(store.list()) == []


@in_virtual_time
async def test_the_offset_of_a_topic_that_the_archive_lacks_is_not_deleted() -> None:
    """As by a broker, whose metadata decides first; an error of the whole group counts before."""
    gone = set[str]()

    async def lacking(partitions: Sequence[TopicPartition]) -> Collection[TopicPartition]:
        return {each for each in partitions if each.topic in gone}

    async with room(lacking=lacking) as client:
        await client.commit({"gone-0": 1, "orders-0": 2})
        gone.add("gone")
        assert await deleted(client, "orders-0", "gone-0") == (
            ErrorCode.none,
            {"gone-0": ErrorCode.unknown_topic_or_partition, "orders-0": ErrorCode.none},
        )
        assert await client.fetched() == {"gone-0": 1}
        assert await deleted(client, "gone-0", group="unknown") == (ErrorCode.group_id_not_found, {})


@in_virtual_time
async def test_offsets_that_cannot_be_deleted_stay() -> None:
    """A group that does not exist, one of another user, one of Connect, and members whose metadata is not readable."""
    async with room(permissions=OnlyTheirs()) as anonymous:
        client = anonymous.as_user("ann")
        assert await deleted(client, "ann-0", group="ann") == (ErrorCode.group_id_not_found, {})
        assert await deleted(client, "ann-0", group="bob") == (ErrorCode.group_authorization_failed, {})
        await client.stable(group="ann-connect", protocol_type="connect")
        assert await deleted(client, "ann-0", group="ann-connect") == (ErrorCode.non_empty_group, {})
        await client.stable(group="ann-odd", protocols=[("range", b"odd")])
        assert await deleted(client, "ann-0", "bob-0", group="ann-odd") == (
            ErrorCode.none,
            {"bob-0": ErrorCode.topic_authorization_failed, "ann-0": ErrorCode.group_subscribed_to_topic},
        )


@in_virtual_time
async def test_groups_and_offsets_are_answered_in_the_order_of_a_broker() -> None:
    """DescribeGroups and OffsetCommit have what is refused first, DeleteGroups and OffsetFetch have it last."""
    async with room(permissions=OnlyTheirs()) as anonymous:
        client = anonymous.as_user("ann")
        offset = {"committed_offset": 1, "committed_metadata": ""}
        asked = [("ann-1", 0), ("bob", 0), ("ann-1", -1), ("ann-2", 0)]
        topics = [{"name": name, "partitions": [{"partition_index": each, **offset}]} for name, each in asked]
        values: dict[str, Any] = {"group_id": "ann", "generation_id_or_member_epoch": -1, "member_id": ""}
        committed = await client.send(Api.OFFSET_COMMIT, **values, topics=topics)
        assert [(topic.name, [each.partition_index for each in topic.partitions]) for topic in committed.topics] == [
            ("bob", [0]),
            ("ann-1", [-1, 0]),
            ("ann-2", [0]),
        ]
        wanted = [{"name": name, "partition_indexes": [0]} for name in ("bob", "ann-2", "ann-1")]
        fetched = await client.fetch_group("ann", topics=wanted)
        assert [topic.name for topic in fetched.topics] == ["ann-2", "ann-1", "bob"]
        described = await client.send(
            Api.DESCRIBE_GROUPS, groups=["ann", "bob", "ann-x"], include_authorized_operations=False
        )
        assert [each.group_id for each in described.groups] == ["bob", "ann", "ann-x"]
        assert [*await client.delete("bob", "ann-x", "ann")] == ["ann-x", "ann", "bob"]


@in_virtual_time
async def test_users_use_only_their_groups() -> None:
    """Every request of another group gets GROUP_AUTHORIZATION_FAILED, and lists do not have it."""
    async with room(permissions=OnlyTheirs()) as anonymous:
        client = anonymous.as_user("ann")
        (joined,) = await client.stable(group="ann-1")
        await anonymous.as_user("bob").commit({"bob-0": 1}, group="bob-1")
        denied = ErrorCode.group_authorization_failed
        assert (await client.join(group="bob-1")).error_code is denied
        assert (await client.sync(joined, group="bob-1")).error_code is denied
        assert await client.heartbeat(joined, group="bob-1") is denied
        assert (await client.leave(group="bob-1")).error_code is denied
        assert await client.commit({"ann-0": 1}, group="bob-1") == [denied]
        assert (await client.fetch_group("bob-1")).error_code is denied
        assert (await client.describe("bob-1")).error_code is denied
        assert await client.delete("bob-1", "ann-1") == {"bob-1": denied, "ann-1": ErrorCode.non_empty_group}
        assert await client.listed() == {"ann-1": "Stable"}
        assert await anonymous.listed() == {"ann-1": "Stable", "bob-1": "Empty"}
