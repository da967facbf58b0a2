"""Requests that make the endpoint read a commit again."""

from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.endpoint.clients import fetch, run, serving
from tests.made_archive import MadeArchive, batches, steps
from ts_common.archive.catalog import PartitionCatalog
from ts_common.archive.former_places import read_with_former
from ts_common.archive.object_keys import PartitionKeys
from ts_common.store.contract import ObjectStore
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


def test_a_partition_that_readers_lose_is_not_listed_for_each_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each one fails; the partition is read again after a refresh interval."""
    archive = MadeArchive(tmp_path)
    archive.put_segment("t", 0, batches(*steps(0, 50)))
    archive.commit("t", 50)
    archive.store.put(archive.partition("t").log_start, b"what is this")
    now, listed = [1000.0], list[str]()

    def noted(store: ObjectStore, keys: PartitionKeys, found: Any, **named: Any) -> PartitionCatalog:
        listed.append(keys.prefix)
        return read_with_former(store, keys, found, **named)

    monkeypatch.setattr(partitions, "monotonic", lambda: now[0])
    monkeypatch.setattr(partitions, "read_with_former", noted)

    async def read() -> None:
        with serving(archive.store, archive.keys, refresh_seconds=5.0) as served:
            for _ in range(3):
                assert (await fetch(served, "t", 0)).error is not ErrorCode.none
            assert len(listed) == 1
            now[0] += 6
            assert (await fetch(served, "t", 0)).error is not ErrorCode.none
            assert len(listed) == 2
            archive.commit("t", 50, epoch=1)
            now[0] += 6
            assert (await fetch(served, "t", 0)).error is ErrorCode.none

    run(read)
