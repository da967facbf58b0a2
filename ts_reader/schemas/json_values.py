"""JSON: strict texts to Python values and back, without loss of digits where a column shows them."""

import json
import math
import re
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import orjson

from ts_common.json_objects import check_depth
from ts_reader.schemas.limits import MAX_JSON_BYTES, MAX_JSON_VALUE_DEPTH

# A float has each number of 15 digits, down to 1e-308. More digits in a row, or a smaller exponent, are enough of a
# reason to read a text once more.
_INEXACT: Final = r"(?:[0-9]\.?){16}|[0-9][eE]-[0-9]{3}"
_ANY_INEXACT: Final = re.compile(_INEXACT.encode())
_IS_INEXACT: Final = re.compile(_INEXACT)
_SHOWN: Final = 40  # digits of a message
_INT64: Final = range(-(1 << 63), 1 << 63)


def json_value(data: bytes, *, exactly: bool) -> Any:
    """Return a JSON text as a Python value.

    Args:
        data: UTF-8, as RFC 8259 has it: no NaN, no byte order mark.
        exactly: whether a number with more digits than a float has is a `Decimal`; a float then has all the digits
            that `repr` shows.

    Raises:
        ValueError: it is no JSON, or is larger or deeper than is accepted.
    """
    if len(data) > MAX_JSON_BYTES:
        raise ValueError(f"{len(data)} bytes; at most {MAX_JSON_BYTES} are parsed")
    value = orjson.loads(data)
    check_depth(data, MAX_JSON_VALUE_DEPTH)
    if not exactly or _ANY_INEXACT.search(data) is None:
        return value
    return json.loads(data, parse_float=_fraction, parse_int=_integer)


def json_text(value: Any) -> str:
    """Return the JSON text of a value of `json_value`, without spaces.

    Raises:
        ValueError: it is nested too deeply.
    """
    try:
        return orjson.dumps(value, default=_number).decode()
    except TypeError as error:
        raise ValueError(str(error)) from error


def double_of(value: float | Decimal) -> float:
    """Return the double of a number of `json_value`: of a fraction the nearest one.

    Raises:
        ValueError: no double has an integer, the number is too large, or it would be 0.
    """
    found = float(value)
    is_integer = isinstance(value, int) or (isinstance(value, Decimal) and value.as_tuple().exponent == 0)
    if not math.isfinite(found) or (found != value if is_integer else bool(found) != bool(value)):
        raise ValueError(f"{str(value)[:_SHOWN]} is no double")
    return found


def _fraction(digits: str) -> float | Decimal:
    """Return the number as if the text had no other one."""
    if _IS_INEXACT.search(digits) is None:
        return float(digits)
    try:
        return Decimal(digits)
    except InvalidOperation:  # an exponent beyond those of Python
        raise ValueError(f"the number {digits[:_SHOWN]} is too large or too small") from None


def _integer(digits: str) -> int | Decimal:
    number = int(digits)
    return number if number in _INT64 else Decimal(digits)


def _number(value: Any) -> orjson.Fragment:
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value).encode())
    raise TypeError(type(value).__name__)
