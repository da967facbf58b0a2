"""Rows of ranges as Arrow batches: copies that are merged, columns that are chosen, damage between rows."""

from typing import Any

import pyarrow as pa
import pytest

from tests.common.log_format.build import batch, record
from tests.made_archive import MadeArchive, batches
from tests.made_views import ranges_of, view_of
from ts_common.archive.erased_offsets import NOTHING_ERASED
from ts_common.archive.plan import with_spares
from ts_common.errors import BatchTooLarge, CorruptData
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.log_format.limits import BatchLimit
from ts_reader.decode.salvage import salvage_segment
from ts_reader.reading.damage_map import Corruption, DamageMap
from ts_reader.reading.rows import read_intact_rows, read_ranges, union


def table(*offsets: int, of: str = "") -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"offset": pa.array(offsets, pa.int64()), "of": pa.array([of] * len(offsets), pa.string())}
    )


def test_a_union_has_each_offset_once_in_order_whatever_the_batches() -> None:
    """Batches of the copies end at different offsets, and one copy ends before the other."""
    one = iter([table(0, 1, 5, of="one"), table(8, 9, of="one")])
    two = iter([table(1, 2, of="two"), table(), table(5, 6, 9, 12, 15, of="two")])
    merged = [row for rows in union([one, two], ["offset"]) for row in rows.to_pylist()]
    assert merged == [{"offset": offset} for offset in (0, 1, 2, 5, 6, 8, 9, 12, 15)]


def test_incomplete_copies_are_merged_and_only_the_named_columns_are_returned(archive: MadeArchive) -> None:
    """Each copy has a record that the other lacks; the column `offset`, which merges them, is not among the columns."""
    for present, variant in (((0, 1, 4), False), ((0, 3, 4), True)):
        log = b"".join(batch(offset, [record(0, b"%d" % offset)]) for offset in present)
        archive.put_segment("t", 0, log, variant=variant)
    archive.commit("t", 5)
    (part,) = ranges_of(view_of(archive))
    assert len(part.copies) == 2
    (rows,) = read_ranges(archive.store, [part], ["partition", "key"], erased=NOTHING_ERASED)
    assert rows.to_pylist() == [{"partition": 0, "key": key} for key in (b"0", b"1", b"3", b"4")]


def test_aborted_transactions_are_left_out_and_max_rows_bounds_a_batch(archive: MadeArchive) -> None:
    """Only transactional batches of that producer."""
    records = [record(delta) for delta in range(4)]
    aborted = batch(4, records, attributes=0x10, producer_id=7)
    archive.put_segment("t", 0, batch(0, records) + aborted + batch(8, records))
    archive.commit("t", 12)
    found = read_ranges(
        archive.store,
        ranges_of(view_of(archive)),
        ["offset"],
        [AbortedTransaction(7, 4, 8, 4)],
        erased=NOTHING_ERASED,
        max_rows=3,
    )
    sizes = [(rows.num_rows, rows.column("offset")[0].as_py()) for rows in found]
    assert [size for size, _ in sizes] == [3, 3, 2]
    assert [first for _, first in sizes] == [0, 3, 10]


def test_damage_is_an_error_or_a_corruption_between_the_rows(archive: MadeArchive) -> None:
    """A batch that is too large for the limit is an error in both cases."""
    log = batches((0, 5), (5, 10), (10, 15))
    size = len(batches((0, 5)))
    body = bytearray(log)
    body[size + 70] ^= 1
    archive.put_segment("t", 0, log, body=bytes(body))
    archive.commit("t", 15)
    view = view_of(archive)
    ranges = list(with_spares(ranges_of(view), view.copies, view.epochs))
    with pytest.raises(CorruptData, match=rf"t-0: .*\.log in .* position {size}.*\. Pass mode"):
        list(read_ranges(archive.store, ranges, ["offset"], erased=NOTHING_ERASED, way_out="Pass mode"))
    found = list(read_intact_rows(archive.store, ranges, ["key"], erased=NOTHING_ERASED))
    assert [type(each) for each in found] == [pa.RecordBatch, Corruption, pa.RecordBatch]
    assert [row["key"] for rows in found if isinstance(rows, pa.RecordBatch) for row in rows.to_pylist()] == [
        b"%d" % offset for offset in (*range(5), *range(10, 15))
    ]
    small = BatchLimit(size - 1, "maxBatchBytes")
    with pytest.raises(BatchTooLarge, match="maxBatchBytes"):
        list(read_intact_rows(archive.store, ranges, ["key"], erased=NOTHING_ERASED, limit=small))


def test_a_batch_with_a_correct_crc_that_does_not_decode_is_a_corruption(archive: MadeArchive) -> None:
    """The salvage cannot detect it; rows before and behind are returned once."""
    undecodable = batch(5, body=b"\xff" * 20, count=5)
    archive.put_segment("t", 0, batches((0, 5)) + undecodable + batches((10, 15)), end=15)
    archive.commit("t", 15)
    view = view_of(archive)
    ranges = with_spares(ranges_of(view), view.copies, view.epochs)
    found = list(read_intact_rows(archive.store, ranges, ["offset"], erased=NOTHING_ERASED))
    assert [(each.start, each.end) for each in found if isinstance(each, Corruption)] == [(5, 10)]
    offsets = [row["offset"] for each in found if isinstance(each, pa.RecordBatch) for row in each.to_pylist()]
    assert offsets == [*range(5), *range(10, 15)]


def test_intact_rows_of_a_known_damage_map_check_no_copy_again(
    archive: MadeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each read has its rows, at most `max_rows` in a batch."""
    archive.put_segment("t", 0, batches((0, 5), (5, 10)))
    archive.commit("t", 10)
    checked: list[object] = []

    def noted(*arguments: Any) -> Any:
        checked.append(arguments)
        return salvage_segment(*arguments)

    monkeypatch.setattr("ts_reader.reading.damage_map.salvage_segment", noted)
    known, ranges = DamageMap(archive.store), ranges_of(view_of(archive))
    for _ in range(2):
        found = read_intact_rows(archive.store, ranges, ["offset"], erased=NOTHING_ERASED, max_rows=4, damage_map=known)
        sizes = [each.num_rows for each in found if isinstance(each, pa.RecordBatch)]
        assert (sum(sizes), max(sizes)) == (10, 4)
    assert len(checked) == 1
