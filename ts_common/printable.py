r"""Text without characters that command a terminal, or that reorder or break a line on a page.

Names of objects, directories and topics, record values and answers of servers come from others. A control character in
them (C0, DEL, C1) can begin an escape sequence. A bidirectional one (U+202A to U+202E, U+2066 to U+2069, U+200E,
U+200F, U+061C) can show another text than the one that is there. What `str.isprintable` refuses is escaped: these,
other format characters, separators other than the space, surrogates.
"""

import json
import re
from typing import Final

# Most text is ASCII; `isprintable` decides of the other characters one by one.
_SUSPECT: Final = re.compile(r"[^\x20-\x7e]")


def printable(text: str) -> str:
    r"""Return the text in one line, each unprintable character escaped as Python does: `\n`, `\x1b`, `\u202e`."""
    return text if text.isprintable() else _SUSPECT.sub(_escaped, text)


def printable_lines(text: str) -> str:
    """Return the text as `printable` does, but with its line feeds as they are."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


def printable_json(document: str) -> str:
    r"""Return an equal JSON document, each unprintable character of its strings escaped: `\u001b`, `\u202e`.

    Args:
        document: valid JSON. Outside of its strings it has no unprintable character other than line breaks.
    """
    if document.isprintable():
        return document
    return "\n".join(_SUSPECT.sub(_escaped_in_json, line) for line in document.split("\n"))


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    return character if character.isprintable() else repr(character)[1:-1]


def _escaped_in_json(found: re.Match[str]) -> str:
    character = found[0]
    if character.isprintable():
        return character
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]
