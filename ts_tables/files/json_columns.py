"""The columns of a parser in JSON lines: each value is exact, and is read back as it was.

=============================  ============================================================
decimal                        text, with all its digits
float, double                  a number; text where it is not finite
date, time                     text of ISO 8601; of a date out of the years 1 to 9999 the number of days since 1970
timestamp                      the same in UTC; out of these years the number of microseconds
binary                         Base64
list, map, struct              an array; an object by keys or fields. A key that is no text is as its value would be
=============================  ============================================================
"""

import base64
import math
import re
from collections.abc import Callable, Sequence
from datetime import datetime, time, timedelta
from typing import Any, Final

import orjson
import pyarrow as pa

from ts_tables.parsers.python_values import Convert, converter_of, nullable
from ts_tables.parsers.table_types import cast_nested

_FAR: Final = re.compile("-?[0-9]+")  # a time as a number; one of ISO 8601 has other characters
_NOT_FINITE: Final = ("nan", "inf", "-inf")
_EPOCH: Final = datetime(1970, 1, 1)
_MICROSECOND: Final = timedelta(microseconds=1)
_FIRST: Final = (datetime(1, 1, 1) - _EPOCH) // _MICROSECOND
_DAY: Final = timedelta(1) // _MICROSECOND
_LAST: Final = (datetime(9999, 12, 31, 23, 59, 59, 999_999) - _EPOCH) // _MICROSECOND


def json_values(column: pa.Array) -> list[Any]:
    """Return the values of a column, as JSON has them."""
    encode = _encoder(column.type)
    if encode is None:
        found: list[Any] = column.to_pylist()
        return found
    kind = _with_numbers(column.type)
    numbers = column if kind == column.type else cast_nested(column, kind)
    return [None if value is None else encode(value) for value in numbers.to_pylist()]


def column_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return a column of values of JSON.

    Args:
        values: as `json_values` returns them.

    Raises:
        ValueError, TypeError, OverflowError: a value is of another type.
    """
    decode = nullable(_decoder(kind))
    return pa.array([decode(value) for value in values], kind)


def _with_numbers(kind: pa.DataType) -> pa.DataType:
    """Return a type with numbers for dates and moments: Python has none of them out of the years 1 to 9999."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_numbers(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_numbers(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_with_numbers(kind.key_type), _with_numbers(kind.item_type))
    return kind


def _encoder(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return what makes JSON of a value of `_with_numbers`; None if the value is that of JSON."""
    if pa.types.is_list(kind):
        element = _inner(kind.value_type)
        return lambda value: [element(each) for each in value]
    if pa.types.is_map(kind):
        item, text = _inner(kind.item_type), _key_text(kind.key_type)
        return lambda value: {text(key): item(each) for key, each in value}
    if pa.types.is_struct(kind):
        members = {field.name: _inner(field.type) for field in kind}
        return lambda value: {name: encode(value[name]) for name, encode in members.items()}
    if pa.types.is_floating(kind):
        return lambda value: value if math.isfinite(value) else repr(value)
    if pa.types.is_decimal(kind):
        return str
    if pa.types.is_binary(kind):
        return lambda value: base64.b64encode(value).decode()
    if pa.types.is_timestamp(kind):
        return _moment
    if pa.types.is_date(kind):
        return _day
    if pa.types.is_time(kind):
        return lambda value: value.isoformat()
    return None


def _key_text(kind: pa.DataType) -> Callable[[Any], str]:
    """Return what makes the name of a member of the key of a map."""
    if pa.types.is_string(kind):
        return str
    encode = _encoder(kind)
    return lambda key: orjson.dumps(key if encode is None else encode(key)).decode().strip('"')


def _key_value(kind: pa.DataType) -> Convert:
    """Return what makes the key of a map of the name of a member."""
    if pa.types.is_string(kind):
        return lambda name: name
    decode = _decoder(kind)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return lambda name: decode(int(name) if _FAR.fullmatch(name) else name)
    is_number = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_floating(kind)
    return lambda name: decode(orjson.loads(name) if is_number and name not in _NOT_FINITE else name)


def _inner(kind: pa.DataType) -> Convert:
    encode = _encoder(kind)
    return nullable(encode) if encode is not None else lambda value: value


def _day(value: int) -> str | int:
    return (_EPOCH + timedelta(value)).date().isoformat() if _FIRST <= value * _DAY <= _LAST else value


def _moment(value: int) -> str | int:
    if not _FIRST <= value <= _LAST:
        return value
    return f"{(_EPOCH + value * _MICROSECOND).isoformat()}Z"


def _decoder(kind: pa.DataType) -> Convert:
    if pa.types.is_map(kind):
        item, key_of = nullable(_decoder(kind.item_type)), _key_value(kind.key_type)
        return lambda value: [(key_of(key), item(each)) for key, each in value.items()]
    if pa.types.is_list(kind) or pa.types.is_struct(kind):
        return converter_of(kind, _decoder)
    if pa.types.is_floating(kind):
        return lambda value: float(value) if isinstance(value, str) else converter_of(kind, _decoder)(value)
    if pa.types.is_timestamp(kind):
        convert = converter_of(pa.timestamp("us", tz="UTC"), _decoder)
        return lambda value: value if type(value) is int else convert(value)
    if pa.types.is_date(kind):
        of_text = converter_of(kind, _decoder)
        return lambda value: value if type(value) is int else of_text(value)
    if pa.types.is_time(kind):
        return time.fromisoformat
    return converter_of(kind, _decoder)
