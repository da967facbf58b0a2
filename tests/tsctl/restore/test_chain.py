"""The chain of whole batches that a restore writes."""

from collections.abc import Iterable, Iterator

import pytest

from tests.common.log_format.build import DATA, DELETE_HORIZON, batch, message, record
from tests.made_archive import batches, steps
from ts_common.errors import CorruptData
from ts_common.log_format.framing import batch_crc, crc_start
from tsctl.restore.chain import clean, read_batches, united


def chained(*logs: bytes, start: int, end: int, is_first: bool = True) -> list[tuple[int, int, int]]:
    """Return (base offset, last offset, leader epoch in the bytes) of each batch of a chain."""
    damage: list[str] = []
    found = []
    for header, data in clean(united([read(log, damage) for log in logs]), start, end, is_first=is_first):
        assert batch_crc(header.magic, data[crc_start(header.magic) :]) == header.crc
        epoch = int.from_bytes(data[12:16], "big", signed=True)
        found.append((header.base_offset, header.last_offset, epoch))
    assert not damage
    return found


def read(log: bytes, damage: list[str]) -> Iterator:  # type: ignore[type-arg]
    return read_batches(pieces(log), len(log), damage.append)


def pieces(log: bytes, size: int = 100) -> Iterable[bytes]:
    return (log[at : at + size] for at in range(0, len(log), size))


def test_batches_outside_of_a_range_are_left_out_whole_and_epochs_become_0() -> None:
    """A copy that begins too early or has a dead tail gives its other batches, with right CRCs."""
    log = batches(*steps(100, 200), epoch=7)
    assert chained(log, start=120, end=150, is_first=False) == [(120, 129, 0), (130, 139, 0), (140, 149, 0)]


def test_a_chain_may_begin_inside_its_first_batch_only() -> None:
    """Records below the log start were deleted; later a batch across a bound is of another log."""
    log = batches(*steps(100, 130))
    assert chained(log, start=105, end=130)[0] == (100, 109, 0)
    for start, end, is_first in ((105, 130, False), (100, 125, True)):
        with pytest.raises(CorruptData, match="batches are expected to end"):
            chained(log, start=start, end=end, is_first=is_first)


def test_messages_of_magic_0_and_1_keep_all_bytes() -> None:
    """Where magic 2 has its leader epoch they have their CRC."""
    log = message(1, 5, b"v") + message(0, 6, b"w")
    damage: list[str] = []
    found = b"".join(data for _, data in clean(read(log, damage), 0, 10, is_first=True))
    assert (found, damage) == (log, [])


def test_compacted_copies_are_united() -> None:
    """Each copy lacks a batch that the other one has; of one batch each lacks a record, and a header was rewritten."""
    left = batches((0, 10)) + batch(20, [record(3, b"a"), record(5, b"b", timestamp_delta=7)], last_offset_delta=9)
    third = [record(3, b"a", timestamp_delta=-400), record(9, b"c", headers=[(b"h", None)])]
    right = batches((10, 20)) + batch(20, third, last_offset_delta=9, base_timestamp=1400, attributes=DELETE_HORIZON)
    assert chained(left, right, start=0, end=30) == [(0, 9, 0), (10, 19, 0), (20, 29, 0)]
    (*_, (header, data)) = united([read(log, []) for log in (left, right)])
    last = record(9, b"c", headers=[(b"h", None)], timestamp_delta=400)
    bodies = [record(3, b"a"), record(5, b"b", timestamp_delta=7), last]
    assert (header.record_count, bytes(data[61:])) == (3, b"".join(bodies))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_copy_that_has_all_records_is_kept_with_its_compression(codec: str) -> None:
    """Its bytes are the broker's; a copy that lacks some of its records adds nothing."""
    log = (DATA / f"java-{codec}.log").read_bytes()
    (header, whole), *_ = read(log, [])
    few = batch(header.base_offset, [], last_offset_delta=header.last_offset - header.base_offset)
    (_, found), *_ = united([read(few, []), read(log, [])])
    assert bytes(found) == bytes(whole)


def test_a_damaged_batch_is_left_out_and_reported() -> None:
    """A batch with a wrong CRC, and one that repeats offsets."""
    good = batches((0, 10))
    bad = bytearray(batches((10, 20)))
    bad[-1] ^= 1
    log, damage = good + bytes(bad) + batches((20, 30)) + batches((5, 15)), list[str]()
    assert [header.base_offset for header, _ in read(log, damage)] == [0, 20]
    assert ["wrong CRC" in damage[0], "reach 29 already" in damage[1]] == [True, True]


def test_a_segment_that_ends_early_is_corrupt() -> None:
    """The store sent fewer bytes than the listing has."""
    log = batches((0, 10))
    with pytest.raises(CorruptData, match="ends at byte"):
        list(read_batches([log[:-5]], len(log), lambda _: None))
