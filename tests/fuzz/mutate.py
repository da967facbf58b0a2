"""Changes to bytes and to JSON that are likely to be read wrongly."""

import copy
import json
import random
import re
from typing import Any

NUMBERS = (
    -1,
    0,
    1,
    2,
    7,
    127,
    128,
    255,
    1000,
    (1 << 31) - 1,
    1 << 31,
    -(1 << 31),
    1 << 32,
    (1 << 53) + 1,
    (1 << 63) - 1,
    1 << 63,
    -(1 << 63),
    -(1 << 63) - 1,
    1 << 64,
    1 << 70,
)
NUMERALS = (
    *map(str, NUMBERS),
    "1e999",
    "-1e999",
    "1e5",
    "1.5",
    "NaN",
    "Infinity",
    "-0",
    "007",
    "1_000",
    "\u0663",
    " 5",
    "0x10",
    "9" * 400,
    "9" * 5000,
    "",
)
TEXTS = (
    "",
    " ",
    "/",
    "//",
    ".",
    "..",
    "a/../b",
    "a//b",
    "/a",
    "a/",
    ".hidden",
    "\0",
    "\n",
    "\r\nx-injected: 1",
    "\x1b[2J",
    "\u009b31m",
    "\u202e",
    "\u00e9",
    "\U0001f642",
    "%2F",
    "%",
    "%zz",
    "+",
    "<",
    "&amp;",
    "&#x41;",
    "&lol;",
    '"',
    "'",
    "\\",
    "W/",
    'W/"x"',
    "*",
    "a" * 300,
    "a" * 5000,
    "null",
    "true",
    "00000000000000000000.log",
    "0" * 20,
)
_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1 << 63,
    1 << 70,
    1.5,
    1e308,
    float("inf"),
    float("nan"),
    "",
    "x",
    "\ud800",
    [],
    {},
    [[]],
    [None],
    {"a": 1},
    [1, 2, 3],
    "9" * 5000,
)
_NUMERAL = re.compile(rb"-?[0-9]+")
_BYTES = (0, 1, 2, 3, 0x0A, 0x22, 0x2F, 0x3C, 0x5B, 0x7B, 0x7F, 0x80, 0x81, 0xFE, 0xFF)


def mutate_bytes(chance: random.Random, data: bytes) -> bytes:
    """The same bytes with some places changed."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        if not changed:
            changed += b"\0"
        at = chance.randrange(len(changed))
        match chance.randrange(10):
            case 0:
                changed[at] = chance.choice(_BYTES)
            case 1:
                changed[at] ^= 1 << chance.randrange(8)
            case 2:
                del changed[at : at + chance.randrange(1, 9)]
            case 3:
                changed[at:at] = bytes(chance.choice(_BYTES) for _ in range(chance.randrange(1, 12)))
            case 4:
                changed[at : at + 8] = chance.choice(NUMBERS).to_bytes(16, "big", signed=True)[-8:]
            case 5:
                changed[at : at + 4] = chance.choice(NUMBERS).to_bytes(16, "big", signed=True)[-4:]
            case 6:
                source = chance.randrange(len(changed))
                changed[at:at] = changed[source : source + chance.randrange(1, 60)]
            case 7:
                del changed[at:]
            case 8:
                changed[at:at] = chance.choice(TEXTS).encode()
            case _:
                found = [*_NUMERAL.finditer(changed)]
                if found:
                    one = chance.choice(found)
                    changed[one.start() : one.end()] = chance.choice(NUMERALS).encode()
    return bytes(changed)


def mutate_json(chance: random.Random, value: Any) -> Any:
    """The same value with some nodes replaced, removed, repeated or wrapped."""
    root = [copy.deepcopy(value)]
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        holder, place = chance.choice(_places(root))
        match chance.randrange(8):
            case 0:
                if holder is not root:
                    del holder[place]
            case 1:
                holder[place] = [holder[place]]
            case 2 if isinstance(holder, list):
                holder.insert(place, copy.deepcopy(holder[place]))
            case 3:
                holder[place] = chance.choice(NUMBERS)
            case 4:
                holder[place] = chance.choice(TEXTS)
            case 5 if isinstance(holder, dict):
                holder[chance.choice(TEXTS)] = holder.pop(place)
            case 6:
                holder[place] = str(holder[place])
            case _:
                holder[place] = copy.deepcopy(chance.choice(_VALUES))
    return root[0]


def json_text(chance: random.Random, value: Any) -> bytes:
    """A value as JSON, sometimes changed and sometimes no JSON."""
    roll = chance.random()
    if roll > 0.15:
        value = mutate_json(chance, value)
    text = json.dumps(value).encode()
    if roll > 0.85:
        text = mutate_bytes(chance, text)
    if roll > 0.98:
        opening = chance.choice((b"[", b'{"a":'))
        text = opening * chance.choice((40, 900, 30_000))
    return text


def _places(root: Any) -> list[tuple[Any, Any]]:
    """Every holder of a node, and where in it."""
    found: list[tuple[Any, Any]] = []
    pending = [root]
    while pending:
        holder = pending.pop()
        items = list(holder.items()) if isinstance(holder, dict) else list(enumerate(holder))
        for place, node in items:
            found.append((holder, place))
            if isinstance(node, dict | list):
                pending.append(node)
    return found
