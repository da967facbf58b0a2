"""Small objects that would need much memory: they cost their own partition an error, and nothing else."""

import asyncio
from pathlib import Path

import cramjam
import pytest
import structlog
from kio.schema.errors import ErrorCode

from tests.common.log_format.build import batch, record
from tests.endpoint.clients import fetch, read_all, run, serving
from tests.made_archive import MadeArchive, batches
from ts_endpoint.data import reads
from ts_endpoint.data.reads import Reads
from ts_endpoint.records.rewriting import Rewritten

ZSTD = 4
MIB = 1 << 20


def put_copies(archive: MadeArchive, log: bytes, *, partition: int, end: int) -> None:
    """Put two copies that compaction left incomplete, so that batches are decoded."""
    archive.put_segment("t", 0, log, partition=partition, end=end)
    archive.put_segment("t", 0, log, partition=partition, end=end, variant=True)
    archive.commit("t", end, partition=partition)


def test_a_batch_that_decompresses_to_very_much_is_not_decoded(tmp_path: Path) -> None:
    """1 KB of zstd with 40 MiB: the client gets an error with its reason in the log, and the other partition."""
    bomb = bytes(cramjam.zstd.compress(record(0, b"k", bytes(40 * MIB))))
    archive = MadeArchive(tmp_path)
    put_copies(archive, batch(0, body=bomb, count=1, attributes=ZSTD), partition=0, end=20)
    put_copies(archive, batches((0, 8), (10, 20)), partition=1, end=20)

    async def read() -> tuple[ErrorCode, list[int]]:
        with serving(archive.store, archive.keys) as served:
            refused = await fetch(served, "t", 0)
            return refused.error, [row["offset"] for row in await read_all(served, "t", partition=1)]

    with structlog.testing.capture_logs() as logs:
        error, offsets = run(read)

    assert len(bomb) < 10_000
    assert error is ErrorCode.message_too_large
    assert offsets == [*range(8), *range(10, 20)]
    (line,) = [each for each in logs if each["event"] == "fetch_failed"]
    assert "the endpoint decodes at most 16777216: read it with `tsctl cat` or Spark" in line["reason"]


def test_rewritten_batches_have_a_limit_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One record can exceed what a client wants; the batches that were not used for longest leave the memory."""
    monkeypatch.setattr(reads, "_KEPT_BYTES", 3000)
    archive = MadeArchive(tmp_path)
    for partition in range(10):
        put_copies(archive, batch(0, [record(0, b"k", bytes(1000))]), partition=partition, end=20)

    def kept(found: Reads) -> int:
        return sum(len(each.data) for each in found._kept.values() if isinstance(each, Rewritten))

    async def read() -> tuple[int, int]:
        with serving(archive.store, archive.keys, refresh_seconds=3600) as served:
            answers = await asyncio.gather(*(fetch(served, "t", 0, partition=number) for number in range(10)))
            return min(len(each.records) for each in answers), kept(served.reads)

    least, held = run(read)
    assert least > 1000
    assert 2000 < held <= 3000
