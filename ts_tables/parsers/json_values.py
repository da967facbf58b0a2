"""JSON values: the members of an object are columns. An array of objects has a row for each."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from operator import itemgetter
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ts_common.errors import BatchTooLarge
from ts_reader.schemas.json_values import double_of, json_text, json_value
from ts_reader.schemas.limits import MAX_JSON_VALUE_DEPTH
from ts_tables.parsers.contract import Parsed, Parser
from ts_tables.parsers.converted import Converted, parsed_of, shown
from ts_tables.parsers.inference import EXACT, KINDS, FoundColumn, Member, kind_of, with_members
from ts_tables.parsers.parser_columns import Column
from ts_tables.parsers.python_values import from_values
from ts_tables.parsers.table_types import nested_types

MOST_ROWS: Final = 100_000  # of one record
_LONGEST_NAME: Final = 1000  # characters of a member that gets a column
_AT_ONCE: Final = 64  # objects whose members are collected together; one that lacks a member slows those down
# Numbers that `orjson` can change beyond the nearest double: integers beyond 64 bits, with an exponent too, from 19
# digits on, and fractions near 0.
_CHANGED: Final = r"(?:[0-9]\.?){19}|[0-9][eE]-[0-9]{3}"
# Also fractions, and numbers with an exponent, of 16 digits or more: their double can be an integer.
_ROUNDED: Final = "|".join(rf"[0-9]{{{count}}}\.[0-9]{{{16 - count}}}" for count in range(1, 16))
_CHANGED_OR_ROUNDED: Final = rf"{_CHANGED}|[0-9]{{16}}[.eE]|{_ROUNDED}"
_MOST_FLAT: Final = 2 * MAX_JSON_VALUE_DEPTH  # bytes of a text that cannot be nested deeper
_NOTHING: Final[dict[str, Any]] = {}


class OnType(StrEnum):
    """What happens to a value of another kind than its member had first."""

    COLUMN = "column"
    QUARANTINE = "quarantine"


class JsonParser(Parser):
    """Parses values that are JSON objects, or arrays of them.

    A value that does not fit its column refuses the record. A member without a column is left out. A record without a
    value, as a tombstone, is a row of nulls.

    Args:
        infers: whether members of the objects without a column get one, as `ts_tables.parsers.inference` describes.
        on_type: what happens to a value of another kind than its member had first: it gets a column of its own, or its
            record is refused.
        found: columns that were found before.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        *,
        infers: bool = False,
        on_type: OnType = OnType.COLUMN,
        found: Sequence[FoundColumn] = (),
    ) -> None:
        self._columns = tuple(columns)
        kinds = [kind for column in columns for kind in nested_types(column.type)]
        has_digits = any(pa.types.is_integer(kind) or pa.types.is_decimal(kind) for kind in kinds)
        if infers or has_digits or any(column.is_json or column.microseconds for column in columns):
            self._inexact = _CHANGED_OR_ROUNDED
        else:
            self._inexact = _CHANGED if any(map(pa.types.is_floating, kinds)) else ""
        self._infers = infers
        self._on_type = on_type
        self._found = tuple(found)

    @property
    def columns(self) -> pa.Schema:
        """The columns of its rows."""
        found = [(each.name, KINDS[each.kind]) for each in self._found]
        return pa.schema([*((column.name, column.type) for column in self._columns), *found])

    @property
    def found(self) -> Sequence[FoundColumn]:
        """The columns that were found in values."""
        return self._found

    def with_columns(self, found: Sequence[FoundColumn]) -> Parser:
        """Return the parser with other columns that were found; raise as `Parser.with_columns`."""
        if not self._infers:
            return super().with_columns(found)
        return JsonParser(self._columns, infers=True, on_type=self._on_type, found=found)

    def grown(self, members: Sequence[Member], others: Sequence[str]) -> Parser:
        """Return the parser with columns of members that have none; raise as `Parser.grown`."""
        if not self._infers:
            return super().grown(members, others)
        names = [*others, *(column.name for column in self._columns)]
        one_kind = self._on_type is OnType.QUARANTINE
        return self.with_columns(with_members(self._found, members, names, one_kind=one_kind))

    def parse(self, records: pa.RecordBatch) -> Parsed:
        """Return the rows of a batch; raise `BatchTooLarge` as `Parser.parse`."""
        objects: list[dict[str, Any]] = []
        of_row: list[int] = []
        refused: dict[int, str] = {}
        members, added = _Members([column.path for column in self._columns]), 0
        texts = records["value"]
        exactly = _rows(pc.match_substring_regex(texts, self._inexact)) if self._inexact else frozenset()
        checked = exactly | _rows(pc.greater(pc.binary_length(texts), _MOST_FLAT))
        for number, data in enumerate(texts.to_pylist()):
            try:
                if data is None:
                    value = _NOTHING
                else:  # without a call of a function where nothing else is checked
                    value = json_value(data, exactly=number in exactly) if number in checked else orjson.loads(data)
                some = [value] if type(value) is dict else _objects(value)
            except ValueError as error:
                refused[number] = str(error)
                continue
            objects += some
            of_row += [number] * len(some)
            if len(objects) - added >= _AT_ONCE:
                members.add(objects[added:])
                if not self._infers:
                    objects.clear()
                added = len(objects)
        members.add(objects[added:])
        columns = [from_values(values, column) for values, column in zip(members.values, self._columns, strict=True)]
        if not self._infers:
            return parsed_of(self.columns, columns, of_row, refused, self.columns.names)
        found, unknown, wrong = self._infer(objects)
        for row, reason in wrong.items():
            refused.setdefault(of_row[row], reason)
        parsed = parsed_of(self.columns, [*columns, *found], of_row, refused, self.columns.names)
        return replace(parsed, unknown=unknown)

    def _infer(
        self, objects: Sequence[dict[str, Any]]
    ) -> tuple[list[Converted], tuple[Member, ...], Mapping[int, str]]:
        """Return the columns that were found, members of the objects without a column, and why objects are refused."""
        declared = {column.path[0] for column in self._columns if len(column.path) == 1}
        places = {(column.member, column.kind): number for number, column in enumerate(self._found)}
        first = {column.member: number for number, column in reversed([*enumerate(self._found)])}
        columns: list[list[Any]] = [[None] * len(objects) for _ in self._found]
        reasons: list[dict[int, str]] = [{} for _ in self._found]
        unknown: dict[Member, None] = {}
        wrong: dict[int, str] = {}
        for row, each in enumerate(objects):
            for name, value in each.items():
                kind = None if name in declared else kind_of(value)
                if kind is None:
                    continue
                at = places.get((name, kind))
                if kind == "long" and value in EXACT:
                    double = places.get((name, "double"))
                    if double is not None and (at is None or double < at):  # where it was before the longs were found
                        at = double
                if len(name) > _LONGEST_NAME:
                    wrong[row] = f"a member's name has {len(name)} characters; at most {_LONGEST_NAME} have a column"
                elif at is not None and kind == "json":
                    try:
                        columns[at][row] = json_text(value)
                    except ValueError as error:
                        wrong[row] = f"{self._found[at].name}: {error}"
                elif at is not None:
                    columns[at][row] = value
                elif self._on_type is OnType.QUARANTINE and name in first:
                    reasons[first[name]][row] = f"{shown(value)} is no {self._found[first[name]].kind}"
                else:
                    unknown[Member(name, kind)] = None
        return (
            [
                Converted(_array(values, KINDS[each.kind]), why)
                for values, each, why in zip(columns, self._found, reasons, strict=True)
            ],
            tuple(unknown),
            wrong,
        )


