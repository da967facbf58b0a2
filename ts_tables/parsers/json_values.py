"""JSON values: the members of an object are columns. An array of objects has a row for each."""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from ts_tables.parsers.columns import Column
from ts_tables.parsers.contract import Parsed, Parser
from ts_tables.parsers.converted import parsed_of, shown
from ts_tables.parsers.json_text import json_value
from ts_tables.parsers.python_values import from_values

MOST_ROWS: Final = 100_000  # of one record
_NOTHING: Final[dict[str, Any]] = {}


class JsonParser(Parser):
    """Parses values that are JSON objects, or arrays of them.

    A value that does not fit its column refuses the record. A member without a column is left out. A record without a
    value, as a tombstone, is a row of nulls.

    Args:
        columns: of the rows.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = tuple(columns)
        self._exactly = any(column.is_json or "decimal" in str(column.type) for column in columns)

    @property
    def columns(self) -> pa.Schema:
        """The columns of its rows."""
        return pa.schema([(column.name, column.type) for column in self._columns])

    def parse(self, records: pa.RecordBatch) -> Parsed:
        """Return the rows of a batch; raise `BatchTooLarge` as `Parser.parse`."""
        objects: list[dict[str, Any]] = []
        of_row: list[int] = []
        refused: dict[int, str] = {}
        for number, data in enumerate(records["value"].to_pylist()):
            try:
                value = _NOTHING if data is None else json_value(data, exactly=self._exactly)
                found = [value] if type(value) is dict else _objects(value)
            except ValueError as error:
                refused[number] = str(error)
                continue
            objects += found
            of_row += [number] * len(found)
        columns = [from_values(_members(objects, column.path), column) for column in self._columns]
        return parsed_of(self.columns, columns, of_row, refused, self.columns.names)


def _objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of an array.

    Raises:
        ValueError: it is no array of objects.
    """
    if not isinstance(value, list) or not value or any(type(each) is not dict for each in value):
        raise ValueError(f"{shown(value)} is no JSON object, and no array of such")
    if len(value) > MOST_ROWS:
        raise ValueError(f"the array has {len(value)} objects; at most {MOST_ROWS} are parsed")
    return value


def _members(objects: Sequence[dict[str, Any]], path: Sequence[str]) -> list[Any]:
    """Return the value at a path of each object; None where it is missing."""
    name, *inner = path
    if not inner:
        return [each.get(name) for each in objects]
    return [_inner(each.get(name), inner) for each in objects]


def _inner(value: Any, path: Sequence[str]) -> Any:
    for name in path:
        if type(value) is not dict:
            return None
        value = value.get(name)
    return value
