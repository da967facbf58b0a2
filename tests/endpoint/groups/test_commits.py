"""Offsets are committed and fetched, by members and without them."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.endpoint.groups.client import room
from tests.endpoint.groups.test_admin import OnlyTheirs
from tests.endpoint.groups.virtual_time import in_virtual_time
from ts_common.model import TopicPartition
from ts_endpoint.contract import EveryonePermitted
from ts_endpoint.protocol.versions import SERVED, Api

COMMITS = range(SERVED[Api.OFFSET_COMMIT][0], SERVED[Api.OFFSET_COMMIT][1] + 1)
FETCHES = range(SERVED[Api.OFFSET_FETCH][0], SERVED[Api.OFFSET_FETCH][1] + 1)


@pytest.mark.parametrize("version", COMMITS)
@in_virtual_time
async def test_a_consumer_without_a_group_commits_in_every_version(version: int) -> None:
    """Its generation is -1. The leader epoch is in the request from version 6 on."""
    async with room() as client:
        assert await client.commit({"orders-0": 5}, version=version, metadata="m", generation_id=-1) == [ErrorCode.none]
        (found,) = (
            (await client.fetch_group(topics=[{"name": "orders", "partition_indexes": [0]}])).topics[0].partitions
        )
        assert (found.committed_offset, found.metadata, found.error_code) == (5, "m", ErrorCode.none)
        assert found.committed_leader_epoch == (3 if version >= 6 else -1)


async def lacking_gone(partitions: Sequence[TopicPartition]) -> Collection[TopicPartition]:
    """Return the partitions of the topic `gone`."""
    return {each for each in partitions if each.topic == "gone"}


@pytest.mark.parametrize("version", COMMITS)
@in_virtual_time
async def test_a_commit_of_what_the_archive_lacks_is_refused_before_the_coordinator(version: int) -> None:
    """As by a broker: also from an unknown member, or if another process has the group; permission counts first."""
    none, unknown = ErrorCode.none, ErrorCode.unknown_topic_or_partition
    committed = {"gone-0": 1, "orders-0": 5}
    owned = [True]
    async with room(owns=lambda _: owned[0], lacking=lacking_gone) as client:
        assert await client.commit(committed, version=version, generation_id=-1) == [unknown, none]
        assert await client.fetched() == {"orders-0": 5}
        stale: dict[str, Any] = {"member_id": "gone", "generation_id": 3, "generation_id_or_member_epoch": 3}
        assert await client.commit(committed, version=version, **stale) == [unknown, ErrorCode.illegal_generation]
        owned[0] = False
        found = await client.commit(committed, version=version, generation_id=-1)
        assert found == [unknown, ErrorCode.not_coordinator]
    async with room(permissions=OnlyTheirs(), lacking=lacking_gone) as anonymous:
        refused = await anonymous.as_user("go").commit(committed, group="bob", version=version, generation_id=-1)
        assert set(refused) == {ErrorCode.group_authorization_failed}
        refused = await anonymous.as_user("or").commit(committed, group="or", version=version, generation_id=-1)
        assert refused == [ErrorCode.topic_authorization_failed, none]


@pytest.mark.parametrize("version", FETCHES)
@in_virtual_time
async def test_offsets_are_fetched_in_every_version(version: int) -> None:
    """A partition without a committed offset has -1, also in a group that does not exist."""
    async with room() as client:
        await client.commit({"orders-0": 5, "orders-2": 7})
        wanted = [{"name": "orders", "partition_indexes": [2, 1]}, {"name": "payments", "partition_indexes": [0]}]
        for group, expected in (("g", [7, -1, -1]), ("unknown", [-1, -1, -1])):
            found = await client.fetch_group(group, version, wanted)
            partitions = [each for topic in found.topics for each in topic.partitions]
            assert [each.committed_offset for each in partitions] == expected
            assert {each.error_code for each in partitions} == {ErrorCode.none}
        if version >= 2:
            assert await client.fetched(version=version) == {"orders-0": 5, "orders-2": 7}
            assert await client.fetched("unknown", version) == {}


@in_virtual_time
async def test_several_groups_are_fetched_with_one_request() -> None:
    """Each with its own topics, or all; `require_stable` makes no difference without transactions."""
    async with room() as client:
        await client.commit({"orders-0": 5}, group="a")
        await client.commit({"orders-0": 6, "orders-1": 7}, group="b")
        groups = [
            {"group_id": "a", "topics": None},
            {"group_id": "b", "topics": [{"name": "orders", "partition_indexes": [1]}]},
        ]
        found = (await client.send(Api.OFFSET_FETCH, groups=groups, require_stable=True)).groups
        assert [(each.group_id, each.error_code) for each in found] == [("a", ErrorCode.none), ("b", ErrorCode.none)]
        assert [each.topics[0].partitions[0].committed_offset for each in found] == [5, 7]


@in_virtual_time
async def test_a_group_that_a_request_names_often_is_in_the_reply_once() -> None:
    """A small request would otherwise have a reply with all offsets, or all members, for each name."""
    async with room() as client:
        await client.commit({"orders-0": 5})
        often = [{"group_id": "g", "topics": None}] * 500
        fetched = await client.send(Api.OFFSET_FETCH, groups=[*often, {"group_id": "other", "topics": None}])
        described = await client.send(Api.DESCRIBE_GROUPS, groups=["g"] * 500, include_authorized_operations=False)

    assert [each.group_id for each in fetched.groups] == ["g", "other"]
    assert [each.group_id for each in described.groups] == ["g"]


@in_virtual_time
async def test_members_commit_in_their_generation() -> None:
    """Another generation, an unknown member and a consumer without a group are refused meanwhile."""
    async with room() as client:
        (joined,) = await client.stable()
        assert await client.commit({"orders-0": 5}, joined) == [ErrorCode.none]
        for generation in (0, 2):
            refused = await client.commit({"orders-0": 6}, joined, generation_id_or_member_epoch=generation)
            assert refused == [ErrorCode.illegal_generation]
        assert await client.commit({"orders-0": 6}, joined, member_id="nobody") == [ErrorCode.unknown_member_id]
        assert await client.commit({"orders-0": 6}) == [ErrorCode.unknown_member_id]
        assert await client.fetched() == {"orders-0": 5}
        await client.leave({"member_id": joined.member_id, "group_instance_id": None})
        assert await client.commit({"orders-0": 6}, joined) == [ErrorCode.unknown_member_id]
        assert await client.commit({"orders-0": 7}) == [ErrorCode.none]
        assert await client.fetched() == {"orders-0": 7}


@in_virtual_time
async def test_a_generation_of_a_group_that_does_not_exist_is_over() -> None:
    """A member of a process that ended joins again."""
    async with room() as client:
        (joined,) = await client.stable()
        assert await client.commit({"orders-0": 5}, joined, group="other") == [ErrorCode.illegal_generation]


@in_virtual_time
async def test_members_commit_while_others_join_but_not_while_the_leader_assigns() -> None:
    """A member that must give partitions back commits first. Afterwards its partitions may have another owner."""
    async with room() as client:
        (joined,) = await client.stable()
        newcomer = client.joining()
        await asyncio.sleep(1)
        assert await client.commit({"orders-0": 5}, joined) == [ErrorCode.none]
        again = await client.join(joined.member_id)
        assert await client.commit({"orders-0": 6}, again) == [ErrorCode.rebalance_in_progress]
        await newcomer
        assert await client.fetched() == {"orders-0": 5}


@in_virtual_time
async def test_metadata_that_is_too_long_is_refused() -> None:
    """4,096 characters are accepted, as in Kafka; other partitions of the request are committed."""
    async with room() as client:
        assert await client.commit({"orders-0": 1}, metadata="x" * 4096) == [ErrorCode.none]
        assert await client.commit({"orders-1": 1}, metadata="x" * 4097) == [ErrorCode.offset_metadata_too_large]
        assert await client.fetched() == {"orders-0": 1}


@pytest.mark.parametrize("partition", ["a/b-0", "-0", "orders--1", f"{'x' * 301}-0"])
@in_virtual_time
async def test_a_partition_that_cannot_exist_is_unknown(partition: str) -> None:
    """No such name can be in the object, and the rest of the request is committed."""
    async with room() as client:
        topic, _, index = partition.rpartition("-") if "--" not in partition else ("orders", "-", "-1")
        topics = [
            {
                "name": name,
                "partitions": [{"partition_index": each, "committed_offset": 1, "committed_metadata": None}],
            }
            for name, each in ((topic, int(index)), ("orders", 3))
        ]
        errors = await client.commit({}, topics=topics)
        assert errors == [ErrorCode.unknown_topic_or_partition, ErrorCode.none]
        assert await client.fetched() == {"orders-3": 1}


@in_virtual_time
async def test_topics_that_a_user_may_not_read_are_refused_or_left_out() -> None:
    """In commits, in fetches, and in a fetch of all topics."""
    async with room(permissions=OnlyTheirs()) as anonymous:
        ann = anonymous.as_user("a")
        assert await anonymous.commit({"a-0": 1, "b-0": 2}, group="a") == [ErrorCode.none, ErrorCode.none]
        refused = [ErrorCode.none, ErrorCode.topic_authorization_failed]
        assert await ann.commit({"a-0": 3, "b-0": 4}, group="a") == refused
        assert await ann.fetched("a") == {"a-0": 3}
        found = await ann.fetch_group("a", topics=[{"name": name, "partition_indexes": [0]} for name in "ab"])
        assert [topic.partitions[0].error_code for topic in found.topics] == refused
        assert [topic.partitions[0].committed_offset for topic in found.topics] == [3, -1]
        assert await anonymous.fetched("a") == {"a-0": 3, "b-0": 2}


class OneTopic(EveryonePermitted):
    """Everyone may read `a`, by its exact name."""

    def may_read(self, user: str | None, topic: str) -> bool:
        del user
        return topic == "a"


@in_virtual_time
async def test_a_user_of_a_topic_commits_offsets_of_its_incarnations() -> None:
    """A user of `a` may read `a~id`, and gets its offsets too; those of `ba~id` are refused."""
    former = "a~AAAAAAAAAAAAAAAAAAAAAQ"
    async with room(permissions=OneTopic()) as client:
        refused = [ErrorCode.none, ErrorCode.topic_authorization_failed]
        assert await client.commit({f"{former}-0": 5, f"b{former}-0": 6}) == refused
        assert await client.fetched() == {f"{former}-0": 5}


@in_virtual_time
async def test_the_first_version_of_a_fetch_has_the_error_of_a_group_in_each_partition() -> None:
    """It has no other place for it."""
    async with room(permissions=OnlyTheirs()) as anonymous:
        found = await anonymous.as_user("a").fetch_group("b", 1, [{"name": "a", "partition_indexes": [0, 1]}])
        errors = [each.error_code for each in found.topics[0].partitions]
        assert errors == [ErrorCode.group_authorization_failed] * 2