def _rows(are: pa.BooleanArray) -> frozenset[int]:
    """Return the rows that are true."""
    return frozenset(pc.indices_nonzero(are).to_pylist())


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return an array of values of one kind."""
    if kind == pa.float64():
        values = [None if value is None else double_of(value) for value in values]
    found = pa.array(values, kind)
    if isinstance(found, pa.ChunkedArray):
        raise BatchTooLarge(f"{len(values)} rows of a column have more than 2 GiB; parse fewer records at once")
    return found


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


class _Members:
    """Collects the values at paths of objects; None where one is missing."""

    def __init__(self, paths: Sequence[Sequence[str]]) -> None:
        self._paths = paths
        self._names = [path[0] for path in paths]
        # One call for all members of an object; of one name alone it would return no tuple.
        self._every = itemgetter(*self._names, self._names[0]) if paths else None
        self.values: list[list[Any]] = [[] for _ in paths]

    def add(self, objects: Sequence[dict[str, Any]]) -> None:
        """Add the values of objects, soon after they were parsed: then they are in the processor's cache."""
        if self._every is None or not objects:
            return
        try:
            found = [*zip(*map(self._every, objects), strict=True)][:-1]
        except KeyError:
            found = [tuple(each.get(name) for each in objects) for name in self._names]
        for values, path, some in zip(self.values, self._paths, found, strict=True):
            values.extend(some if len(path) == 1 else (_inner(value, path[1:]) for value in some))


def _inner(value: Any, path: Sequence[str]) -> Any:
    for name in path:
        if type(value) is not dict:
            return None
        value = value.get(name)
    return value
