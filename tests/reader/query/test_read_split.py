"""The rows of a split, by its view and its tolerance of corrupt batches."""

from typing import Any

import pyarrow as pa
import pytest

from tests.made_archive import MadeArchive, batches
from tests.made_views import ranges_of, view_of
from ts_common.errors import CorruptData
from ts_reader.query.policies import Mode, Tolerance, View
from ts_reader.query.read_split import RAW_BYTES, read_split
from ts_reader.query.split import Split

DROP, PERMISSIVE = Tolerance(Mode.DROPMALFORMED), Tolerance(Mode.PERMISSIVE, "raw")


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
