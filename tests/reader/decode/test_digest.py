"""Digests of records, and their sums."""

import hashlib

import pyarrow as pa
import pytest

from ts_reader.decode.arrow_schema import TYPES
from ts_reader.decode.digest import COLUMNS, DigestSum, digest_of, parse_sums, raw_digests, sum_of
from ts_reader.decode.digest_kernel import longest_text
from ts_reader.decode.kernel_source import sha256_functions

HEADERS = [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
RECORD = ("t", 3, 17, 1700, 0, b"k", None, HEADERS)


def h(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def rows(*records: tuple[object, ...]) -> pa.RecordBatch:
    columns = dict(zip(COLUMNS, zip(*records, strict=True), strict=True))
    columns["timestamp"] = tuple(None if time is None else time * 1000 for time in columns["timestamp"])
    return pa.RecordBatch.from_arrays([pa.array(columns[name], TYPES[name]) for name in COLUMNS], list(COLUMNS))


def test_a_digest_is_that_of_the_documented_text() -> None:
    """Anyone can compute it, in any language."""
    text = f"t|3|17|1700|0|{h(b'k')}|N|{h(b'a')}:{h(b'1')},{h(b'b')}:N"
    assert digest_of(*RECORD) == hashlib.sha256(text.encode()).digest()  # type: ignore[arg-type]
    assert (
        digest_of("t", 0, 0, None, -1, None, b"", None) == hashlib.sha256(f"t|0|0|N|-1|N|{h(b'')}|".encode()).digest()
    )


@pytest.mark.parametrize("place", range(len(RECORD)), ids=COLUMNS)
def test_each_field_changes_the_digest(place: int) -> None:
    """Also a NULL that becomes an empty text, and the order of headers."""
    changed = ("u", 4, 18, None, 1, b"", b"", HEADERS[::-1])
    other = (*RECORD[:place], changed[place], *RECORD[place + 1 :])
    assert sum_of(rows(other)) != sum_of(rows(RECORD))
    assert sum_of(rows(RECORD)) == sum_of(rows(RECORD))


MANY = [
    RECORD,
    ("u", 0, 18, None, -1, None, b"", None),
    ("topic", 2**31 - 1, 2**63 - 1, -1, 1, b"", b"x" * 1000, []),
    ("t", 0, 0, 0, 0, b"\x00\xff", b"y", [*HEADERS, {"key": "", "value": b""}, {"key": "\u00e9", "value": b"z" * 64}]),
    ("t", 10, 9_999_999_999, 1_700_000_000_123, 1, b"k" * 55, b"v" * 56, None),
]


@pytest.mark.parametrize("way", ["OpenSSL's functions", "hashlib"])
def test_the_digests_of_rows_are_those_of_each(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Also where Python's OpenSSL exports no functions; half of each is in the sums and in parsed tables."""
    assert sha256_functions() is not None
    if way == "hashlib":
        monkeypatch.setattr("ts_reader.decode.digest.sha256_functions", lambda: None)
    expected = [digest_of(*each) for each in MANY]  # type: ignore[arg-type]
    batch = rows(*MANY)
    assert raw_digests(batch).to_pylist() == [digest[:16] for digest in expected]
    for start in range(len(MANY)):  # a batch that begins within its columns
        assert raw_digests(batch.slice(start, 2)).to_pylist() == [digest[:16] for digest in expected[start : start + 2]]
    table = pa.Table.from_batches([batch.slice(0, 2), batch.slice(2)])
    for part, place in (("first", 0), ("second", 8)):
        total = sum(int.from_bytes(digest[place : place + 8], "big") for digest in expected)
        assert getattr(sum_of(batch), part) == getattr(sum_of(table), part) == total


@pytest.mark.parametrize("name", ["topic", "partition", "offset", "timestampType"])
def test_a_null_has_another_digest_than_zero_or_an_empty_text(name: str) -> None:
    """No record has a NULL there, so `verify` has to find a row that has."""
    batch = rows(("", 0, 0, 0, 0, None, None, None))
    place = batch.schema.get_field_index(name)
    damaged = batch.set_column(place, name, pa.nulls(1, TYPES[name]))
    assert raw_digests(damaged) != raw_digests(batch)


@pytest.mark.parametrize("damaged", ["name", "header"])
def test_headers_of_a_damaged_row_have_one_digest(monkeypatch: pytest.MonkeyPatch, damaged: str) -> None:
    """A name that is no UTF-8, and a NULL in place of a header: the kernel and hashlib agree."""
    headers = pa.array([[None]], TYPES["headers"])
    if damaged == "name":
        pair = [pa.array([b"\xff"]).view(pa.string()), pa.array([b"x"])]
        headers = pa.ListArray.from_arrays([0, 1], pa.StructArray.from_arrays(pair, ["key", "value"]))
    batch = rows(RECORD)
    batch = batch.set_column(batch.schema.get_field_index("headers"), "headers", headers)
    found = raw_digests(batch)
    monkeypatch.setattr("ts_reader.decode.digest.sha256_functions", lambda: None)
    assert raw_digests(batch) == found


@pytest.mark.parametrize("count", [0, 1, 2])
def test_the_text_of_a_row_has_room_for_four_numbers_of_64_bits(count: int) -> None:
    """A file that others wrote can have wider columns than a record; the kernel checks no bounds."""
    least = -(2**63)
    found = rows(("topic", 0, least, 0, 0, b"k", b"v", [{"key": "a", "value": b""}] * count))
    for name in ("partition", "timestamp", "timestampType"):
        found = found.set_column(found.schema.get_field_index(name), name, pa.array([least]))
    pairs = ",".join([f"{h(b'a')}:{h(b'')}"] * count)
    text = f"topic|{least}|{least}|{least // 1000}|{least}|{h(b'k')}|{h(b'v')}|{pairs}"
    assert longest_text(len("topic"), count) >= len(text)
    assert raw_digests(found).to_pylist() == [hashlib.sha256(text.encode()).digest()[:16]]


def test_microseconds_below_a_millisecond_have_no_effect_on_the_digest() -> None:
    """A time before 1970 is rounded down, as one after it."""
    batch = rows(("t", 0, 0, -2, 0, None, None, None))
    place = batch.schema.get_field_index("timestamp")
    later = batch.set_column(place, "timestamp", pa.array([-1001], TYPES["timestamp"]))
    assert raw_digests(later) == raw_digests(batch)


def test_sums_have_no_order_and_count_each_row() -> None:
    """A row that is there twice changes them, and their difference is the row's."""
    other = ("t", 3, 18, 1700, 0, b"k", b"v", None)
    both = sum_of(rows(RECORD, other))
    assert both == sum_of(rows(other, RECORD)) == sum_of(rows(RECORD)) + sum_of(rows(other))
    assert sum_of(rows(RECORD, other, other)) - both == sum_of(rows(other))
    assert parse_sums(both.rows, both.text) == both
    assert sum_of(rows(RECORD).slice(0, 0)) == DigestSum()
