"""Changes of keys: the columns of another parser, the key of each record, and whether it deletes the key."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ts_common.schemas.contract import Codec
from ts_tables.parsers.contract import Parsed, Parser
from ts_tables.parsers.decoded import Reading
from ts_tables.parsers.inference import FoundColumn, Member
from ts_tables.parsers.table_types import fitted, table_type

KEY: Final = "_key"
IS_DELETED: Final = "_is_deleted"


class ChangesParser(Parser):
    """Adds the key, and whether the value is null, to the rows of a parser.

    Args:
        values: parses the values.
        keys: decodes the keys; None for bytes. A key that it refuses, or that does not fit the type of a column,
            refuses the record.
        needs_key: whether a record without a key is refused.
    """

    def __init__(self, values: Parser, keys: Reading | None = None, *, needs_key: bool = False) -> None:
        self._values = values
        self._needs_key = needs_key
        self._read_keys = keys
        self._keys = None if keys is None else keys.codec

    @property
    def columns(self) -> pa.Schema:
        """The columns of its rows."""
        kind = pa.binary() if self._keys is None else table_type(self._keys.arrow_type)
        return pa.schema([(KEY, kind), (IS_DELETED, pa.bool_()), *self._values.columns])

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
        return ChangesParser(self._values.with_columns(found), self._read_keys, needs_key=self._needs_key)

    def grown(self, members: Sequence[Member], others: Sequence[str]) -> Parser:
        """Return the parser with columns of members that have none; raise as `Parser.grown`."""
        values = self._values.grown(members, [*others, KEY, IS_DELETED])
        return ChangesParser(values, self._read_keys, needs_key=self._needs_key)

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
        rows = parsed.rows.filter(stays).columns if parsed.rows.num_columns else []
        columns = [keys.take(of_row), records["value"].is_null().take(of_row), *rows]
        numbers = sorted(refused)
        return Parsed(
            pa.RecordBatch.from_arrays(columns, schema=self.columns),
            of_row,
            pa.array(numbers, pa.int32()),
            pa.array([refused[number] for number in numbers], pa.string()),
            parsed.unknown,
        )


def base_of(parser: Parser) -> tuple[tuple[str, str], ...]:
    """Return names and types of the columns of a parser that it did not find, as a table's state has them.

    The column of keys that have a schema is not among them: the state names the schema.
    """
    columns = parser.with_columns(()).columns
    return tuple((each.name, str(each.type)) for each in columns if each.name != KEY or parser.key_schema is None)
