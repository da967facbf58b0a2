"""Segments that overlap, disagree, are damaged, or lead astray: each offset once, in order, and nothing dead."""

import threading

import cramjam
import pytest

from tests.common.log_format.build import batch, message, record
from tests.made_archive import batches, steps
from tests.matrix import cases
from tests.spark.archives import Archive
from tests.spark.made_segments import from_offset, index
from ts_common.archive.catalog import StoredSegment
from ts_common.archive.commit import Commit, encode_log_start
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.erased_offsets import NOTHING_ERASED
from ts_common.archive.fetch import ResumableReader
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.plan import ReadRange
from ts_common.archive.segment_metadata import SegmentMetadata
from ts_common.errors import CorruptData, ObjectNotFound
from ts_reader.decode.columns import Projection
from ts_reader.query.read_split import read_split
from ts_reader.reading.segment_reader import SegmentReader


def test_u04_segments_of_two_leaders_with_other_boundaries_read_once(archive: Archive) -> None:
    """Shipped [0,100) and [100,200); the new leader holds [0,90) and [90,250)."""
    for start, end in ((0, 100), (100, 200), (90, 250)):
        archive.put_segment("t", start, batches(*steps(start, end)))
    archive.commit("t", 250, highest_base=100)
    assert archive.offsets(subscribe="t") == list(range(250))
    assert archive.offsets(**from_offset(95, 245)) == list(range(95, 245))


def test_r05_copies_compacted_differently_are_united(archive: Archive) -> None:
    """A record that one copy lacks can be in another; a record of both is returned once, whatever the batches."""
    archive.put_segment("t", 0, batches((0, 20), (30, 45), (70, 100)), end=100)
    archive.put_segment("t", 0, batches((10, 35), (40, 60)), end=100, variant=True)
    archive.put_segment("t", 50, batches((55, 57), (90, 120)), end=120)
    archive.commit("t", 120, highest_base=50)
    rows = archive.rows(subscribe="t")
    expected = [*range(57), 57, 58, 59, *range(70, 120)]
    assert [row["offset"] for row in rows] == expected
    assert [row["key"] for row in rows] == [b"%d" % offset for offset in expected]
    plan = archive.plan(subscribe="t")
    assert max(len(part.copies) for split in plan.splits for part in split.ranges) == 3
    narrow = [b.to_pydict() for split in plan.splits for b in read_split(archive.store, split, ["key"])]
    assert [key for columns in narrow for key in columns["key"]] == [b"%d" % offset for offset in expected]
    assert {name for columns in narrow for name in columns} == {"key"}


def test_r05_a_dead_tail_is_not_shown(archive: Archive) -> None:
    """After an unclean election the commit's epochs show which copy is live, also under the same base name."""
    archive.put_segment("t", 0, batches(*steps(0, 60)))
    archive.put_segment("t", 60, batches(*steps(60, 130), value=b"dead"))
    archive.put_segment("t", 60, batches(*steps(60, 80)) + batches(*steps(80, 110), epoch=2), variant=True)
    archive.commit("t", 110, epochs=((0, 0), (2, 80)), highest_base=60)
    rows = archive.rows(subscribe="t")
    assert [row["offset"] for row in rows] == list(range(110))
    assert [row["value"] for row in rows[80:]] == [b"v"] * 30


def test_r05_a_foreign_commit_has_its_epochs_from_the_copies(archive: Archive) -> None:
    """Epochs never fall as offsets rise: a batch of a lower epoch than one at a lower offset is dead."""
    archive.put_segment("t", 0, batches(*steps(0, 60)) + batches(*steps(60, 100), value=b"dead"))
    archive.put_segment("t", 60, batches(*steps(60, 90), epoch=1))
    archive.put_segment("t", 90, batches(*steps(90, 95), epoch=1))
    archive.store.put(archive.partition("t").commit, b"00000000000000000060")
    rows = archive.rows(subscribe="t")
    assert [row["offset"] for row in rows] == list(range(90))
    assert {row["value"] for row in rows} == {b"v"}


