"""Clients that name topics by their ids: Fetch since version 13, and Metadata since version 12."""

import time
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

import pytest
from kio.schema.errors import ErrorCode

from tests.endpoint.clients import Served, call, fetch_body, module_of, run, serving
from tests.endpoint.groups.test_admin import OnlyTheirs
from tests.endpoint.requests.test_changes import metadata_of
from tests.made_archive import MadeArchive, batches, steps
from ts_common.archive.incarnations import Incarnations
from ts_common.model import TopicPartition
from ts_endpoint.contract import Session
from ts_endpoint.protocol.replies import encode_reply
from ts_endpoint.protocol.requests import Request
from ts_endpoint.protocol.versions import SERVED, Api
from ts_endpoint.topics import catalog

IDS = ("AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg")
FIRST, SECOND = UUID(int=1), UUID(int=2)
METADATA = module_of(Api.METADATA)


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    """A topic with an id, and one of a broker that had none."""
    made = MadeArchive(tmp_path / "archive")
    for topic in ("t", "old"):
        made.put_segment(topic, 0, batches(*steps(0, 20)))
        made.commit(topic, 20)
    made.put_incarnations("t", IDS[0])
    return made


async def described(served: Served, *wanted: str | UUID, session: Session | None = None) -> list[tuple[Any, Any, Any]]:
    """Return name, id and error of topics that Metadata describes by names or by ids."""
    names = [(each, None) if isinstance(each, str) else (None, each) for each in wanted]
    topics = tuple(METADATA.MetadataRequestTopic(name=name, topic_id=topic_id) for name, topic_id in names)
    body = METADATA.MetadataRequest(topics=topics or None, include_topic_authorized_operations=False)
    found = await call(served, Api.METADATA, body, session)
    return [(each["name"], each["topic_id"], each.get("error_code", ErrorCode.none)) for each in found["topics"]]


async def fetched(
    served: Served, *ids: UUID, version: int = SERVED[Api.FETCH][1], session: Session | None = None
) -> list[tuple[UUID, ErrorCode, int]]:
    """Return the id, the error and the bytes of partition 0 of each topic."""
    types = module_of(Api.FETCH, version)
    by_name = fetch_body("t", {})
    partition = types.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    fields = {each: getattr(by_name, each) for each in ("max_wait", "min_bytes", "max_bytes", "isolation_level")}
    topics = tuple(types.FetchTopic(topic_id=each, partitions=(partition,)) for each in ids)
    body = types.FetchRequest(**fields, topics=topics, forgotten_topics_data=())
    values = await call(served, Api.FETCH, body, session)
    assert encode_reply(Request(Api.FETCH, version, 1, None, body), values)
    return [
        (topic["topic_id"], each["error_code"], len(each["records"]))
        for topic in values["responses"]
        for each in topic["partitions"]
    ]


@pytest.mark.parametrize("version", range(13, SERVED[Api.FETCH][1] + 1))
def test_each_topic_is_fetched_by_the_id_that_metadata_has(archive: MadeArchive, version: int) -> None:
    """Also by another process. An id that the archive does not have is derived from the name."""

    async def read() -> tuple[list[Any], list[Any]]:
        with serving(archive.store, archive.keys, refresh_seconds=3600) as served:
            topics = await described(served)
            assert topics == sorted(await described(served, "t", "old"))
        ids = [each for _, each, _ in topics]
        with serving(archive.store, archive.keys, refresh_seconds=3600) as other:
            return topics, [(await fetched(other, each, version=version))[0] for each in ids]

    topics, answers = run(read)
    assert [(name, error) for name, _, error in topics] == [("old", ErrorCode.none), ("t", ErrorCode.none)]
    assert topics[1][1] == FIRST
    assert [(error, size > 100) for _, error, size in answers] == [(ErrorCode.none, True)] * 2


def test_metadata_describes_topics_by_their_ids(archive: MadeArchive) -> None:
    """What is unknown is first; a topic that the user may not read has no name in the reply."""

    async def read() -> list[Any]:
        with serving(archive.store, archive.keys, permissions=OnlyTheirs()) as served:
            ((_, old, _),) = await described(served, "old", session=Session("test", "old"))
            found = await described(served, FIRST, SECOND, old, session=Session("test", "old"))
            assert found[1][1] == old
            return [(name, error) for name, _, error in found]

    unknown, denied = ErrorCode.unknown_topic_id, ErrorCode.topic_authorization_failed
    assert run(read) == [(None, unknown), ("old", ErrorCode.none), (None, denied)]


def test_a_derived_id_does_not_reveal_a_topic_that_the_user_may_not_read(archive: MadeArchive) -> None:
    """Each client can derive the id of a guessed name: Metadata and Fetch answer as for a topic that does not exist."""
    old, missing = (uuid5(NAMESPACE_URL, f"ts-endpoint:{archive.keys.cluster}/{name}") for name in ("old", "missing"))
    mallory = Session("test", "mallory")

    async def read() -> tuple[Any, Any]:
        with serving(archive.store, archive.keys, permissions=OnlyTheirs()) as served:
            ((_, derived, _),) = await described(served, "old", session=Session("test", "old"))
            assert derived == old
            return (
                await described(served, old, missing, session=mallory),
                await fetched(served, old, missing, session=mallory),
            )

    unknown = ErrorCode.unknown_topic_id
    assert run(read) == ([(None, each, unknown) for each in (old, missing)], [(old, unknown, 0), (missing, unknown, 0)])


