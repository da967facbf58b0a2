"""How the columns of a table differ from those that a changed file of tables makes, for a message."""

from collections.abc import Mapping, Sequence
from typing import Final

WAYS_OUT: Final = (
    "undo the change, make a generation of the table (docs/parsed-tables.md, Generations), or create a table of "
    "another name"
)
_SHOWN: Final = 10


def differing(table: Mapping[str, str], file: Mapping[str, str]) -> str:
    """Return which columns differ; empty if they are the same.

    Args:
        table: the types of its columns as text, by name.
        file: those of the columns that the file of tables makes.
    """
    new = [f"{name} {kind}" for name, kind in file.items() if name not in table]
    gone = [f"{name} {kind}" for name, kind in table.items() if name not in file]
    others = [
        f"{name} is {table[name]} in the table and {kind} in the file"
        for name, kind in file.items()
        if table.get(name, kind) != kind
    ]
    found = [
        *([f"the table has no column {_listed(new)}"] if new else ()),
        *([f"the file makes no column {_listed(gone)}"] if gone else ()),
        *([_listed(others)] if others else ()),
    ]
    return "; ".join(found)


def _listed(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return f"{', '.join(texts[:_SHOWN])}{more}"
