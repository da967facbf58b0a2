"""Read JSON that another program wrote: an object of the store, or a store's answer.

Whoever may write the bytes may write anything, so every reader goes through here. The size is bounded before the bytes
are parsed. Nesting is bounded, and so is every number: RFC 8259 sets no limits, and leaves them to the reader (section
9). Each failure is `CorruptData` with the name of what was read.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NoReturn

from ts_common.errors import CorruptData
from ts_common.format_version import VERSION, check_version

MAX_DEPTH: Final = 32  # a cache object, the deepest of our formats, has five levels
MAX_INT64: Final = (1 << 63) - 1
MIN_INT64: Final = -(1 << 63)
MAX_INT32: Final = (1 << 31) - 1
MAX_UINT32: Final = (1 << 32) - 1
_SHOWN: Final = 80
_LONGEST_REASON: Final = 400
_TOO_DEEP: Final = f"it is nested more than {MAX_DEPTH} levels deep"
_ONE_KIND: Final = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"')  # of valid JSON only: it is linear there


def parse_json(data: bytes, what: str, most: int) -> object:
    """Parse one JSON text in UTF-8.

    Args:
        data: the text.
        what: its name, for messages: a key, or a request.
        most: bytes that are accepted.

    Raises:
        CorruptData: it is longer, nested deeper than `MAX_DEPTH`, no JSON, or holds a number that is not finite.
    """
    with decoding(what, "JSON", data):
        return _parse(data, most)


def parse_fields(
    data: bytes, what: str, expected: str, most: int, *, known: int = VERSION, way_out: str = ""
) -> dict[str, Any]:
    """Parse a JSON object whose version is known here.

    Args:
        data: the text.
        what: its name, for messages.
        expected: what it should be, with an article.
        most: bytes that are accepted.
        known: latest version of this kind of object that is known here.
        way_out: as of `decoding`.

    Raises:
        CorruptData: as `parse_json`, or it is no object, or its version is no number from 1 on.
        NewerFormat: it is of a later version.
    """
    with decoding(what, expected, data, way_out):
        fields = _parse(data, most)
        if not isinstance(fields, dict):
            raise ValueError(f"it holds {shown(fields)}, not an object")  # noqa: TRY004  (of the data)
        check_version(fields, what, known)
        return fields


@contextmanager
def decoding(what: str, expected: str, data: bytes | None = None, way_out: str = "") -> Iterator[None]:
    """Raise `CorruptData` for whatever goes wrong while a parsed text is read.

    Args:
        what: name of the object, for the message.
        expected: what it should be, with an article.
        data: its bytes, of which the message shows the first.
        way_out: what to do, or nothing.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        found = "" if data is None else f"; found {shown(data)}"
        reason = f"no field {error}" if isinstance(error, KeyError) else f"{error}"
        raise CorruptData(f"{what}: not {expected}: {reason[:_LONGEST_REASON]}{found}{way_out}") from error


def whole_number(value: object, least: int = 0, most: int = MAX_INT64) -> int:
    """A number as JSON has it: no text, no fraction, no boolean.

    Raises:
        ValueError: it is none, or not from `least` to `most`.
    """
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{shown(value)} is no whole number from {least} to {most}")
    return value


def optional_number(value: object, least: int = 0, most: int = MAX_INT64) -> int | None:
    """As `whole_number`; None for null."""
    return None if value is None else whole_number(value, least, most)


def text(value: object, most: int = 1024) -> str:
    """A string of at most `most` characters that UTF-8 can hold.

    Raises:
        ValueError: it is none, or longer, or has half of a surrogate pair.
    """
    if type(value) is not str or len(value) > most:
        raise ValueError(f"{shown(value)} is no text of at most {most} characters")
    value.encode()
    return value


def rows(value: object) -> Sequence[Any]:
    """A JSON array.

    Raises:
        ValueError: it is none.
    """
    if type(value) is not list:
        raise ValueError(f"{shown(value)} is no list")
    return value


def pair(value: object) -> tuple[Any, Any]:
    """A JSON array of two.

    Raises:
        ValueError: it is none.
    """
    if type(value) is not list or len(value) != 2:
        raise ValueError(f"{shown(value)} is no list of two")
    return value[0], value[1]


def epoch_pair(value: object) -> tuple[int, int]:
    """A leader epoch, -1 where there is none, and an offset, in a JSON array.

    Raises:
        ValueError: it is none.
    """
    epoch, offset = pair(value)
    return whole_number(epoch, -1, MAX_INT32), whole_number(offset)


def shown(value: object) -> str:
    """The beginning of a value, for a message: what a stranger wrote may be long."""
    if isinstance(value, bytes | str):
        return repr(value[:_SHOWN])
    if isinstance(value, Mapping | Sequence):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length()} bits"
    return repr(value)


def _parse(data: bytes, most: int) -> object:
    if len(data) > most:
        raise ValueError(f"{len(data)} bytes, and at most {most} are expected")
    try:
        value = json.loads(data.decode("utf-8"), parse_float=_finite, parse_constant=_refuse)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if _is_too_deep(data):
        raise ValueError(_TOO_DEEP)
    return value


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:_SHOWN]} is beyond a 64-bit number")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


def _is_too_deep(data: bytes) -> bool:
    """Whether a valid text is nested deeper than `MAX_DEPTH`: each round takes its innermost level away."""
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return False
    brackets = _STRING.sub(b"", data).translate(_ONE_KIND, _NO_BRACKETS)
    for _ in range(MAX_DEPTH):
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)
