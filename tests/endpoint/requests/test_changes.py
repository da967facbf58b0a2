"""What clients see while the archive changes: new segments, retention, elections, holes that are filled."""

from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.asked_store import AskedStore
from tests.endpoint.clients import Served, call, fetch, list_offset, module_of, read_all, run, serving
from tests.made_archive import MadeArchive, batches, steps
from tests.made_seals import looking_for_seals
from ts_common.archive.object_keys import SegmentName
from ts_common.errors import StoreUnavailable
from ts_endpoint.protocol.versions import Api
from ts_endpoint.topics import partitions
from ts_uploader.shipping.sealing import seal


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeArchive:
    """An archive with 30 records in three segments; each request lists the partition again."""
    monkeypatch.setattr(partitions, "LISTING_SECONDS", 0.0)
    made = MadeArchive(tmp_path / "archive")
    for start in (0, 10, 20):
        made.put_segment("t", start, batches((start, start + 10), epoch=4))
    made.commit("t", 30, highest_base=20, epochs=((4, 0),))
    return made


async def offsets(served: Served, start: int = 0) -> list[int]:
    """Return the offsets that a consumer gets."""
    return [row["offset"] for row in await read_all(served, "t", start=start)]


async def settled(served: Served) -> None:
    """Wait until a snapshot is not older than this call."""
    partition = await served.archive.partition("t", 0)
    assert partition is not None
    await partition.renewed()


def metadata_of(names: list[str] | None) -> Any:
    """Return the body of a Metadata request; None for all topics."""
    types = module_of(Api.METADATA)
    topics = None if names is None else [types.MetadataRequestTopic(name=name, topic_id=None) for name in names]
    return types.MetadataRequest(
        topics=None if topics is None else tuple(topics), include_topic_authorized_operations=False
    )


async def end_of_epoch(served: Served, epoch: int, current: int = -1) -> dict[str, Any]:
    """Return the answer of OffsetForLeaderEpoch."""
    types = module_of(Api.OFFSET_FOR_LEADER_EPOCH)
    wanted = types.OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
    body = types.OffsetForLeaderEpochRequest(topics=(types.OffsetForLeaderTopic(topic="t", partitions=(wanted,)),))
    found: dict[str, Any] = (await call(served, Api.OFFSET_FOR_LEADER_EPOCH, body))["topics"][0]["partitions"][0]
    return found


def test_new_segments_appear_while_a_client_reads(archive: MadeArchive) -> None:
    """A client at the end gets them by the next requests."""

    async def read() -> None:
        with serving(archive.store, archive.keys) as served:
            assert await offsets(served) == list(range(30))
            assert (await fetch(served, "t", 30, max_wait=0.0)).records == b""
            archive.put_segment("t", 30, batches((30, 35), epoch=4))
            archive.commit("t", 35, highest_base=30, epochs=((4, 0),))
            await settled(served)
            assert await offsets(served, 30) == list(range(30, 35))

    run(read)


