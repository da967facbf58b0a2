"""Read JSON that another program wrote: an object of the store, or a store's response.

Another program can write any bytes, so every reader uses this module. It limits the size before the bytes are parsed,
the nesting, and every number. RFC 8259 leaves these limits to the reader (section 9). Each failure is `CorruptData`
with the name of the object.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, Final, NoReturn

from ts_common.errors import CorruptData
from ts_common.format_version import VERSION, check_version

MAX_DEPTH: Final = 32  # a cache object, the deepest format, has five levels
MAX_INT64: Final = (1 << 63) - 1
MIN_INT64: Final = -(1 << 63)
MAX_INT32: Final = (1 << 31) - 1
MAX_UINT32: Final = (1 << 32) - 1
_SHOWN: Final = 80
_LONGEST_REASON: Final = 400
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # of the level, as int8
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
# A string that does not end reaches to the end of the text, also after a lone backslash. So each quote begins a match,
# and no byte is read twice: the time is linear in any text.
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)


def parse_json(data: bytes, what: str, most: int, depth: int = MAX_DEPTH) -> object:
    """Parse one JSON text in UTF-8.

    Args:
        what: its name for messages: a key, or a request.
        most: largest size in bytes.
        depth: largest number of levels.

    Raises:
        CorruptData: it is larger, is nested deeper than `depth`, is not JSON, or has a number that is not finite.
    """
    with decoding(what, "JSON", data):
        return _parse(data, most, depth)


def parse_fields(
    data: bytes, what: str, expected: str, most: int, *, known: int = VERSION, way_out: str = ""
) -> dict[str, Any]:
    """Parse a JSON object of a version that this release reads.

    Args:
        what: its name for messages.
        expected: the expected kind of object, with an article.
        most: largest size in bytes.
        known: latest version of this kind of object that this release reads.
        way_out: as in `decoding`.

    Raises:
        CorruptData: as in `parse_json`, or the text is not an object, or its version is not a number of at least 1.
        NewerFormat: the object has a later version.
    """
    with decoding(what, expected, data, way_out):
        fields = _parse(data, most)
        if not isinstance(fields, dict):
            raise ValueError("it is not an object")  # noqa: TRY004  (the data is wrong)
        check_version(fields, what, known)
        return fields


@contextmanager
def decoding(what: str, expected: str, data: bytes | None = None, way_out: str = "") -> Iterator[None]:
    """Raise `CorruptData` for each error in the block that reads a parsed text.

    Args:
        what: name of the object, for the message.
        expected: the expected kind of object, with an article.
        data: its bytes; the message contains the first of them.
        way_out: end of the message, with what to do; can be empty.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        found = "" if data is None else f"; found {shown(data)}"
        reason = f"no field {error}" if isinstance(error, KeyError) else f"{error}"
        raise CorruptData(f"{what}: not {expected}: {reason[:_LONGEST_REASON]}{found}{way_out}") from error


def check_depth(data: bytes, depth: int) -> None:
    """Check how deep a text is nested, before a parser recurses into it.

    Not every parser ends at some level: the `json` of Python 3.14 raises no `RecursionError`. One pass counts the
    levels. Where it counts too few, because more end than began, the text is not JSON, and no parser reads it further.

    Args:
        data: the text; any bytes.
        depth: largest number of levels.

    Raises:
        ValueError: it is nested deeper.
    """
    if data.count(b"[") + data.count(b"{") <= depth:
        return
    steps = memoryview(_STRING.sub(b"", data).translate(_STEPS, _NO_BRACKETS)).cast("b")
    if max(accumulate(steps), default=0) > depth:
        raise ValueError(f"it is nested more than {depth} levels deep")


def whole_number(value: object, least: int = 0, most: int = MAX_INT64) -> int:
    """Return a whole number of JSON.

    Raises:
        ValueError: it is a text, a fraction or a boolean, or is not from `least` to `most`.
    """
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{shown(value)} is not a whole number from {least} to {most}")
    return value


def optional_number(value: object, least: int = 0, most: int = MAX_INT64) -> int | None:
    """Return a whole number, or None for null; raise as `whole_number`."""
    return None if value is None else whole_number(value, least, most)


def number(value: object) -> float:
    """Return a number of JSON, whole or not, as a 64-bit number.

    Raises:
        ValueError: it is a text or a boolean.
        OverflowError: it is a whole number beyond that.
    """
    if type(value) is not int and type(value) is not float:
        raise ValueError(f"{shown(value)} is not a number")
    return float(value)


def text(value: object, most: int = 1024) -> str:
    """Return a string of at most `most` characters that UTF-8 can encode.

    Raises:
        ValueError: it is not a string, is longer, or has half of a surrogate pair.
    """
    if type(value) is not str or len(value) > most:
        raise ValueError(f"{shown(value)} is not a text of at most {most} characters")
    value.encode()
    return value


def boolean(value: object) -> bool:
    """Return true or false.

    Raises:
        ValueError: it is neither.
    """
    if type(value) is not bool:
        raise ValueError(f"{shown(value)} is neither true nor false")
    return value


def rows(value: object) -> Sequence[Any]:
    """Return a JSON array.

    Raises:
        ValueError: it is not an array.
    """
    if type(value) is not list:
        raise ValueError(f"{shown(value)} is not a list")
    return value


def pair(value: object) -> tuple[Any, Any]:
    """Return the two elements of a JSON array.

    Raises:
        ValueError: it is not an array of two.
    """
    if type(value) is not list or len(value) != 2:
        raise ValueError(f"{shown(value)} is not a list of two")
    return value[0], value[1]


def epoch_pair(value: object) -> tuple[int, int]:
    """Return the leader epoch, or -1, and the offset in a JSON array.

    Raises:
        ValueError: it is not such an array.
    """
    epoch, offset = pair(value)
    return whole_number(epoch, -1, MAX_INT32), whole_number(offset)


def shown(value: object) -> str:
    """Return the beginning of a value for a message; a foreign value can be long."""
    if isinstance(value, bytes | str):
        return repr(value[:_SHOWN])
    if isinstance(value, Mapping | Sequence):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length()} bits"
    return repr(value)


def _parse(data: bytes, most: int, depth: int = MAX_DEPTH) -> object:
    if len(data) > most:
        raise ValueError(f"{len(data)} bytes; at most {most} are expected")
    check_depth(data, depth)
    return json.loads(data.decode("utf-8"), parse_float=_finite, parse_constant=_refuse)


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:_SHOWN]} is larger than a 64-bit number")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number of JSON")
