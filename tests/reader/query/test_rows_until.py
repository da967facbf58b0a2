"""Rows up to a moment."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from ts_reader.decode.arrow_schema import MILLISECONDS, arrow_schema
from ts_reader.query.rows_until import rows_until

ALL = ["offset", MILLISECONDS]


def batch(names: Sequence[str], *milliseconds: int) -> pa.RecordBatch:
    columns = {"offset": [*range(len(milliseconds))], MILLISECONDS: list(milliseconds)}
    schema = arrow_schema(list(names))
    return pa.RecordBatch.from_arrays([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def reading(*batches: Any) -> Any:
    def read(names: Sequence[str]) -> Iterator[Any]:
        return (batch(names, *each) if isinstance(each, tuple) else each for each in batches)

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
    rows = batch(["offset"], 9)
    assert [*rows_until(None, ["offset"], reading(rows, "damage"))] == [rows, "damage"]
    assert [*rows_until(5, ["offset"], reading("damage"))] == ["damage"]


@pytest.mark.parametrize("moment", [(1 << 63) - 1, 10**19])
def test_a_moment_beyond_all_timestamps_shows_all(moment: int) -> None:
    """The greatest time of a record is that of 63 bits."""
    (rows,) = rows_until(moment, ALL, reading(((1 << 63) - 1,)))
    assert rows.num_rows == 1
