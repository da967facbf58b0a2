"""Values of YAML files as people write them: sizes (`256MiB`), times (`1h`), shares (`50%`), texts as lists, stores."""

import re
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, WithJsonSchema

from ts_common.durations import duration_milliseconds
from ts_common.errors import ConfigurationError
from ts_common.store.factory import parse_location

_BYTES: Final = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_SIZE: Final = re.compile(r"\s*([0-9]{1,15})\s*([a-zA-Z]*)\s*")
_SHARE: Final = re.compile(r"\s*([0-9]{1,3}(?:\.[0-9]{1,6})?)\s*%\s*")


def parse_size(value: Any) -> int:
    """Return bytes.

    Raises:
        ValueError: it is no size.
    """
    match = _SIZE.fullmatch(_text(value))
    if match is None or match[2].upper() not in _BYTES or isinstance(value, bool):
        raise ValueError(f"{_shown(value)} is no size; a number with KiB, MiB, GiB or TiB is expected, as in 256MiB")
    return int(match[1]) * _BYTES[match[2].upper()]


def parse_seconds(value: Any) -> int:
    """Return seconds of a time as `parse_milliseconds` reads it."""
    return parse_milliseconds(value) // 1000


def parse_milliseconds(value: Any) -> int:
    """Return milliseconds.

    Raises:
        ValueError: it is no time.
    """
    found = duration_milliseconds(_text(value), {"s", "m", "h", "d"})
    if found is None:
        raise ValueError(f"{_shown(value)} is no time; a number with s, m, h or d is expected, as in 90s or 1h")
    return found


def parse_share(value: Any) -> float:
    """Return a share, above 0 and at most 1, of a text such as 50%.

    Raises:
        ValueError: it is no share.
    """
    match = _SHARE.fullmatch(_text(value))
    if match is None or not 0 < (share := float(match[1])) <= 100:
        raise ValueError(f"{_shown(value)} is no share; more than 0% is expected, up to 100%")
    return share / 100


def listed(value: Any) -> Any:
    """Return one text as a list of it."""
    return [value] if isinstance(value, str) else value


def _text(value: Any) -> str:
    """Return the text of one value; empty for a list or names with values, which can be many times larger."""
    return str(value) if isinstance(value, str | int | float) else ""


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str | int | float) else "it"


def check_store(value: str, *, label: str = "") -> str:
    """Return the URL of a store.

    Args:
        label: begins the message.

    Raises:
        ValueError: it is another text.
    """
    try:
        parse_location(value)
    except ConfigurationError as error:
        raise ValueError(label + "; ".join(error.problems)) from error
    return value


Size = Annotated[
    int, BeforeValidator(parse_size), WithJsonSchema({"type": ["string", "integer"], "examples": ["256MiB"]})
]
Seconds = Annotated[int, BeforeValidator(parse_seconds), WithJsonSchema({"type": "string", "examples": ["1h"]})]
Milliseconds = Annotated[
    int, BeforeValidator(parse_milliseconds), WithJsonSchema({"type": "string", "examples": ["1h"]})
]
Share = Annotated[float, BeforeValidator(parse_share), WithJsonSchema({"type": "string", "examples": ["50%"]})]
# What `listed` accepts.
LIST: Final = WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]})
