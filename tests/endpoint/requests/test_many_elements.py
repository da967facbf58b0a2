"""Requests that name very many topics or partitions, or one of them very often."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.endpoint.clients import FETCH, LIST, Served, call, fetch_body, module_of, run, serving
from tests.made_archive import MadeArchive, batches, steps
from ts_endpoint.protocol.versions import Api

COUNT = 2000
METADATA, CONFIGS, EPOCHS = (
    module_of(each) for each in (Api.METADATA, Api.DESCRIBE_CONFIGS, Api.OFFSET_FOR_LEADER_EPOCH)
)


def made_archive(directory: Path) -> MadeArchive:
    archive = MadeArchive(directory)
    archive.put_segment("t", 0, batches(*steps(0, 50)))
    archive.commit("t", 50)
    return archive


def metadata_body(*names: str) -> Any:
    topics = tuple(METADATA.MetadataRequestTopic(name=name, topic_id=None) for name in names)
    return METADATA.MetadataRequest(topics=topics, include_topic_authorized_operations=False)


def test_a_topic_that_metadata_names_often_is_described_once(tmp_path: Path) -> None:
    """A request of 8 bytes a name would otherwise have a reply of all partitions for each."""
    archive = made_archive(tmp_path)

    async def ask() -> Any:
        with serving(archive.store, archive.keys) as served:
            return await call(served, Api.METADATA, metadata_body(*["t"] * COUNT, "other", "t"))

    assert [topic["name"] for topic in run(ask)["topics"]] == ["t", "other"]


def test_a_partition_that_a_fetch_names_often_is_fetched_once(tmp_path: Path) -> None:
    """At the last of its offsets."""
    archive = made_archive(tmp_path)
    (topic,) = fetch_body("t", {0: 20}).topics
    often = FETCH.FetchTopic(topic="t", partitions=fetch_body("t", {0: 0}).topics[0].partitions * COUNT)

    async def ask() -> Any:
        with serving(archive.store, archive.keys) as served:
            body = fetch_body("t", {})
            names = {field: getattr(body, field) for field in ("max_wait", "min_bytes", "max_bytes", "isolation_level")}
            request = FETCH.FetchRequest(**names, topics=(often, topic), forgotten_topics_data=(), replica_id=-1)
            return await call(served, Api.FETCH, request)

    ((partition,),) = [each["partitions"] for each in run(ask)["responses"]]
    (records,) = partition["records"].views
    assert int.from_bytes(records[:8], "big") == 20


def many() -> list[tuple[Api, Any]]:
    asked = LIST.ListOffsetsPartition(partition_index=0, timestamp=-1)
    validated = EPOCHS.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    unknown = FETCH.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    resources = tuple(
        CONFIGS.DescribeConfigsResource(resource_type=2, resource_name=f"u{number}", configuration_keys=None)
        for number in range(COUNT)
    )
    topics = tuple(FETCH.FetchTopic(topic=f"u{number}", partitions=(unknown,)) for number in range(COUNT))
    listed = (LIST.ListOffsetsTopic(name="t", partitions=(asked,) * COUNT),)
    fetch = fetch_body("t", {})
    return [
        (Api.METADATA, metadata_body(*(f"u{number}" for number in range(COUNT)))),
        (Api.LIST_OFFSETS, LIST.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=listed)),
        (Api.DESCRIBE_CONFIGS, CONFIGS.DescribeConfigsRequest(resources=resources)),
        (
            Api.OFFSET_FOR_LEADER_EPOCH,
            EPOCHS.OffsetForLeaderEpochRequest(
                topics=(EPOCHS.OffsetForLeaderTopic(topic="t", partitions=(validated,) * COUNT),)
            ),
        ),
        (
            Api.FETCH,
            FETCH.FetchRequest(
                max_wait=fetch.max_wait, min_bytes=1, max_bytes=1, topics=topics, forgotten_topics_data=()
            ),
        ),
    ]


@pytest.mark.parametrize(("api", "body"), many(), ids=lambda value: value.name if isinstance(value, Api) else "")
def test_others_are_served_during_a_request_of_many_elements(api: Api, body: Any, tmp_path: Path) -> None:
    """A handler lets the event loop run after some of them."""
    archive = made_archive(tmp_path)

    async def ask() -> tuple[int, int]:
        with serving(archive.store, archive.keys, refresh_seconds=3600) as served:
            await call(served, api, body)  # what a client needs of the archive is in memory from now on
            return await turns_during(served, api, body), COUNT // 200

    turns, expected = run(ask)
    assert turns >= expected


async def turns_during(served: Served, api: Api, body: Any) -> int:
    """Return how often another task ran while a request was answered."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(other())
    await call(served, api, body)
    task.cancel()
    return turns


def test_a_topic_is_built_once_between_two_lists_of_topics(tmp_path: Path) -> None:
    """A Fetch uses the topic once for each of its partitions: with a thousand of them it needed seconds."""
    archive = made_archive(tmp_path)

    async def ask() -> bool:
        with serving(archive.store, archive.keys, refresh_seconds=3600) as served:
            return await served.archive.catalog.use("t") is await served.archive.catalog.use("t")

    assert run(ask)
