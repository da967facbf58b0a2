"""Chunks have the bytes of a segment, whole batches each, and nothing that is damaged."""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from tests.common.log_format.build import batch, message, record
from tests.common.log_format.legacy_messages import GZIP, wrapper
from tests.endpoint.clients import batches_of
from tests.made_archive import MadeArchive, batches, steps
from tests.made_views import only_copy
from ts_common.errors import BatchTooLarge, CorruptData
from ts_endpoint.data import chunks
from ts_endpoint.data.chunks import Chunk, ChunkReader

LIMIT = 1 << 20


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeArchive:
    """An archive whose chunks are small."""
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 600)
    monkeypatch.setattr(chunks, "FIRST_BYTES", 300)
    monkeypatch.setattr(chunks, "FIRST_REQUEST_BYTES", 900)
    return MadeArchive(tmp_path / "archive")


def read(archive: MadeArchive, position: int = 0, offset: int = 0, limit: int = LIMIT) -> list[Chunk]:
    """Return all chunks of the only segment."""
    reader = ChunkReader(archive.store, only_copy(archive), position, offset, limit)
    try:
        return all_of(reader)
    finally:
        reader.close()


def all_of(reader: ChunkReader) -> list[Chunk]:
    """Return the chunks that a reader still has."""
    found = []
    while (chunk := reader.read()) is not None:
        found.append(chunk)
    return found


def position_of(log: bytes, number: int) -> int:
    """Return the position of a batch."""
    return sum(header.size_in_bytes for header, _ in islice(batches_of(log), number))


def data_of(found: list[Chunk]) -> bytes:
    """Return the bytes of chunks."""
    return b"".join(each.data for each in found)


def test_chunks_have_all_bytes_once_and_follow_each_other(archive: MadeArchive) -> None:
    """Each begins with a batch, and covers the offsets after the one before."""
    log = batches(*steps(0, 100))
    archive.put_segment("t", 0, log)
    archive.commit("t", 100)

    found = read(archive)

    assert len(found) > 2
    assert data_of(found) == log
    assert [each.covers_from for each in found] == [0, *[each.covers_to for each in found[:-1]]]
    assert found[-1].covers_to == 100
    assert np.concatenate([each.bases for each in found]).tolist() == list(range(0, 100, 10))


def test_a_batch_larger_than_a_chunk_is_a_chunk(archive: MadeArchive) -> None:
    """Nothing is cut; a batch above the limit is an error that is no damage."""
    log = batches((0, 3), (3, 90), (90, 95), value=b"long value")
    archive.put_segment("t", 0, log)
    archive.commit("t", 95)

    assert data_of(read(archive)) == log
    with pytest.raises(BatchTooLarge):
        read(archive, limit=800)


def test_messages_of_magic_0_and_1_are_listed_by_their_headers(archive: MadeArchive) -> None:
    """Also compressed ones, between batches of magic 2."""
    log = (
        message(0, 0, b"v")
        + message(1, 1, b"v")
        + wrapper(1, GZIP, [(0, 5, b"k", b"a"), (1, 6, b"k", b"b")], 3)
        + batches((4, 8))
    )
    archive.put_segment("t", 0, log)
    archive.commit("t", 8)

    found = read(archive)

    assert data_of(found) == log
    assert np.concatenate([each.lasts for each in found]).tolist() == [0, 1, 3, 7]


def test_a_position_of_the_index_is_used_and_a_wrong_one_costs_only_time(archive: MadeArchive) -> None:
    """A position inside a batch, or after the offset, leads to a read from the start."""
    log = batches(*steps(0, 100))
    archive.put_segment("t", 0, log)
    archive.commit("t", 100)
    at = position_of(log, 4)

    right, inside, beyond = (read(archive, position, 45) for position in (at, at + 7, position_of(log, 6)))

    assert right[0].covers_from == 40
    assert data_of(right) == log[at:]
    assert data_of(inside) == data_of(beyond) == log


@pytest.mark.parametrize("tail", [b"", bytes(200)], ids=["nothing", "zeros"])
def test_a_compacted_tail_and_zeros_are_no_damage(archive: MadeArchive, tail: bytes) -> None:
    """The coverage can end after the last batch, and a preallocated file with zeros."""
    log = batches((0, 5), (20, 25))
    archive.put_segment("t", 0, log + tail, end=40)
    archive.commit("t", 40)

    found = read(archive)

    assert data_of(found) == log
    if not tail:
        assert found[-1].covers_to == 40


DAMAGE: dict[str, Callable[[bytes, int, int], bytes]] = {  # of the batch from 30 on
    "byte": lambda log, at, _: log[: at + 70] + b"\xff" + log[at + 71 :],
    "base offset": lambda log, at, _: log[: at + 7] + b"\x1f" + log[at + 8 :],
    "leader epoch": lambda log, at, _: log[: at + 15] + b"\x09" + log[at + 16 :],
    "cut short": lambda log, at, _: log[: at + 20],
    "cut at a batch": lambda log, at, _: log[:at],
    "cut out": lambda log, at, end: log[:at] + log[end:],
}


@pytest.mark.parametrize("how", DAMAGE)
def test_damage_ends_the_chunks_before_the_batch(archive: MadeArchive, how: str) -> None:
    """No byte of a damaged batch is in a chunk, and all batches before it are."""
    log = batches(*steps(0, 100))
    archive.put_segment("t", 0, log, body=DAMAGE[how](log, position_of(log, 3), position_of(log, 4)))
    archive.commit("t", 100)
    reader = ChunkReader(archive.store, only_copy(archive), 0, 0, LIMIT)
    found: list[Chunk] = []
    with pytest.raises(CorruptData):
        while (chunk := reader.read()) is not None:
            found.append(chunk)
    reader.close()

    assert all(int(each.lasts[-1]) < 30 for each in found)


def test_a_shorter_object_than_the_listed_one_is_damage(archive: MadeArchive) -> None:
    """The listing has the size that the object must have."""
    log = batches(*steps(0, 100))
    archive.put_segment("t", 0, log)
    archive.commit("t", 100)
    copy = only_copy(archive)
    longer = replace(copy, segment=replace(copy.segment, size=len(log) + 500))
    reader = ChunkReader(archive.store, longer, 0, 0, LIMIT)

    with pytest.raises(CorruptData, match="its listed size"):
        all_of(reader)
    reader.close()


def test_an_empty_batch_keeps_its_place(archive: MadeArchive) -> None:
    """The log cleaner leaves batches without records."""
    log = batch(0, [], last_offset_delta=9) + batch(10, [record(0, b"k", b"v")])
    archive.put_segment("t", 0, log, end=11)
    archive.commit("t", 11)

    (found,) = read(archive)

    assert found.lasts.tolist() == [9, 10]
