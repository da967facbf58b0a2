"""Python values, as a JSON parser has them, to a column: each value fits exactly, or is refused with a reason.

`pyarrow.array` alone does not do that: it makes 1 of 1.5, 1.0 of true, and infinity of a double that a float lacks.
"""

import base64
import binascii
import re
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa

from ts_reader.schemas.json_values import double_of, json_text
from ts_reader.schemas.limits import MAX_TIME
from ts_tables.parsers.converted import Converted, halving, shown
from ts_tables.parsers.parser_columns import MOMENT, Column

Convert = Callable[[Any], Any]  # raises ValueError or TypeError

_NONE: Final = type(None)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_LONG_FRACTION: Final = re.compile(r"[.,][0-9]{6}[0-9]*[1-9]", re.ASCII)
_NUMBER: Final = re.compile(r"\A[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")
_ALL_DIGITS: Final = Context(prec=999_999)
_GREATEST_FLOAT: Final = 3.4028234663852886e38
# Values of these types only are what `pyarrow.array` makes of them.
_AT_ONCE: Final[dict[pa.DataType, frozenset[type]]] = {
    pa.string(): frozenset({str, _NONE}),
    pa.bool_(): frozenset({bool, _NONE}),
    pa.int32(): frozenset({int, _NONE}),
    pa.int64(): frozenset({int, _NONE}),
    pa.float64(): frozenset({float, _NONE}),
}


def from_values(values: Sequence[Any], column: Column) -> Converted:
    """Return a column of values.

    Args:
        values: of JSON; None for a missing one.

    Raises:
        BatchTooLarge: they have more than 2 GiB.
    """
    reasons: dict[int, str] = {}
    array = _array(values, column, reasons)
    if column.required and array.null_count:
        for row, value in enumerate(values):
            if value is None:
                reasons[row] = "it is missing"
    return Converted(array, reasons)


def _array(values: Sequence[Any], column: Column, reasons: dict[int, str]) -> pa.Array:
    kind = column.type
    found = {*map(type, values)}
    if not column.is_json and found <= _AT_ONCE.get(kind, frozenset()):
        return _together(lambda start, end: pa.array(values[start:end], kind), values, column, reasons)
    if kind == MOMENT and not column.microseconds and found <= {str, _NONE}:
        return _together(
            lambda start, end: pa.array(values[start:end], pa.string()).cast(MOMENT), values, column, reasons
        )
    return _together(None, values, column, reasons)


def _together(
    convert: Callable[[int, int], pa.Array] | None, values: Sequence[Any], column: Column, reasons: dict[int, str]
) -> pa.Array:
    """Return the array of all values: at once, and of those that do not fit, each by itself."""
    one = converter(column)
    kind = column.type

    def each(start: int, end: int) -> pa.Array:
        return pa.array([None if value is None else one(value) for value in values[start:end]], kind)

    def first(start: int, end: int) -> pa.Array:
        if convert is not None:
            try:
                return convert(start, end)
            except (pa.ArrowException, OverflowError, ValueError):
                if end - start > 1:
                    raise
        return each(start, end)

    def why(row: int) -> str:
        return f"{shown(values[row])} is no {column.label}"

    parts = halving(first if convert is not None else each, 0, len(values), kind, reasons, why) if values else []
    return pa.concat_arrays(parts) if parts else pa.array([], kind)


def converter(column: Column) -> Convert:
    """Return a function from values of JSON to those of a column; it raises ValueError or TypeError for others."""
    if column.is_json:
        return json_text
    if column.type == MOMENT and column.microseconds:
        return lambda value: _time(_integer(value) * column.microseconds)
    return _plain(column.type)


def _plain(kind: pa.DataType) -> Convert:
    return converter_of(kind, _plain)


def converter_of(kind: pa.DataType, inner: Callable[[pa.DataType], Convert]) -> Convert:
    """Return a function from values of JSON to those of a type; it raises ValueError or TypeError for others.

    Args:
        inner: returns such a function for the types inside of it.
    """
    if pa.types.is_list(kind):
        element = nullable(inner(kind.value_type))
        return lambda value: [element(each) for each in _of(list, value)]
    if pa.types.is_map(kind):
        item = nullable(inner(kind.item_type))
        return lambda value: [(name, item(each)) for name, each in _of(dict, value).items()]
    if pa.types.is_struct(kind):
        members = {field.name: nullable(inner(field.type)) for field in kind}
        return lambda value: {name: convert(_of(dict, value).get(name)) for name, convert in members.items()}
    if pa.types.is_decimal(kind):
        scale = kind.scale
        return lambda value: _of_scale(_decimal(value), scale)
    return _SCALARS[kind]


def nullable(convert: Convert) -> Convert:
    """Return a function that returns None for None."""
    return lambda value: None if value is None else convert(value)


def _of(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(kind)
    return value


def _string(value: Any) -> str:
    found: str = _of(str, value)
    return found


def _boolean(value: Any) -> bool:
    found: bool = _of(bool, value)
    return found


def _integer(value: Any) -> int:
    if type(value) is int:
        return value
    if type(value) is float:
        value = Decimal(repr(value))  # all its digits, as `json_value` returns it
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    raise TypeError(value)


def _double(value: Any) -> float:
    if type(value) is bool or not isinstance(value, int | float | Decimal):
        raise TypeError(value)
    return double_of(value)


def _float(value: Any) -> float:
    found = _double(value)
    if abs(found) > _GREATEST_FLOAT:
        raise ValueError(value)
    narrow: float = struct.unpack("f", struct.pack("f", found))[0]
    if narrow != found if isinstance(value, int) else bool(narrow) != bool(found):
        raise ValueError(value)
    return found


def _decimal(value: Any) -> Decimal:
    if type(value) is bool or not isinstance(value, int | float | Decimal | str):
        raise TypeError(value)
    if isinstance(value, str) and _NUMBER.search(value) is None:  # Python accepts 1_000 and digits of other scripts
        raise ValueError(value)
    try:
        found = Decimal(repr(value) if type(value) is float else value)
    except ArithmeticError as error:
        raise ValueError(value) from error
    if not found.is_finite():
        raise ValueError(value)
    return found


def _of_scale(value: Decimal, scale: int) -> Decimal:
    """Return a number that has no more digits after the point than its column: `pyarrow.array` makes 0 of 1e-222."""
    exponent = value.normalize(_ALL_DIGITS).as_tuple().exponent
    if value and isinstance(exponent, int) and exponent < -scale:
        raise ValueError(value)
    return value


def _binary(value: Any) -> bytes:
    try:
        return base64.b64decode(_of(str, value), validate=True)
    except binascii.Error as error:
        raise ValueError(value) from error


def _moment(value: Any) -> int:
    """Return microseconds since 1970 of ISO 8601; a text without a zone is in UTC."""
    if _LONG_FRACTION.search(_of(str, value)):  # which Python would cut
        raise ValueError(value)
    found = datetime.fromisoformat(value)
    return (found.replace(tzinfo=found.tzinfo or UTC) - _EPOCH) // _MICROSECOND


def _time(microseconds: int) -> int:
    if abs(microseconds) > MAX_TIME:
        raise ValueError(microseconds)
    return microseconds


def _date(value: Any) -> date:
    return date.fromisoformat(_of(str, value))


_SCALARS: Final[dict[pa.DataType, Convert]] = {
    pa.string(): _string,
    pa.bool_(): _boolean,
    pa.int32(): _integer,
    pa.int64(): _integer,
    pa.float32(): _float,
    pa.float64(): _double,
    pa.binary(): _binary,
    MOMENT: _moment,
    pa.date32(): _date,
}
