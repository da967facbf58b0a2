"""Columns that a parser finds in the values: each has the values of one kind of a member of JSON objects.

A member's first kind has the member's name. Values of another kind have a column of their own, `<name>_<kind>`, so no
value changes its type or is lost. Integers are in a column of doubles, if it was found before that of integers and
they fit exactly. The columns of a table only grow: a record has the same columns whenever it is parsed again.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, NamedTuple

import pyarrow as pa

KINDS: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "json": pa.string(),
}
_INT64: Final = range(-(1 << 63), 1 << 63)
EXACT: Final = range(-(1 << 53), (1 << 53) + 1)  # integers that a double has
_KIND_OF: Final = {bool: "boolean", float: "double", str: "string", dict: "json", list: "json"}
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_]")
_NAME_LENGTH: Final = 100


class FoundColumn(NamedTuple):
    """A column that was found.

    Attributes:
        kind: of the values: a key of `KINDS`, or of fields of a schema a text of `ts_tables.parsers.table_types`.
    """

    name: str
    member: str
    kind: str


@dataclass(frozen=True, slots=True)
class Member:
    """A member with values of a kind that has no column yet."""

    name: str
    kind: str


def kind_of(value: Any) -> str | None:
    """Return the kind of a value of JSON; None for null. An integer of more than 64 bits is text of JSON."""
    if value is None:
        return None
    if type(value) is int:
        return "long" if value in _INT64 else "json"
    if isinstance(value, Decimal):
        exponent = value.as_tuple().exponent
        is_fraction = isinstance(exponent, int) and exponent < 0
        return "double" if is_fraction and (float(value) or not value) else "json"  # else it would be 0
    return _KIND_OF[type(value)]


def with_members(
    found: Sequence[FoundColumn], members: Iterable[Member], others: Iterable[str], *, one_kind: bool = False
) -> list[FoundColumn]:
    """Return the columns with those of new members.

    Args:
        found: before; they stay.
        members: in their order. One that has integers and other numbers gets a column of doubles.
        others: names of other columns.
        one_kind: whether only the first kind of a member gets a column.
    """
    kinds: dict[str, dict[str, None]] = {}
    for each in members:
        kinds.setdefault(each.name, {})[each.kind] = None
    known = {(each.member, each.kind) for each in found}
    names = {name.lower() for name in (*others, *(each.name for each in found))}
    columns = [*found]
    for member, some in kinds.items():
        if "double" in some and "long" in some and (member, "long") not in known:
            del some["long"]
        is_known = any(each.member == member for each in found)
        for kind in (() if is_known else [*some][:1]) if one_kind else some:
            if (member, kind) in known:
                continue
            name = free_name(_UNSAFE.sub("_", member)[:_NAME_LENGTH] or "member", kind, names)
            names.add(name.lower())
            columns.append(FoundColumn(name, member, kind))
    return columns


def free_name(name: str, kind: str, used: Collection[str]) -> str:
    """Return the name of a column, with its kind and a number if other columns have it.

    Args:
        used: names of other columns, in lower case, as engines of SQL compare them.
    """
    number = 1
    found = name
    while found.lower() in used:
        found = f"{name}_{kind}" if number == 1 else f"{name}_{kind}_{number}"
        number += 1
    return found
