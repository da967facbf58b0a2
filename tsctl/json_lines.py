"""One JSON document on one line, written in pieces, so that no long string is escaped at once.

A producer chooses the length of a value, and JSON may need six characters for each of its characters. A writer of whole
lines would need many times the memory of the value.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

from ts_common.printable import printable_json

_PIECE: Final = 1 << 18  # characters


def json_line(value: object) -> Iterator[str]:
    """Yield the text of a JSON line in pieces of a few MiB at most.

    Args:
        value: anything that `json.dumps` accepts, with strings as keys.

    Yields:
        parts of valid JSON, and the end of the line. Non-ASCII text is not escaped, so that it stays readable.
    """
    if _is_long(value):
        yield from _pieces(value)
        yield "\n"
    else:
        yield _text(value) + "\n"


def _text(value: object) -> str:
    return printable_json(json.dumps(value, separators=(",", ":"), ensure_ascii=False))


def _is_long(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) > _PIECE
    if isinstance(value, dict):
        return any(map(_is_long, value.values())) or any(map(_is_long, value))
    return isinstance(value, list) and any(map(_is_long, value))


def _pieces(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield '"'
        for at in range(0, len(value), _PIECE):
            yield _text(value[at : at + _PIECE])[1:-1]
        yield '"'
    elif isinstance(value, dict) and value:
        for place, (key, each) in enumerate(value.items()):
            yield "," if place else "{"
            yield from _pieces(key)
            yield ":"
            yield from _pieces(each)
        yield "}"
    elif isinstance(value, list) and value:
        for place, each in enumerate(value):
            yield "," if place else "["
            yield from _pieces(each)
        yield "]"
    else:
        yield _text(value)
