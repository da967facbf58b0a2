"""Texts, as a file of delimited values has them, to a column: each fits exactly, or is refused with a reason."""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ts_reader.schemas.json_values import json_value
from ts_tables.parsers.converted import Converted, halving, shown
from ts_tables.parsers.parser_columns import Column
from ts_tables.parsers.python_values import from_values

# Arrow alone reads 0x10 as 16, and 1e400 as infinity.
_INTEGER: Final = r"\A-?[0-9]+\z"
_NUMBER: Final = r"\A-?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\z"
_LONG_INTEGER: Final = r"\A-?[0-9]{8,}\z"  # which a float may lack
_BOOLEAN: Final = r"\A(?i:true|false|1|0)\z"


def strings_of(values: pa.Array, refused: dict[int, str]) -> pa.Array:
    """Return binary values as strings, null where they are no UTF-8.

    Args:
        values: binary.
        refused: by row, why a value is no text; some are added.

    Raises:
        BatchTooLarge: they have more than 2 GiB.
    """
    parts = halving(
        lambda start, end: values[start:end].cast(pa.string()),
        0,
        len(values),
        pa.string(),
        refused,
        lambda row: f"{shown(values[row].as_py())} is no UTF-8",
    )
    return pa.concat_arrays(parts) if parts else pa.array([], pa.string())


def from_texts(texts: pa.Array, column: Column) -> Converted:
    """Return a column of texts. An empty text is null, but in a column of strings.

    Args:
        texts: strings.

    Raises:
        BatchTooLarge: they have more than 2 GiB.
    """
    kind = column.type
    if kind == pa.string() and not column.is_json:
        return _required(texts, column, {})
    texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    is_number = pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    pattern = _NUMBER if is_number else _INTEGER if pa.types.is_integer(kind) else _BOOLEAN
    if not (is_number or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        return _by_value(texts, column)
    reasons: dict[int, str] = {}
    fits = pc.match_substring_regex(texts, pattern)
    for row in pc.indices_nonzero(pc.fill_null(pc.invert(fits), False)).to_pylist():
        reasons[row] = _reason(texts, row, column)
    numbers = pc.if_else(fits, texts, pa.scalar(None, pa.string()))

    def convert(start: int, end: int) -> pa.Array:
        found = numbers[start:end].cast(kind)
        _check_numbers(numbers[start:end], found)
        return found

    parts = halving(convert, 0, len(texts), kind, reasons, lambda row: _reason(texts, row, column))
    return _required(pa.concat_arrays(parts) if parts else pa.array([], kind), column, reasons)


def _check_numbers(texts: pa.Array, found: pa.Array) -> None:
    """Check what Arrow made of numbers: they are finite, no integer changed, and only 0 is 0, as -6e-237 is there too.

    Raises:
        ValueError: one is not.
    """
    if pa.types.is_integer(found.type) or pa.types.is_boolean(found.type):
        return
    is_floating = pa.types.is_floating(found.type)
    if is_floating and pc.any(pc.is_inf(found)).as_py():
        raise ValueError
    zero = pa.scalar(0.0 if is_floating else Decimal(0), found.type)
    is_zero = pc.and_(pc.equal(found, zero), pc.match_substring_regex(texts, "[1-9]"))
    is_long = pc.match_substring_regex(texts, _LONG_INTEGER if is_floating else "[eE]")
    for row in pc.indices_nonzero(pc.fill_null(pc.or_(is_zero, is_long), False)).to_pylist():
        if Decimal(texts[row].as_py()) != Decimal(found[row].as_py()):
            raise ValueError


def _by_value(texts: pa.Array, column: Column) -> Converted:
    """Return a column whose values need Python: times, bytes, and types in JSON."""
    read = _reader(column)
    values, reasons = [], {}
    for row, text in enumerate(texts.to_pylist()):
        try:
            values.append(None if text is None else read(text))
        except ValueError:
            values.append(None)
            reasons[row] = _reason(texts, row, column)
    found = from_values(values, column)
    return Converted(found.array, {**found.reasons, **reasons})


def _reader(column: Column) -> Callable[[str], Any]:
    if column.microseconds:
        return _whole
    if column.is_json or pa.types.is_nested(column.type):
        return lambda text: json_value(text.encode(), exactly=True)
    return str


def _whole(text: str) -> int:
    if re.search(_INTEGER.replace(r"\z", r"\Z"), text) is None:  # Python accepts 1_000 and digits of other scripts
        raise ValueError(text)
    return int(text)


def _required(array: pa.Array, column: Column, reasons: dict[int, str]) -> Converted:
    if column.required and array.null_count:
        for row in pc.indices_nonzero(array.is_null()).to_pylist():
            reasons.setdefault(row, "it is missing")
    return Converted(array, reasons)


def _reason(texts: pa.Array, row: int, column: Column) -> str:
    return f"{shown(texts[row].as_py())} is no {column.label}"
