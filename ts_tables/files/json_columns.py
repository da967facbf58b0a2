"""The columns of a parser in JSON lines: each value is exact, and is read back as it was.

=============================  ============================================================
decimal                        text, with all its digits
float, double                  a number; text where it is not finite
date, time                     text of ISO 8601
timestamp                      the same in UTC; a number of microseconds out of the years 1 to 9999
binary                         Base64
list, map, struct              an array; an object by keys or fields. A key that is no text is as its value would be
=============================  ============================================================
"""

import base64
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Any, Final

import orjson
import pyarrow as pa

from ts_tables.parsers.python_values import Convert, converter_of, nullable

_NOT_FINITE: Final = ("nan", "inf", "-inf")
_EPOCH: Final = datetime(1970, 1, 1)
_MICROSECOND: Final = timedelta(microseconds=1)
_FIRST: Final = (datetime(1, 1, 1) - _EPOCH) // _MICROSECOND
_LAST: Final = (datetime(9999, 12, 31, 23, 59, 59, 999_999) - _EPOCH) // _MICROSECOND


def json_values(column: pa.Array) -> list[Any]:
    """Return the values of a column, as JSON has them."""
    encode = _encoder(column.type)
    if encode is None:
        found: list[Any] = column.to_pylist()
        return found
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return [None if value is None else encode(value) for value in column.to_pylist()]


def column_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return a column of values of JSON.

    Args:
        values: as `json_values` returns them.
        kind: of the column.

    Raises:
        ValueError, TypeError, OverflowError: a value is of another type.
    """
    decode = nullable(_decoder(kind))
    return pa.array([decode(value) for value in values], kind)


def _encoder(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return what makes JSON of a value; None if the value is that of JSON. Nested times are those of Python."""
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
    if pa.types.is_date(kind) or pa.types.is_time(kind):
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
    is_number = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_floating(kind)
    return lambda name: decode(orjson.loads(name) if is_number and name not in _NOT_FINITE else name)


def _inner(kind: pa.DataType) -> Convert:
    encode = _encoder(kind)
    return nullable(encode) if encode is not None else lambda value: value


def _moment(value: int | datetime) -> str | int:
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat().replace("+00:00", "Z")
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
    if pa.types.is_time(kind):
        return time.fromisoformat
    return converter_of(kind, _decoder)
