"""Requests that make the endpoint read a commit again."""

from pathlib import Path

import pytest

from tests.endpoint.clients import fetch, run, serving
from tests.made_archive import MadeArchive, batches, steps
from ts_endpoint.topics import partitions


def test_clients_that_fetch_beyond_the_end_read_a_commit_a_few_times_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first reads follow at once, for a client that has seen a later commit; further ones wait for their turn."""
    archive = MadeArchive(tmp_path)
    archive.put_segment("t", 0, batches(*steps(0, 50)))
    archive.commit("t", 50)
    now, waits = [1000.0], list[float]()

    async def pause(seconds: float) -> None:
        waits.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(partitions, "monotonic", lambda: now[0])
    monkeypatch.setattr(partitions, "_pause", pause)

    async def read() -> None:
        with serving(archive.store, archive.keys, refresh_seconds=3600) as served:
            await fetch(served, "t", 0)
            for _ in range(4):
                await fetch(served, "t", 1 << 40)
            assert waits == []
            for _ in range(50):
                await fetch(served, "t", 1 << 40)

    run(read)
    assert sum(waits) == pytest.approx(20, abs=1)  # 109 reads at 5 a second, after 10 at once
