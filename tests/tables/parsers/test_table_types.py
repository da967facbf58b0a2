"""Each Arrow type of a codec has a column of a table, with equal values; what does not fit is refused."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ts_common.errors import OperatorError
from ts_tables.parsers.table_types import fitted, label_of, table_type, text_type, type_text

MOMENT = datetime(2026, 11, 26, 1, 2, 3, tzinfo=UTC)
VALUES: list[tuple[pa.DataType, list[Any], list[Any]]] = [
    (pa.null(), [None], [None]),
    (pa.int8(), [-128, None], [-128, None]),
    (pa.uint64(), [(1 << 64) - 1], [Decimal((1 << 64) - 1)]),
    (pa.float16(), [1.5], [1.5]),
    (pa.decimal128(38, 2), [Decimal("1.25")], [Decimal("1.25")]),
    (pa.decimal256(50, 2), [Decimal("1.25")], ["1.25"]),
    (pa.binary(2), [b"ab", None], [b"ab", None]),
    (pa.large_string(), ["a"], ["a"]),
    (pa.dictionary(pa.int8(), pa.string()), ["a", None], ["a", None]),
    (pa.date32(), [date(2026, 11, 26)], [date(2026, 11, 26)]),
    (pa.time32("ms"), [5], [time(0, 0, 0, 5000)]),
    (pa.timestamp("ms", "UTC"), [MOMENT, None], [MOMENT, None]),
    (pa.timestamp("s"), [MOMENT.replace(tzinfo=None)], [MOMENT.replace(tzinfo=None)]),
    (pa.duration("s"), [timedelta(seconds=2), None], [2_000_000, None]),
    (pa.list_(pa.int16()), [[1, None], None, []], [[1, None], None, []]),
    (pa.large_list(pa.large_binary()), [[b"a"], None], [[b"a"], None]),
    (pa.map_(pa.string(), pa.uint8()), [[("x", 1)], None, []], [[("x", 1)], None, []]),
    (pa.struct([("a b", pa.int8()), ("c", pa.null())]), [{"a b": 1}, None], [{"a b": 1, "c": None}, None]),
]


@pytest.mark.parametrize(("kind", "values", "expected"), VALUES, ids=[str(kind) for kind, _, _ in VALUES])
def test_a_value_has_the_type_of_its_column(kind: pa.DataType, values: list[Any], expected: list[Any]) -> None:
    """Within a slice, a struct and a list too; the text of the type has the whole type."""
    column = table_type(kind)
    assert text_type(type_text(column)) == column
    array = pa.concat_arrays([pa.nulls(1, kind), pa.array(values, kind)])
    for found in (fitted(array, column), fitted(array[1:], column), fitted(array[:0], column)):
        found.array.validate(full=True)
        assert not found.reasons
    assert fitted(array, column).array.to_pylist() == [None, *expected]
    assert fitted(array[1:], column).array.to_pylist() == expected
    outer = pa.list_(pa.struct([("inner", kind)]))
    nested = fitted(pa.array([[{"inner": each} for each in values]], outer), table_type(outer)).array
    assert nested.to_pylist() == [[{"inner": each} for each in expected]]


def test_a_part_of_a_microsecond_is_refused() -> None:
    """The rows around it are not."""
    kind = pa.struct([("at", pa.timestamp("ns"))])
    found = fitted(pa.array([{"at": 1000}, {"at": 1001}, None, {"at": 2000}], kind), table_type(kind))
    assert found.array.to_pylist() == [
        {"at": datetime(1970, 1, 1, 0, 0, 0, 1)},
        None,
        None,
        {"at": datetime(1970, 1, 1, 0, 0, 0, 2)},
    ]
    assert [*found.reasons] == [1]
    assert "exactly" in found.reasons[1]


def test_a_type_without_a_column_is_an_error() -> None:
    """It names the type."""
    with pytest.raises(OperatorError, match="sparse_union"):
        table_type(pa.struct([("a", pa.sparse_union([pa.field("b", pa.int8())]))]))


@pytest.mark.parametrize("text", ["", "integer", "[", '["list"]', '["struct",["a"]]', '["decimal",99,0]', "[" * 10_000])
def test_what_is_no_type_is_refused(text: str) -> None:
    """As in the state of a table that is damaged."""
    with pytest.raises(ValueError, match="is no type of a column"):
        text_type(text)


def test_a_nested_type_has_a_short_name() -> None:
    """A name of a column has it."""
    assert [label_of(type_text(kind)) for kind in (pa.int64(), pa.list_(pa.int64()))] == ["long", "list"]
