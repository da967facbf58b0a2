"""Columns of parsers: their names, types and where their values are.

Types are texts: `boolean`, `int`, `long`, `float`, `double`, `decimal(10,2)`, `string`, `binary`, `date`, `timestamp`,
`json`, and of these `list<...>`, `map<string, ...>` and `struct<name: ..., name: ...>`. Those of Iceberg's
specification have its meaning: `timestamp` is a moment with microseconds, `timestamptz` there. `json` is text.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

import pyarrow as pa

from ts_common.suggestions import nearest
from ts_tables.parsers.table_types import WITHOUT_CASE, one_name

MOMENT: Final = pa.timestamp("us", tz="UTC")
_PLAIN: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": MOMENT,
}
_JSON: Final = "json"
_NESTED: Final = ("list", "map", "struct", "decimal")
_UNITS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
_MOST_DIGITS: Final = 38
_MOST_DEPTH: Final = 16
_TOKEN: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|[0-9]{1,2}|[<>(),:])", re.ASCII)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a parser.

    Attributes:
        type: of Arrow.
        path: names of the members that lead to the value, in JSON; the column's name by default.
        required: whether a record without a value is refused.
        is_json: whether it is the text of any JSON value.
        microseconds: of one unit of a time that is a number; 0 if no number is a time.
    """

    name: str
    type: pa.DataType
    path: tuple[str, ...]
    required: bool = False
    is_json: bool = False
    microseconds: int = 0

    @property
    def label(self) -> str:
        """The type, for a reason."""
        return "timestamp" if self.type == MOMENT else str(self.type)


def make_column(
    name: str, kind: str, path: Sequence[str] | None = None, *, required: bool = False, unit: str | None = None
) -> Column:
    """Return a column.

    Args:
        kind: its type as text.
        path: names of members; None for the column's name.
        required: whether a record without a value is refused.
        unit: of a `timestamp` that is a number: `s`, `ms` or `us` since 1970; None if it is text.

    Raises:
        ValueError: the type or the unit is wrong, with what is accepted.
    """
    if unit is not None and (kind.strip() != "timestamp" or unit not in _UNITS):
        raise ValueError(f"unit {unit}: a timestamp has {', '.join(_UNITS)}, and other types have none")
    is_json = kind.strip() == _JSON
    return Column(
        name,
        pa.string() if is_json else parse_type(kind),
        (name,) if path is None else tuple(path),
        required,
        is_json,
        0 if unit is None else _UNITS[unit],
    )


def parse_type(text: str) -> pa.DataType:
    """Return a type of Arrow.

    Args:
        text: as above.

    Raises:
        ValueError: it is no type, with what is accepted.
    """
    tokens, at = [], 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            _fail(text, f"unexpected {text[at:].strip()[:10]!r}")
        tokens.append(match[1])
        at = match.end()
    reader = _Tokens(text, tokens)
    found = _type(reader, 0)
    if reader.left:
        _fail(text, f"unexpected {reader.left[0]!r}")
    return found


class _Tokens:
    def __init__(self, text: str, tokens: list[str]) -> None:
        self.text = text
        self.left = tokens

    def next(self, expected: str | None = None) -> str:
        found = self.left.pop(0) if self.left else "the end"
        if expected is not None and found != expected:
            _fail(self.text, f"{expected!r} is expected, and not {found!r}")
        return found


def _type(tokens: _Tokens, depth: int) -> pa.DataType:
    name = tokens.next()
    if depth > _MOST_DEPTH:
        _fail(tokens.text, f"it has more than {_MOST_DEPTH} levels")
    if name in _PLAIN:
        return _PLAIN[name]
    if name == "decimal":
        return _decimal(tokens)
    if name not in _NESTED:
        _fail(tokens.text, f"{name} is unknown{nearest(name, [*_PLAIN, *_NESTED])}")
    tokens.next("<")
    if name == "list":
        found = pa.list_(pa.field("element", _type(tokens, depth + 1)))
    elif name == "map":
        if tokens.next() != "string":
            _fail(tokens.text, "the keys of a map are strings")
        tokens.next(",")
        found = pa.map_(pa.string(), _type(tokens, depth + 1))
    else:
        found = pa.struct(_fields(tokens, depth + 1))
    tokens.next(">")
    return found


def _fields(tokens: _Tokens, depth: int) -> list[pa.Field]:
    fields: list[pa.Field] = []
    while True:
        name = tokens.next()
        tokens.next(":")
        fields.append(pa.field(name, _type(tokens, depth)))
        if not tokens.left or tokens.left[0] != ",":
            break
        tokens.next(",")
    if twice := one_name(pa.struct(fields)):
        _fail(tokens.text, f"fields {twice[0]} and {twice[1]} of a struct have one name, {WITHOUT_CASE}")
    return fields


def _decimal(tokens: _Tokens) -> pa.DataType:
    tokens.next("(")
    precision = tokens.next()
    tokens.next(",")
    scale = tokens.next()
    tokens.next(")")
    numbers = [int(each) if each.isdigit() else -1 for each in (precision, scale)]
    if not 0 <= numbers[1] <= numbers[0] <= _MOST_DIGITS or not numbers[0]:
        _fail(tokens.text, f"a decimal has up to {_MOST_DIGITS} digits, as in decimal(10,2)")
    return pa.decimal128(*numbers)


def _fail(text: str, reason: str) -> NoReturn:
    accepted = ", ".join([*_PLAIN, _JSON, "decimal(10,2)", "list<...>", "map<string, ...>", "struct<name: ...>"])
    raise ValueError(f"type {text!r}: {reason}; accepted are {accepted}")