def test_coverage_may_end_beyond_the_last_batch(archive: Archive) -> None:
    """Compaction removed the tail; the object's CRC confirms it, also for a read that starts in its middle."""
    log = batches(*steps(0, 50))
    archive.put_segment("t", 0, log, end=100, index=index((29, len(log) // 5 * 2)))
    archive.commit("t", 100)
    assert archive.offsets(subscribe="t") == list(range(50))
    assert archive.offsets(**from_offset(35)) == list(range(35, 50))


def test_r01_a_segment_that_compaction_emptied_is_no_shortfall(archive: Archive) -> None:
    """No byte, no batch, no epoch; its coverage is progress all the same."""
    keys = archive.partition("t")
    archive.store.put(keys.segment(SegmentName(10)), b"")
    copy = SegmentCopy(keys, StoredSegment(SegmentName(10), 0, frozenset()), SegmentMetadata(20, (), 0, None, None, 0))
    assert list(SegmentReader(archive.store, Projection(), erased=NOTHING_ERASED).read(copy, 10, 20)) == []


def test_r04_an_object_cut_at_a_batch_is_no_compacted_one(archive: Archive) -> None:
    """Its CRC is not the one in its metadata: an error that names object and position."""
    log = batches(*steps(0, 50))
    cut = log[: len(batches(*steps(0, 40)))]
    archive.put_segment("t", 0, log, end=100, body=cut, index=index((20, len(batches(*steps(0, 20))))))
    archive.commit("t", 100)
    with pytest.raises(CorruptData, match=r"prod/t-0/0{20}\.log in file:///.*: CRC-32C [0-9a-f]{8}; its metadata has"):
        archive.rows(subscribe="t")
    with pytest.raises(
        CorruptData, match=rf"its batches end at offset 40, position {len(cut)}; it covers .* up to 100"
    ):
        archive.rows(**from_offset(35))


@pytest.mark.parametrize("position", [7, 15, 21, 80, 300])
def test_r04_a_flipped_bit_is_named(archive: Archive, position: int) -> None:
    """Also in a base offset or a leader epoch, which no batch's CRC holds."""
    log = batches(*steps(0, 50))
    damaged = log[:position] + bytes([log[position] ^ 1]) + log[position + 1 :]
    archive.put_segment("t", 0, log, body=damaged)
    archive.commit("t", 50)
    with pytest.raises(CorruptData, match=r"prod/t-0/0{20}\.log in file:///"):
        archive.rows(subscribe="t")


def test_r04_garbage_behind_the_range_is_not_looked_at(archive: Archive) -> None:
    """A range that ends early needs no more than its batches and the next header."""
    log = batches(*steps(0, 50))
    archive.put_segment("t", 0, log, body=log[:-20] + bytes(20))
    archive.commit("t", 50)
    assert archive.offsets(**from_offset(0, 30)) == list(range(30))


def test_bytes_behind_the_range_are_not_fetched(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor those in front of it, where there is an index."""
    value = b"x" * 50_000
    log, front = batches(*steps(0, 200), value=value), len(batches(*steps(0, 100), value=value))
    archive.put_segment("t", 0, log, index=index((99, front)))
    archive.commit("t", 200)
    fetched = []
    read = ResumableReader.read

    def counted(self: ResumableReader, size: int) -> bytes:
        data = read(self, size)
        fetched.append(len(data))
        return data

    monkeypatch.setattr(ResumableReader, "read", counted)
    assert archive.offsets(**from_offset(105, 115)) == list(range(105, 115))
    assert sum(fetched) <= 2 << 20
    fetched.clear()
    assert archive.offsets(**from_offset(105)) == list(range(105, 200))
    assert sum(fetched) == len(log) - front


def test_a_long_range_is_fetched_ahead_on_a_thread(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte once, and the same rows; a short range is not worth a thread."""
    log = batches(*steps(0, 300), value=b"x" * 70_000)
    archive.put_segment("t", 0, log)
    archive.commit("t", 300)
    fetched: list[tuple[bool, int]] = []
    read = ResumableReader.read

    def noted(self: ResumableReader, size: int) -> bytes:
        data = read(self, size)
        fetched.append((threading.current_thread() is threading.main_thread(), len(data)))
        return data

    monkeypatch.setattr(ResumableReader, "read", noted)
    assert archive.offsets(subscribe="t") == list(range(300))
    assert sum(size for _, size in fetched) == len(log)
    assert not any(here for here, _ in fetched)
    fetched.clear()
    assert archive.offsets(**from_offset(0, 15)) == list(range(15))
    assert all(here for here, _ in fetched)


HONEST = len(batches(*steps(0, 30)))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(None, id="absent"),
        pytest.param(index((29, HONEST)), id="honest"),
        pytest.param(index((29, HONEST + 5)), id="inside a batch"),
        pytest.param(index((1, len(batches(*steps(0, 90))))), id="too far"),
        pytest.param(index((29, 1 << 30)), id="behind the end"),
        pytest.param(b"\xff" * 80, id="garbage"),
        pytest.param(b"", id="empty"),
    ],
)
@pytest.mark.parametrize("start", cases([1, 29, 30, 31, 65, 99], quick=[30, 65]))
def test_r08_an_index_costs_time_never_rows(archive: Archive, data: bytes | None, start: int) -> None:
    """Missing, damaged or lying."""
    archive.put_segment("t", 0, batches(*steps(0, 100)), index=data)
    archive.commit("t", 100)
    assert archive.offsets(**from_offset(start)) == list(range(start, 100))


def test_r11_a_segment_that_is_missing_after_planning_is_named(archive: Archive) -> None:
    """A plan stays valid while its objects are there; then it is a clear error, never a mix."""
    archive.put_segment("t", 0, batches((0, 10)))
    archive.commit("t", 10)
    (split,) = archive.plan(subscribe="t").splits
    archive.store.delete([archive.partition("t").prefix + "00000000000000000000.log"])
    with pytest.raises(ObjectNotFound, match=r"removed after the query was planned .*; plan it again"):
        list(read_split(archive.store, split, ["key"]))


def test_neighbours_are_packed_and_stay_in_order(archive: Archive) -> None:
    """A task costs more than reading a tiny segment; a partition's offsets stay together."""
    for base in range(0, 500, 10):
        archive.put_segment("t", base, batches((base, base + 10)))
    archive.commit("t", 500, highest_base=490)
    (split,) = archive.plan(subscribe="t").splits
    assert all(isinstance(part, ReadRange) for part in split.ranges)
    assert archive.offsets(subscribe="t") == list(range(500))


@pytest.mark.parametrize("start", cases(range(9), quick=[0, 2, 4, 7]))
def test_r06_old_formats_are_read_from_any_offset(archive: Archive, start: int) -> None:
    """An index entry has a wrapper's last offset, which may be above the requested offset."""
    inner = [message(1, offset, b"v%d" % (offset + 2), b"k", timestamp=1000 + offset) for offset in (0, 1, 3)]
    wrapper = message(1, 5, bytes(cramjam.gzip.compress(b"".join(inner))), attributes=1, timestamp=1003)
    old = message(0, 0, b"v0") + message(0, 1, b"v1")
    log = old + wrapper + batches((6, 9), epoch=1)
    archive.put_segment("t", 0, log, index=index((5, len(old)), (8, len(old + wrapper))))
    archive.commit("t", 9, epochs=((1, 6),))
    rows = [(row["offset"], row["timestampType"]) for row in archive.rows(**from_offset(start))]
    assert rows == [
        (offset, kind)
        for offset, kind in ((0, -1), (1, -1), (2, 0), (3, 0), (5, 0), (6, 0), (7, 0), (8, 0))
        if offset >= start
    ]


@pytest.mark.parametrize("moved", [8, 256], ids=["inside", "beyond"])
def test_r04_a_base_offset_that_ends_a_range_of_a_compacted_segment_early_is_corrupt(
    archive: Archive, moved: int
) -> None:
    """The batch's CRC does not cover it, and missing offsets may be compaction: the next batch decides."""
    log = batches((0, 10), (12, 20), (22, 30), (30, 50))
    at = len(batches((0, 10)))
    archive.put_segment("t", 0, log, body=log[:at] + (12 + moved).to_bytes(8, "big") + log[at + 8 :])
    archive.commit("t", 50)
    with pytest.raises(CorruptData, match="has base offset"):
        archive.offsets(subscribe="t", endingOffsets='{"t":{"0":15}}')


def test_a_range_that_ends_where_compaction_removed_records_is_read(archive: Archive) -> None:
    """Between two batches, behind the last one of the range, and in front of the segment's last one."""
    archive.put_segment("t", 0, batches((0, 10), (12, 20), (25, 30)))
    archive.commit("t", 30)
    for end in (11, 22, 27):
        expected = [*range(10), *range(12, 20), *range(25, 30)]
        bounds = {"endingOffsets": f'{{"t":{{"0":{end}}}}}'}
        assert archive.offsets(subscribe="t", **bounds) == [offset for offset in expected if offset < end]


@pytest.mark.parametrize("mode", ["FAILFAST", "DROPMALFORMED"])
def test_r04_a_transaction_that_a_flipped_bit_begins_ends_the_query(archive: Archive, mode: str) -> None:
    """If transactions are read from headers, each batch's CRC is checked."""
    before = batches(*steps(0, 20))
    log = before + batch(20, [record(offset) for offset in range(10)], producer_id=9) + batches((30, 50))
    place = len(before) + 22  # of the attributes; this bit marks a batch of a transaction
    flipped = log[:place] + bytes([log[place] ^ 0x10]) + log[place + 1 :]
    archive.store.put(archive.partition("t").segment(SegmentName(0)), flipped)
    archive.store.put(archive.partition("t").commit, b"%020d" % 0)
    with pytest.raises(CorruptData, match="wrong CRC in the batch"):
        archive.offsets(subscribe="t", mode=mode, **{"kafka.isolation.level": "read_committed"})


def test_r05_after_an_unclean_election_of_old_magic_the_dead_copy_may_be_shown(archive: Archive) -> None:
    """The documented limit: no epoch shows which copy is dead, and of two dense ones the longer counts.

    The agent logs and counts such an election.
    """
    old = [message(1, offset, b"lost") for offset in range(10)]
    new = [*old[:5], *(message(1, offset, b"new") for offset in range(5, 9))]
    archive.put_segment("t", 0, b"".join(old))
    archive.put_segment("t", 0, b"".join(new), variant=True)
    keys = archive.partition("t")
    archive.store.put(keys.log_start, encode_log_start(0))
    archive.store.put(keys.commit, Commit(0, 10, 4, EpochHistory(), 10, None, 1, 0, "nonce").encode())
    assert [row["value"] for row in archive.rows(subscribe="t")] == [b"lost"] * 10
