"""Columns of the record in addition to those of a parser: its key, its headers, and whether it deletes the key."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ts_reader.decode.arrow_schema import TYPES
from ts_reader.schemas.contract import Codec
from ts_tables.parsers.contract import Parsed, Parser
from ts_tables.parsers.decoded import SchemaReading
from ts_tables.parsers.inference import FoundColumn, Member
from ts_tables.parsers.table_types import fitted, table_type

KEY: Final = "_key"
HEADERS: Final = "_headers"
IS_DELETED: Final = "_is_deleted"
CHANGES: Final = (KEY, IS_DELETED)


class RecordParser(Parser):
    """Adds columns of the record to the rows of a parser.

    Args:
        values: parses the values.
        included: the names of the columns: some of `KEY`, `HEADERS` and `IS_DELETED`.
        keys: decodes the keys; None for bytes. A key that it refuses, or that does not fit the type of a column,
            refuses the record.
        needs_key: whether a record without a key is refused.
    """

    def __init__(
        self,
        values: Parser,
        included: Sequence[str] = CHANGES,
        keys: SchemaReading | None = None,
        *,
        needs_key: bool = False,
    ) -> None:
        self._values = values
        self._included = tuple(included)
        self._needs_key = needs_key
        self._read_keys = keys
        self._keys = None if keys is None else keys.codec

    @property
    def columns(self) -> pa.Schema:
        """The columns of its rows."""
        kind = pa.binary() if self._keys is None else table_type(self._keys.arrow_type)
        types = {KEY: kind, HEADERS: TYPES["headers"], IS_DELETED: pa.bool_()}
        return pa.schema([*((name, types[name]) for name in self._included), *self._values.columns])

    @property
    def found(self) -> Sequence[FoundColumn]:
        """The columns that were found in values."""
        return self._values.found

    @property
    def key_codec(self) -> Codec | None:
        """The codec of the keys; None if they are bytes."""
        return self._keys

    @property
    def schemas(self) -> Sequence[str]:
        """The schemas of the values."""
        return self._values.schemas

    @property
    def layout(self) -> str | None:
        """That of the values."""
        return self._values.layout

    @property
    def key_schema(self) -> str | None:
        """The schema of the keys."""
        return None if self._read_keys is None else self._read_keys.schema

    def with_columns(self, found: Sequence[FoundColumn]) -> Parser:
        """Return the parser with other columns that were found; raise as `Parser.with_columns`."""
        return self._of(self._values.with_columns(found))

    def grown(self, members: Sequence[Member], others: Sequence[str]) -> Parser:
        """Return the parser with columns of members that have none; raise as `Parser.grown`."""
        return self._of(self._values.grown(members, [*others, *self._included]))

    def parse(self, records: pa.RecordBatch) -> Parsed:
        """Return the rows of a batch; raise as `Parser.parse`."""
        parsed = self._values.parse(records)
        keys, refused = records["key"], dict(zip(parsed.refused.to_pylist(), parsed.reasons.to_pylist(), strict=True))
        if self._keys is not None:
            decoded = self._keys.decode(keys, records["headers"] if self._keys.uses_headers else None)
            column = fitted(decoded.column, table_type(self._keys.arrow_type))
            keys = column.array
            for record in pc.indices_nonzero(decoded.refused.is_valid()).to_pylist():
                refused.setdefault(record, f"{KEY}: {decoded.refused[record].as_py()}")
            for record, reason in column.reasons.items():
                refused.setdefault(record, f"{KEY}: {reason}")
        if self._needs_key:
            for record in pc.indices_nonzero(keys.is_null()).to_pylist():
                refused.setdefault(record, f"{KEY}: the record has none")
        of_row = parsed.records.to_numpy()
        stays = pa.array(~np.isin(of_row, np.fromiter(refused, np.int32, len(refused))))
        of_row = parsed.records.filter(stays)
        of_records = {KEY: keys, HEADERS: records["headers"], IS_DELETED: records["value"].is_null()}
        own = [of_records[name].take(of_row) for name in self._included]
        numbers = sorted(refused)
        return Parsed(
            pa.RecordBatch.from_arrays([*own, *parsed.rows.filter(stays).columns], schema=self.columns),
            of_row,
            pa.array(numbers, pa.int32()),
            pa.array([refused[number] for number in numbers], pa.string()),
            parsed.unknown,
        )

    def _of(self, values: Parser) -> "RecordParser":
        return RecordParser(values, self._included, self._read_keys, needs_key=self._needs_key)


def base_of(parser: Parser) -> tuple[tuple[str, str], ...]:
    """Return names and types of the columns of a parser that it did not find, as a table's state has them.

    The column of keys that have a schema is not among them: the state names the schema.
    """
    columns = parser.with_columns(()).columns
    return tuple((each.name, str(each.type)) for each in columns if each.name != KEY or parser.key_schema is None)
