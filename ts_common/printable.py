r"""Text without control characters of terminals, and without characters that reorder or break a line on a page.

Other programs determine names of objects, directories and topics, record values and responses of servers. A control
character in them (C0, DEL, C1) can begin an escape sequence. A bidirectional one (U+202A to U+202E, U+2066 to U+2069,
U+200E, U+200F, U+061C) can make a text look like another. All characters that `str.isprintable` rejects are escaped:
these, other format characters, separators other than the space, and surrogates.
"""

import json
from collections.abc import Callable
from typing import Final

_KEPT: Final = 1 << 16  # characters whose escape is cached: ordinary text has few of them, a hostile one can have all


def printable(text: str) -> str:
    r"""Return the text in one line, each unprintable character escaped as Python does: `\n`, `\x1b`, `\u202e`."""
    return text if text.isprintable() else text.translate(_IN_TEXT)


def printable_lines(text: str) -> str:
    """Return the text as `printable` does, but with its line feeds as they are."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


def printable_json(document: str) -> str:
    r"""Return an equal JSON document, each unprintable character of its strings escaped: `\u001b`, `\u202e`.

    Args:
        document: valid JSON. Outside of its strings it has no unprintable character other than line breaks.
    """
    return document if document.isprintable() else document.translate(_IN_JSON)


class _Escapes(dict[int, int | str]):
    """A table for `str.translate` that is filled on demand, up to a fixed size."""

    def __init__(self, escaped: Callable[[str], str], kept: str = "") -> None:
        super().__init__((ord(character), character) for character in kept)
        self._escaped = escaped

    def __missing__(self, code: int) -> int | str:
        character = chr(code)
        result = code if character.isprintable() else self._escaped(character)
        if len(self) < _KEPT:
            self[code] = result
        return result


def _escaped_in_json(character: str) -> str:
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]


_IN_TEXT: Final = _Escapes(lambda character: repr(character)[1:-1])
_IN_JSON: Final = _Escapes(_escaped_in_json, "\n")