def test_metadata_leaves_a_snapshot_as_old_as_it_is(archive: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata reads the commit again; a client that fetches still makes the process look for new segments."""
    now = [100.0]
    monkeypatch.setattr(partitions, "monotonic", lambda: now[0])

    async def read() -> None:
        with serving(archive.store, archive.keys, refresh_seconds=10.0) as served:
            assert await offsets(served) == list(range(30))
            now[0] += 11.0
            await call(served, Api.METADATA, metadata_of(["t"]))
            partition = await served.archive.partition("t", 0)
            assert partition is not None
            assert partition.is_old

    run(read)


def test_e03_retention_under_a_reader_is_out_of_range(archive: MadeArchive) -> None:
    """Also if the snapshot still has the segment that retention removed."""

    async def read() -> None:
        with serving(archive.store, archive.keys, refresh_seconds=3600) as served:
            assert (await fetch(served, "t", 20)).error is ErrorCode.none
            archive.commit("t", 30, highest_base=20, epochs=((4, 0),), log_start=10)
            keys = archive.partition("t")
            archive.store.delete([keys.segment(SegmentName(0))])
            assert (await fetch(served, "t", 0)).error is ErrorCode.offset_out_of_range
            assert (await list_offset(served, "t", -2))["offset"] == 10

    run(read)


def test_an_election_that_replaced_records_is_noticed_by_epochs(archive: MadeArchive) -> None:
    """A client with the former epoch is fenced, requests the end of its epoch, and reads from there."""

    async def read() -> None:
        with serving(archive.store, archive.keys) as served:
            assert (await fetch(served, "t", 25, epoch=4)).error is ErrorCode.none
            archive.put_segment("t", 20, batches((20, 22), epoch=4) + batches((22, 40), epoch=6), variant=True)
            archive.commit("t", 40, highest_base=20, epochs=((4, 0), (6, 22)))
            await settled(served)
            assert (await fetch(served, "t", 30, epoch=4)).error is ErrorCode.fenced_leader_epoch
            assert (await end_of_epoch(served, 4, current=6))["end_offset"] == 22
            assert await offsets(served, 22) == list(range(22, 40))

    run(read)


def test_a_client_that_is_ahead_of_this_process_makes_it_look_again(archive: MadeArchive) -> None:
    """Another process has reported a later end or epoch: the offset is not out of range."""

    async def read() -> None:
        with serving(archive.store, archive.keys, refresh_seconds=3600) as served:
            assert await offsets(served) == list(range(30))
            archive.put_segment("t", 30, batches((30, 35), epoch=5))
            archive.commit("t", 35, highest_base=30, epochs=((4, 0), (5, 30)))
            assert (await fetch(served, "t", 32, epoch=5)).error is ErrorCode.none

    run(read)


def test_a_hole_that_is_filled_ends_the_error(archive: MadeArchive) -> None:
    """A client that repeats the request reads on."""
    key = archive.partition("t").segment(SegmentName(10))
    data, info = archive.store.get(key)
    archive.store.delete([key])

    async def read() -> None:
        with serving(archive.store, archive.keys) as served:
            assert (await fetch(served, "t", 10)).error is ErrorCode.corrupt_message
            archive.store.put(key, data, metadata=info.metadata)
            await settled(served)
            assert await offsets(served, 10) == list(range(10, 30))

    run(read)


@pytest.mark.parametrize("passes_holes", [False, True])
def test_a_missing_segment_of_a_sealed_range_is_a_hole(archive: MadeArchive, *, passes_holes: bool) -> None:
    """Sealed objects still name it, and KAFKA_STORAGE_ERROR would make clients repeat the request forever."""
    key = archive.partition("t").segment(SegmentName(10))
    data, info = archive.store.get(key)

    async def read() -> None:
        with serving(archive.store, archive.keys, passes_holes=passes_holes) as served:
            for _ in range(2):
                if passes_holes:
                    assert await offsets(served) == [*range(10), *range(20, 30)]
                else:
                    assert (await fetch(served, "t", 10)).error is ErrorCode.corrupt_message
            archive.store.put(key, data, metadata=info.metadata)
            await settled(served)
            assert await offsets(served) == list(range(30))

    with looking_for_seals(1):
        assert seal(archive.store, archive.partition("t"), 1, 1) == 3
        archive.store.delete([key])
        run(read)


@pytest.mark.parametrize("level", ["commit", "segment"])
def test_an_unreachable_store_makes_clients_retry(
    archive: MadeArchive, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """The error is KAFKA_STORAGE_ERROR, and the next request succeeds."""
    monkeypatch.setattr("ts_common.store.retry.OPERATION_POLICY.sleep", lambda _: None)
    open_object, is_away = archive.store.open, [True]

    def opened(key: str, byte_range: Any = None) -> Any:
        if is_away[0] and key.endswith("offset.wm" if level == "commit" else ".log"):
            raise StoreUnavailable(f"{key}: the store is away")
        return open_object(key, byte_range)

    monkeypatch.setattr(archive.store, "open", opened)

    async def read() -> None:
        with serving(archive.store, archive.keys) as served:
            assert (await fetch(served, "t", 0)).error is ErrorCode.kafka_storage_error
            is_away[0] = False
            assert await offsets(served) == list(range(30))

    run(read)


def test_epochs_that_no_leader_had_have_no_end(archive: MadeArchive) -> None:
    """As a broker answers: epoch and offset -1."""

    async def read() -> None:
        with serving(archive.store, archive.keys) as served:
            found = await end_of_epoch(served, 9)
            assert (found["leader_epoch"], found["end_offset"]) == (-1, -1)
            assert (await end_of_epoch(served, 4))["end_offset"] == 30

    run(read)


def test_times_lead_to_the_first_record_with_them(archive: MadeArchive) -> None:
    """Offset and timestamp; none beyond the last; the greatest of all for -3."""

    async def read() -> None:
        with serving(archive.store, archive.keys) as served:
            found = await list_offset(served, "t", 1015)
            assert (found["offset"], found["timestamp"], found["leader_epoch"]) == (15, 1015, 4)
            assert (await list_offset(served, "t", 1030))["offset"] == -1
            assert (await list_offset(served, "t", -3))["offset"] == 29
            assert [(await list_offset(served, "t", at))["offset"] for at in (-1, -2, -4)] == [30, 0, 0]

    run(read)


def test_metadata_of_all_topics_reads_no_partition(tmp_path: Path) -> None:
    """Names of directories and topic ids suffice; a named topic has the epochs of its commits."""
    archive = MadeArchive(tmp_path / "archive")
    for topic in ("a", "b"):
        for number in range(3):
            archive.put_segment(topic, 0, batches(*steps(0, 20), epoch=7), partition=number)
            archive.commit(topic, 20, partition=number, epochs=((7, 0),))
        archive.put_incarnations(topic, "AAAAAAAAAAAAAAAAAAAAAQ")
    store = AskedStore(archive.store)

    async def read() -> None:
        with serving(store, archive.keys, refresh_seconds=3600) as served:
            values = await call(served, Api.METADATA, metadata_of(None))
            assert [(each["name"], len(each["partitions"])) for each in values["topics"]] == [("a", 3), ("b", 3)]
            assert sorted(store.opened) == [archive.keys.incarnations(topic) for topic in ("a", "b")]
            (topic,) = (await call(served, Api.METADATA, metadata_of(["a"])))["topics"]
            assert {each["leader_epoch"] for each in topic["partitions"]} == {7}
            assert len(store.opened) == 2 + 3  # three commits

    run(read)


def test_metadata_of_all_topics_has_the_epochs_of_partitions_in_use(archive: MadeArchive) -> None:
    """A consumer that subscribes to a pattern sends no other Metadata, and would not notice an election."""

    async def read() -> None:
        with serving(archive.store, archive.keys, refresh_seconds=3600) as served:

            async def epoch() -> int:
                (topic,) = (await call(served, Api.METADATA, metadata_of(None)))["topics"]
                found: int = topic["partitions"][0]["leader_epoch"]
                return found

            assert await epoch() == -1
            await fetch(served, "t", 0)
            assert await epoch() == 4
            archive.commit("t", 30, highest_base=20, epochs=((4, 0),), epoch=6)
            await settled(served)
            assert await epoch() == 6

    run(read)


def test_metadata_of_all_topics_leaves_out_an_epoch_that_is_old(
    archive: MadeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process can serve the partition by now: a client that has its later epoch would ignore the answer."""
    now = [100.0]
    monkeypatch.setattr(partitions, "monotonic", lambda: now[0])

    async def read() -> None:
        with serving(archive.store, archive.keys, refresh_seconds=10.0) as served:
            await fetch(served, "t", 0)
            now[0] += 21.0
            (topic,) = (await call(served, Api.METADATA, metadata_of(None)))["topics"]
            assert topic["partitions"][0]["leader_epoch"] == -1

    run(read)


def test_unknown_topics_and_partitions_have_the_errors_of_a_broker(archive: MadeArchive) -> None:
    """In Metadata, ListOffsets and Fetch."""

    async def read() -> None:
        with serving(archive.store, archive.keys) as served:
            (topic,) = (await call(served, Api.METADATA, metadata_of(["other"])))["topics"]
            assert topic["error_code"] is ErrorCode.unknown_topic_or_partition
            assert (await fetch(served, "other", 0)).error is ErrorCode.unknown_topic_or_partition
            assert (await fetch(served, "t", 0, partition=5)).error is ErrorCode.unknown_topic_or_partition
            found = await list_offset(served, "t", -1, partition=5)
            assert found["error_code"] is ErrorCode.unknown_topic_or_partition

    run(read)
