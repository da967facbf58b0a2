"""Columns in Arrow's layout: buffers that are used again, and header names as Java reads them."""

import numpy as np
import pytest

from tests.reader.decode.decoded_rows import strings
from ts_reader.decode import columns
from ts_reader.decode.arrow import to_arrow
from ts_reader.decode.columns import (
    BinaryColumn,
    BufferPool,
    ColumnBuffers,
    Projection,
    RecordColumns,
    java_utf8,
    new_state,
    valid_names,
)
from ts_reader.decode.kernel_arrays import CursorField

ALL = Projection()


def column_of(*names: bytes) -> BinaryColumn:
    offsets = np.cumsum([0, *map(len, names)]).astype(np.int32)
    validity = np.full((len(names) + 7) // 8, 0xFF, np.uint8)
    return BinaryColumn(offsets, np.frombuffer(b"".join(names), np.uint8), validity, 0)


def names_of(column: BinaryColumn, count: int) -> list[bytes | None]:
    assert len(column.offsets) == count + 1
    return strings(column)[:count]


def two_empty_records(buffers: ColumnBuffers) -> RecordColumns:
    for array in buffers.arrays():
        array[:3] = 0
    state = new_state()
    state[CursorField.ROWS] = 2
    return buffers.columns(state)


def test_buffers_are_used_again_when_no_column_of_them_is_held() -> None:
    """An Arrow batch holds the buffers of its columns as well."""
    pool = BufferPool(ALL, 8, 64)
    first = pool.take()
    assert pool.take() is first
    held = two_empty_records(first)
    second = pool.take()
    assert second is not first
    batch = to_arrow(held, "t", 0)
    del held
    assert pool.take() is second
    del batch
    assert pool.take() is first


def test_buffers_that_grew_for_one_large_record_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next records would never need so much memory."""
    monkeypatch.setattr(columns, "_POOLED_BYTES", 1 << 10)
    pool = BufferPool(ALL, 8, 64)
    grown = pool.take()
    state = new_state()
    state[CursorField.NEED_VALUE_BYTES] = 1 << 20
    grown.make_room(state)
    assert len(grown.values.data) == 1 << 20
    assert grown.is_idle
    assert grown.is_large
    assert pool.take() is not grown


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain", "plain"),
        ("é€😀".encode(), "é€😀"),
        (b"\xff", "�"),
        (b"a\xe2\x82", "a�"),  # a cut character
        (b"\xed\xa0\x80", "�"),  # a surrogate is one character to Java
        (b"\xed\xa0\x80\xed\xb0\x80", "��"),
        (b"\xc0\x80", "��"),
    ],
)
def test_malformed_names_are_what_java_reads(data: bytes, text: str) -> None:
    """`new String(data, UTF_8)`."""
    assert java_utf8(data) == text
    assert names_of(valid_names(column_of(b"x", data, b"y")), 3) == [b"x", text.encode(), b"y"]


def test_valid_names_are_not_copied() -> None:
    """A character that is cut between two names makes both of them malformed."""
    for names in ((b"a", b"b"), ("é".encode(), b"", "😀".encode())):
        column = column_of(*names)
        assert valid_names(column) is column
    halves = "é".encode()[:1], "é".encode()[1:]
    assert names_of(valid_names(column_of(*halves)), 2) == ["�".encode()] * 2


def test_many_and_long_names_are_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice of a long name does not end inside a character."""
    monkeypatch.setattr(columns, "_PIECE_NAMES", 3)
    monkeypatch.setattr(columns, "_SLICE_BYTES", 5)
    names = [b"a", "é€😀".encode() * 3, b"", b"\xff" + "€".encode() * 4, b"z"] * 2
    expected = [name.decode("utf-8", "replace").encode() for name in names]
    assert names_of(valid_names(column_of(*names)), len(names)) == expected