@pytest.mark.parametrize("version", [10, 11])
def test_metadata_by_ids_is_invalid_before_version_12(archive: MadeArchive, version: int) -> None:
    """As in a broker: the schema had the field before the feature."""
    types = module_of(Api.METADATA, version)

    async def read() -> Any:
        with serving(archive.store, archive.keys) as served:
            topics = (types.MetadataRequestTopic(name=None, topic_id=FIRST),)
            flags = {"include_topic_authorized_operations": False}
            flags |= {"include_cluster_authorized_operations": False} if version < 11 else {}
            body = types.MetadataRequest(topics=topics, **flags)
            values = await call(served, Api.METADATA, body)
            assert encode_reply(Request(Api.METADATA, version, 1, None, body), values)
            return values["topics"][0]["error_code"]

    assert run(read) is ErrorCode.invalid_request


def test_an_id_that_the_archive_does_not_have_is_unknown(archive: MadeArchive) -> None:
    """It is answered after what is read, and before what the user may not read."""

    async def read() -> list[Any]:
        with serving(archive.store, archive.keys, permissions=OnlyTheirs()) as served:
            ((_, old, _),) = await described(served, "old", session=Session("test", "old"))
            return await fetched(served, FIRST, SECOND, old, session=Session("test", "old"))

    assert [error for _, error, _ in run(read)] == [
        ErrorCode.none,
        ErrorCode.unknown_topic_id,
        ErrorCode.topic_authorization_failed,
    ]


def test_e05_a_topic_that_was_created_again_is_not_read_by_its_former_id(archive: MadeArchive) -> None:
    """The client gets INCONSISTENT_TOPIC_ID or UNKNOWN_TOPIC_ID, reads Metadata, and gets the new id."""

    async def read() -> tuple[list[ErrorCode], Any]:
        with serving(archive.store, archive.keys) as served:
            assert (await fetched(served, FIRST))[0][1] is ErrorCode.none
            archive.put_incarnations("t", *IDS)
            later = archive.keys.later_incarnation("t", IDS[1])
            archive.store.put(f"{archive.keys.cluster}/{later}-0/{0:020d}.log", b"")
            errors = {ErrorCode.none: None}
            ends = time.monotonic() + 60
            while ErrorCode.unknown_topic_id not in errors and time.monotonic() < ends:  # the list is read meanwhile
                errors[(await fetched(served, FIRST))[0][1]] = None
            return [*errors], await described(served, "t")

    errors, topics = run(read)
    assert errors == [ErrorCode.none, ErrorCode.inconsistent_topic_id, ErrorCode.unknown_topic_id]
    assert topics == [("t", SECOND, ErrorCode.none)]


def test_metadata_has_all_topics_if_one_list_of_incarnations_is_damaged(archive: MadeArchive) -> None:
    """With the option that needs the list of each topic with a later directory."""
    incarnations = Incarnations("t").opened(IDS[0], 0, archive.keys).opened(IDS[1], 1, archive.keys)
    later = archive.keys.partition(TopicPartition("t", 0), incarnations.newest_directory)
    archive.store.put(later.commit, b"any")
    archive.store.put(archive.keys.incarnations("t"), b"what")

    async def read() -> list[str]:
        with serving(archive.store, archive.keys, with_incarnations=True) as served:
            assert (await served.archive.catalog.topics())["t"].directories.later
            found = await call(served, Api.METADATA, metadata_of(None))
            return [each["name"] for each in found["topics"]]

    assert run(read) == ["old", "t"]


def test_partitions_that_the_archive_lacks_are_looked_for_once_more(
    archive: MadeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process can have served a new partition before this one lists it."""
    now = [100.0]
    monkeypatch.setattr(catalog, "monotonic", lambda: now[0])
    wanted = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("x", 0), TopicPartition("t~id", 0)]

    async def read() -> None:
        with serving(archive.store, archive.keys, refresh_seconds=3600) as served:
            assert await served.archive.catalog.lacking(wanted) == {*wanted[1:]}
            archive.put_segment("t", 0, batches((0, 5)), partition=1)
            assert await served.archive.catalog.lacking(wanted) == {*wanted[1:]}  # at most one list a second
            now[0] += 2
            assert await served.archive.catalog.lacking(wanted) == {*wanted[2:]}

    run(read)


def test_each_incarnation_has_an_id_of_its_own(archive: MadeArchive) -> None:
    """By option. The newest one has two names, and a client can use both: each has another id."""
    archive.put_incarnations("t", *IDS)

    async def read() -> list[UUID]:
        with serving(archive.store, archive.keys, with_incarnations=True) as served:
            partitions = [TopicPartition(f"t~{each}", 0) for each in (*IDS, "unknown")]
            assert await served.archive.catalog.lacking(partitions) == {partitions[2]}
            return [each for _, each, _ in await described(served, "t", *(f"t~{each}" for each in IDS))]

    newest, first, second = run(read)
    assert (newest, first) == (SECOND, FIRST)
    assert second not in {FIRST, SECOND}
