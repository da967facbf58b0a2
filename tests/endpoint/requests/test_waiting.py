"""What a Fetch without a wait, without least bytes or without bytes returns, as a broker answers."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.endpoint.clients import batches_of, fetch, run, serving
from tests.made_archive import MadeArchive, batches, steps
from ts_endpoint.requests import fetch as fetch_handler


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeArchive:
    """An archive with 50 records in batches of ten; loads are awaited for as long as a slow machine needs."""
    monkeypatch.setattr(fetch_handler, "LEAST_LOAD_SECONDS", 60.0)
    monkeypatch.setattr(fetch_handler, "_MOST_SECONDS", 3600.0)
    made = MadeArchive(tmp_path / "archive")
    made.put_segment("t", 0, batches(*steps(0, 50)))
    made.commit("t", 50, last_stable_offset=50)
    return made


@pytest.mark.parametrize(
    "options",
    [{"max_wait": 0.0}, {"min_bytes": 0}, {"most_bytes": 0}, {"max_wait": 0.0, "min_bytes": 0, "most_bytes": 0}, {}],
    ids=["no wait", "no least bytes", "no bytes", "nothing", "no room"],
)
def test_e02_the_first_fetch_has_records_and_at_most_its_room(archive: MadeArchive, options: dict[str, Any]) -> None:
    """Nothing is in memory yet. A broker reads before it waits, and returns at least one batch (KIP-74)."""

    async def read() -> list[int]:
        with serving(archive.store, archive.keys, room=1 << 40 if options else 0) as served:
            answer = await fetch(served, "t", 25, **options)
            return [header.base_offset for header, _ in batches_of(answer.records)]

    found = run(read)
    assert found[0] == 20
    assert (len(found) == 1) == ("most_bytes" in options or not options)


def test_a_client_that_never_waits_gets_the_error_of_a_commit(archive: MadeArchive) -> None:
    """The view cannot be opened: an empty answer would be repeated in silence for ever."""
    archive.store.put(archive.partition("t").commit, b"no commit")

    async def read() -> ErrorCode:
        with serving(archive.store, archive.keys) as served:
            return (await fetch(served, "t", 25, max_wait=0.0)).error

    assert run(read) is ErrorCode.corrupt_message


@pytest.mark.parametrize("committed", [False, True])
def test_a_waiting_fetch_is_answered_when_new_records_are_committed(archive: MadeArchive, committed: bool) -> None:
    """It does not wait until its longest wait, which is an hour here, and returns the new records."""

    async def read() -> list[int]:
        with serving(archive.store, archive.keys) as served:
            assert (await fetch(served, "t", 50, max_wait=0.0)).records == b""
            waiting = asyncio.ensure_future(fetch(served, "t", 50, max_wait=3600.0, committed=committed))
            await asyncio.sleep(0)
            archive.put_segment("t", 50, batches((50, 60)))
            archive.commit("t", 60, highest_base=50, last_stable_offset=60)
            answer = await asyncio.wait_for(waiting, 60)
            return [header.base_offset for header, _ in batches_of(answer.records)]

    assert run(read) == [50]


def test_few_bytes_are_answered_if_the_rest_is_of_a_later_segment(archive: MadeArchive) -> None:
    """As by a broker: a client that wants many bytes does not wait at the end of each segment, until there are some."""

    async def read() -> list[int]:
        with serving(archive.store, archive.keys) as served:
            wanted: dict[str, Any] = {"max_wait": 3600.0, "min_bytes": 1 << 20}
            waiting = asyncio.ensure_future(fetch(served, "t", 40, **wanted))
            await asyncio.sleep(0)
            archive.put_segment("t", 50, batches((50, 60)))
            archive.commit("t", 60, highest_base=50)
            answers = [
                await asyncio.wait_for(waiting, 60),
                await asyncio.wait_for(fetch(served, "t", 40, **wanted), 60),
            ]
            return [header.base_offset for each in answers for header, _ in batches_of(each.records)]

    assert run(read) == [40, 40]
