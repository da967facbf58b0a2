"""A partition whose commit is missing or damaged: each client gets an error of it, and the log has it once."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from tests.endpoint.clients import Served, fetch, list_offset, read_all, run, serving
from tests.made_archive import MadeArchive, batches

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
