"""The rows of a split, by its view and its tolerance of corrupt batches."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.common.log_format.build import batch, record
from tests.made_archive import MadeArchive, batches
from tests.made_views import ranges_of, view_of
from ts_common.errors import CorruptData
from ts_reader.decode.arrow_schema import MILLISECONDS, arrow_schema
from ts_reader.query.query import CorruptionMode, Tolerance, View
from ts_reader.query.read_split import RAW_BYTES, read_split, rows_until, summarize_split
from ts_reader.query.splits import Split
from ts_reader.query.totals import Detail, Totals

DROP, PERMISSIVE = Tolerance(CorruptionMode.DROPMALFORMED), Tolerance(CorruptionMode.PERMISSIVE, "raw")


def one_split(archive: MadeArchive, value: bytes, tolerance: Tolerance, view: View = View.LOG) -> tuple[Split, bytes]:
    """A split of offsets 0 to 14 whose middle batch is damaged, and the damaged bytes."""
    log = batches((0, 5), (5, 10), (10, 15), value=value)
    begin, end = len(batches((0, 5), value=value)), len(batches((0, 5), (5, 10), value=value))
    body = bytearray(log)
    body[begin + 70] ^= 1
    archive.put_segment("t", 0, log, body=bytes(body))
    archive.commit("t", 15)
    ranges = tuple(ranges_of(view_of(archive)))
    return Split(archive.location, ranges, tolerance=tolerance, view=view, way_out="Pass mode"), bytes(body[begin:end])


def read(archive: MadeArchive, split: Split, *names: str) -> list[dict[str, Any]]:
    found = list(read_split(archive.store, split, names))
    assert {tuple(rows.schema.names) for rows in found} == {names}
    rows: list[dict[str, Any]] = pa.Table.from_batches(found).to_pylist()
    return rows


@pytest.mark.parametrize("names", [("raw", "offset"), ("offset", "raw", "topic"), ("key", "raw")])
def test_a_permissive_split_has_a_row_for_a_corrupt_place(archive: MadeArchive, names: tuple[str, ...]) -> None:
    """With its topic, partition, first offset and raw bytes, at any position of the column."""
    split, raw = one_split(archive, b"v", PERMISSIVE)
    rows = read(archive, split, *names)
    assert len(rows) == 11
    whole = {"topic": "t", "partition": 0, "offset": 5, "raw": raw, "key": None}
    assert rows[5] == {name: whole[name] for name in names}
    assert all(row["raw"] is None for row in (*rows[:5], *rows[6:]))


def test_the_raw_bytes_of_a_large_place_are_cut(archive: MadeArchive) -> None:
    """The object has all of them."""
    split, raw = one_split(archive, bytes(30_000), PERMISSIVE)
    rows = read(archive, split, "raw")
    assert rows[5]["raw"] == raw[:RAW_BYTES]


def test_a_split_without_the_column_drops_the_corrupt_place(archive: MadeArchive) -> None:
    """PERMISSIVE without the column is DROPMALFORMED; FAILFAST is an error with the way out."""
    for tolerance in (DROP, PERMISSIVE):
        split, _ = one_split(archive, b"v", tolerance)
        assert [row["offset"] for row in read(archive, split, "offset")] == [*range(5), *range(10, 15)]
    split, _ = one_split(archive, b"v", Tolerance())
    with pytest.raises(CorruptData, match="Pass mode"):
        read(archive, split, "offset")


def test_the_view_latest_has_no_row_for_a_corrupt_place(archive: MadeArchive) -> None:
    """Each key occurs once here; FAILFAST is an error."""
    split, _ = one_split(archive, b"v", DROP, View.LATEST)
    assert [row["offset"] for row in read(archive, split, "offset", "key")] == [*range(5), *range(10, 15)]
    split, _ = one_split(archive, b"v", Tolerance(), View.LATEST)
    with pytest.raises(CorruptData, match="Pass mode"):
        read(archive, split, "offset")


ALL = ["offset", MILLISECONDS]


def made_rows(names: Sequence[str], *milliseconds: int) -> pa.RecordBatch:
    columns = {"offset": [*range(len(milliseconds))], MILLISECONDS: list(milliseconds)}
    schema = arrow_schema(list(names))
    return pa.RecordBatch.from_arrays([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def reading(*batches: Any) -> Any:
    def read(names: Sequence[str]) -> Iterator[Any]:
        return (made_rows(names, *each) if isinstance(each, tuple) else each for each in batches)

    return read


@pytest.mark.parametrize("names", [ALL, ["offset"], [MILLISECONDS, "offset"]])
def test_later_rows_are_left_out_whatever_columns_are_read(names: list[str]) -> None:
    """A record without a timestamp stays; a batch of later rows alone is left out."""
    found = [*rows_until(5, names, reading((-1, 6, 5), (7, 8), (4,)))]
    assert [rows.schema.names for rows in found] == [names, names]
    assert [rows.column("offset").to_pylist() for rows in found] == [[0, 2], [0]]


def test_rows_can_be_counted_without_columns() -> None:
    """Their number is that of the rows up to the moment."""
    assert [(rows.num_columns, rows.num_rows) for rows in rows_until(5, [], reading((5, 6, 4)))] == [(0, 2)]


def test_without_a_moment_all_is_passed_on() -> None:
    """What is no batch is passed on in any case: the place of a corrupt batch, whose time is unknown."""
    rows = made_rows(["offset"], 9)
    assert [*rows_until(None, ["offset"], reading(rows, "damage"))] == [rows, "damage"]
    assert [*rows_until(5, ["offset"], reading("damage"))] == ["damage"]


@pytest.mark.parametrize("moment", [(1 << 63) - 1, 10**19])
def test_a_moment_beyond_all_timestamps_shows_all(moment: int) -> None:
    """The greatest time of a record is that of 63 bits."""
    (rows,) = rows_until(moment, ALL, reading(((1 << 63) - 1,)))
    assert rows.num_rows == 1


@pytest.fixture
def split(archive: MadeArchive) -> Split:
    """Return a split of a segment that lost records, and of two copies of later offsets."""
    sparse = batch(10, [record(0), record(5, timestamp_delta=-50)], last_offset_delta=9, max_timestamp=1000)
    archive.put_segment("t", 0, batches((0, 10), time=100) + sparse, end=20)
    archive.put_segment("t", 20, batches((20, 23)), end=30)
    archive.put_segment("t", 20, batches((22, 25)), end=30, variant=True)
    archive.commit("t", 30, highest_base=20)
    return Split(archive.location, tuple(ranges_of(view_of(archive))))


def test_copies_are_counted_once_and_batches_by_their_headers(archive: MadeArchive, split: Split) -> None:
    """Of each detail what it has."""
    assert summarize_split(archive.store, split, Detail.ROWS).rows == 17
    found = summarize_split(archive.store, split, Detail.HEADERS)
    assert (found.rows, found.first, found.last, found.greatest) == (17, 0, 24, 1024)
    assert summarize_split(archive.store, split, Detail.ALL) == Totals(17, 0, 24, 100, 1024)


def test_the_last_record_of_a_batch_that_lost_some_is_looked_up(archive: MadeArchive, split: Split) -> None:
    """The batch ends at offset 19, and its last record is at 15."""
    first = Split(archive.location, split.ranges[:1])
    found = summarize_split(archive.store, first, Detail.HEADERS)
    assert (found.rows, found.first, found.last, found.greatest) == (12, 0, 15, 1000)


def test_tolerant_splits_and_newest_records_are_counted_by_their_rows(archive: MadeArchive, split: Split) -> None:
    """A corrupt place is a row only with its column, and has no timestamp."""
    tolerance = Tolerance(CorruptionMode.PERMISSIVE, "raw")
    (copy,) = split.ranges[0].copies
    data, info = archive.store.get(copy.key)
    archive.store.put(copy.key, data[:70] + bytes([data[70] ^ 1]) + data[71:], metadata=info.metadata)
    part = Split(archive.location, split.ranges[:1], tolerance=tolerance)
    assert summarize_split(archive.store, part, Detail.ALL) == Totals(2, 10, 15, 950, 1000)
    assert summarize_split(archive.store, part, Detail.ALL, "raw") == Totals(3, 0, 15, 950, 1000)
    newest = Split(archive.location, split.ranges[1:], view=View.LATEST)
    assert summarize_split(archive.store, newest, Detail.ALL) == Totals(5, 20, 24, 1020, 1024)
