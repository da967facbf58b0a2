"""A partition that cannot be opened for a reason that lasts: each client gets its error, and the log has it once."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from tests.endpoint.clients import Served, call, fetch, fetch_body, list_offset, read_all, run, serving
from tests.endpoint.requests.test_changes import end_of_epoch, metadata_of
from tests.made_archive import MadeArchive, batches
from ts_common.archive.object_keys import SegmentName
from ts_common.json_objects import MAX_INT64
from ts_endpoint.contract import Session
from ts_endpoint.protocol.versions import Api
from ts_endpoint.topics import partitions

LATEST, EARLIEST = -1, -2


def lines(logs: Any, *events: str) -> list[tuple[str, object]]:
    """Return the events of a partition, by default all, each with its code."""
    return [(each["event"], each.get("code")) for each in logs if not events or each["event"] in events]


async def answers(served: Served, partition: int = 0) -> tuple[Any, ...]:
    """Return what Fetch and ListOffsets answer for the start, the end and a time."""
    ends = [await list_offset(served, "t", each, partition=partition) for each in (EARLIEST, LATEST, 5)]
    return (await fetch(served, "t", 0, partition=partition, max_wait=0.0)).error, *(
        each.get("error_code", ErrorCode.none) or each["offset"] for each in ends
    )


# A consumer that begins at the start or at the end gets the error from its first Fetch; a search has no such place.
LOST = (ErrorCode.corrupt_message, 0, 1, ErrorCode.corrupt_message)


@pytest.mark.parametrize("code", ["no-commit", "commit-damaged"])
def test_a_partition_without_a_usable_commit_is_an_error_of_it_alone(tmp_path: Path, code: str) -> None:
    """Also after many requests, the log has one line; the other partition is read."""
    archive = MadeArchive(tmp_path / "archive")
    for partition in range(2):
        archive.put_segment("t", 0, batches((0, 10)), partition=partition)
    archive.commit("t", 10)
    archive.age(16 * 60)
    if code == "commit-damaged":
        archive.store.put(archive.partition("t", 1).commit, b"what")

    async def read() -> int:
        with serving(archive.store, archive.keys) as served:
            for _ in range(3):
                assert await answers(served, 1) == LOST
            return len(await read_all(served, "t"))

    with capture_logs() as logs:
        assert run(read) == 10
    assert lines(logs) == [("partition_lost", code)]


def newer_commit(archive: MadeArchive) -> None:
    archive.store.put(archive.partition("t").commit, b"0" * 20 + b'\n{"version":3}\n')


def newer_log_start(archive: MadeArchive) -> None:
    archive.store.put(archive.partition("t").log_start, b"0" * 20 + b'\n{"version":4}\n')


def newer_metadata(archive: MadeArchive) -> None:
    key = archive.partition("t").segment(SegmentName(10))
    archive.store.put(key, batches((10, 20)) * 2, metadata={"ts-end": "20", "ts-version": "2"})


def damaged_metadata(archive: MadeArchive) -> None:
    key = archive.partition("t").segment(SegmentName(10))
    archive.store.put(key, batches((10, 20)) * 2, metadata={"ts-end": "many"})


def no_batches(archive: MadeArchive) -> None:
    archive.store.put(archive.partition("t").segment(SegmentName(10)), b"what" * 50)


def newer_incarnations(archive: MadeArchive) -> None:
    archive.store.put(archive.keys.incarnations("t"), b'{"version":2,"lives":[]}')


def damaged_incarnations(archive: MadeArchive) -> None:
    archive.store.put(archive.keys.incarnations("t"), b"what")


OF_PARTITIONS = [
    (newer_commit, "newer-format"),
    (newer_log_start, "newer-format"),
    (newer_metadata, "newer-format"),
    (damaged_metadata, "segment-damaged"),
    (no_batches, "segment-damaged"),
]
OF_TOPICS = [(newer_incarnations, "newer-format"), (damaged_incarnations, "incarnations-damaged")]


@pytest.mark.parametrize(
    ("event", "is_known", "spoil", "code"),
    [
        *(("partition_lost", is_known, *each) for is_known in (False, True) for each in OF_PARTITIONS),
        *(("topic_lost", False, *each) for each in OF_TOPICS),
    ],
)
def test_e07_what_cannot_be_opened_is_an_error_of_fetch_alone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    event: str,
    is_known: bool,
    spoil: Callable[[MadeArchive], None],
    code: str,
) -> None:
    """Also if it was read before. Clients repeat what precedes their Fetch in silence, so that succeeds."""
    monkeypatch.setattr(partitions, "LISTING_SECONDS", 0.0)
    archive = MadeArchive(tmp_path / "archive")
    archive.put_segment("t", 0, batches((0, 10)))
    archive.put_segment("t", 10, batches((10, 20)))
    archive.commit("t", 20, highest_base=10)

    async def read() -> None:
        with serving(archive.store, archive.keys) as served:
            if is_known:
                assert len(await read_all(served, "t")) == 20
            spoil(archive)
            (topic,) = (await call(served, Api.METADATA, metadata_of(["t"])))["topics"]
            assert [each["partition_index"] for each in topic["partitions"]] == [0]
            assert "error_code" not in topic
            if is_known:  # the former snapshot is served while it is renewed
                await list_offset(served, "t", LATEST)
            for _ in range(3):
                error, start, end, searched = await answers(served)
                assert (error, start, searched) == (ErrorCode.corrupt_message, 0, ErrorCode.corrupt_message)
                assert end > start  # a reader of both would otherwise read nothing, without an error
            validated = await end_of_epoch(served, 0)
            assert (validated.get("error_code"), validated["end_offset"]) == (None, MAX_INT64)
            assert served.archive.count_lost() == 1

    with capture_logs() as logs:
        run(read)
    assert lines(logs, event) == [(event, code)]
    assert lines(logs, "offsets_not_listed", "epoch_not_read", "topic_not_described", "partition_not_refreshed") == []


def test_the_end_for_committed_reads_is_listed_despite_damage(tmp_path: Path) -> None:
    """Segments have it if the commit lacks it. A client that begins there gets the error from its Fetch."""
    archive = MadeArchive(tmp_path / "archive")
    archive.put_segment("t", 0, batches((0, 10)), body=b"what" * 50)
    archive.commit("t", 10)

    async def read() -> tuple[ErrorCode, int]:
        with serving(archive.store, archive.keys) as served:
            found = await list_offset(served, "t", LATEST, committed=True)
            assert "error_code" not in found
            return (await fetch(served, "t", found["offset"], committed=True, max_wait=0.0)).error, found["offset"]

    assert run(read) == (ErrorCode.corrupt_message, 10)


def test_kgo_gets_an_error_that_it_reports(tmp_path: Path) -> None:
    """By its table of errors it repeats a Fetch after CORRUPT_MESSAGE, in silence."""
    archive = MadeArchive(tmp_path / "archive")
    archive.put_segment("t", 0, batches((0, 10)))
    archive.store.put(archive.partition("t").commit, b"what")

    async def read() -> list[ErrorCode]:
        with serving(archive.store, archive.keys) as served:
            sessions = [Session("test", software=each) for each in ("kgo", "apache-kafka-java")]
            replies = [await call(served, Api.FETCH, fetch_body("t", {0: 0}), each) for each in sessions]
            return [each["responses"][0]["partitions"][0]["error_code"] for each in replies]

    assert run(read) == [ErrorCode.invalid_record, ErrorCode.corrupt_message]


def test_a_partition_that_does_not_end_its_beginning_is_lost(tmp_path: Path) -> None:
    """It is empty while its first upload may be under way; a client that waits at its end gets the error too."""
    archive = MadeArchive(tmp_path / "archive")
    archive.put_segment("t", 0, batches((0, 10)))

    async def read() -> None:
        with serving(archive.store, archive.keys) as served:
            for _ in range(2):
                assert await answers(served) == (ErrorCode.none, 0, 0, -1)
            waiting = asyncio.ensure_future(fetch(served, "t", 0, max_wait=30.0))
            archive.age(16 * 60)
            assert (await waiting).error is ErrorCode.corrupt_message
            assert await answers(served) == LOST
            archive.commit("t", 10)
            assert len(await read_all(served, "t")) == 10

    with capture_logs() as logs:
        run(read)
    assert lines(logs) == [
        ("partition_view", None),
        ("partition_lost", "no-commit"),
        ("partition_readable_again", None),
    ]


def test_a_partition_that_had_a_commit_does_not_begin_again(tmp_path: Path) -> None:
    """Its segments are young, but clients have positions in them: an empty partition would reset these."""
    archive = MadeArchive(tmp_path / "archive")
    archive.put_segment("t", 0, batches((0, 10)))
    archive.commit("t", 10)

    async def read() -> None:
        with serving(archive.store, archive.keys) as served:
            assert len(await read_all(served, "t")) == 10
            archive.store.delete([archive.partition("t").commit])
            assert await list_offset(served, "t", EARLIEST)
            for _ in range(2):
                assert await answers(served) == LOST
            assert (await fetch(served, "t", 10)).error is ErrorCode.corrupt_message

    with capture_logs() as logs:
        run(read)
    assert lines(logs) == [("partition_lost", "no-commit")]
