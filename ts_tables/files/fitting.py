"""A parser whose rows fit the files of its table: it refuses records with times that a column cannot hold."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from ts_reader.decode.arrow_schema import LATEST_MILLISECONDS, MILLISECONDS
from ts_reader.schemas.contract import Codec
from ts_tables.files.column_times import Times, check_held, times_of
from ts_tables.files.layout import Layout
from ts_tables.files.parsed_columns import TIMESTAMP
from ts_tables.parsers.contract import Parsed, Parser, refusing
from ts_tables.parsers.converted import halving
from ts_tables.parsers.inference import FoundColumn, Member
from ts_tables.parsers.table_types import nested_types


class FittingParser(Parser):
    """Refuses what a parser accepts and the files of its table do not hold. It has the columns of that parser.

    Args:
        layout: of the files; its columns do not matter.
    """

    def __init__(self, parser: Parser, layout: Layout) -> None:
        self._parser = parser
        self._layout = layout

    @property
    def columns(self) -> pa.Schema:
        """Those of the parser."""
        return self._parser.columns

    @property
    def found(self) -> Sequence[FoundColumn]:
        """Those of the parser."""
        return self._parser.found

    @property
    def schemas(self) -> Sequence[str]:
        """Those of the parser."""
        return self._parser.schemas

    @property
    def layout(self) -> str | None:
        """That of the parser."""
        return self._parser.layout

    @property
    def key_schema(self) -> str | None:
        """That of the parser."""
        return self._parser.key_schema

    @property
    def key_codec(self) -> Codec | None:
        """That of the parser."""
        return self._parser.key_codec

    def with_columns(self, found: Sequence[FoundColumn]) -> Parser:
        """Return it with other columns that were found; raise as `Parser.with_columns`."""
        return FittingParser(self._parser.with_columns(found), self._layout)

    def grown(self, members: Sequence[Member], others: Sequence[str]) -> Parser:
        """Return it with columns of members that have none; raise as `Parser.grown`."""
        return FittingParser(self._parser.grown(members, others), self._layout)

    def parse(self, records: pa.RecordBatch) -> Parsed:
        """Return the rows of a batch; raise as `Parser.parse`."""
        parsed = self._parser.parse(records)
        reasons = dict(self._of_records(records))
        for field, column in zip(parsed.rows.schema, parsed.rows.columns, strict=True):
            times = times_of(self._layout, field.name)
            if times != Times() and any(map(pa.types.is_timestamp, nested_types(field.type))):
                for row, reason in _wrong(column, times).items():
                    reasons.setdefault(parsed.records[row].as_py(), f"{field.name}: {reason}")
        refused = {*parsed.refused.to_pylist()}
        reasons = {record: reason for record, reason in reasons.items() if record not in refused}
        return refusing(parsed, reasons) if reasons else parsed

    def _of_records(self, records: pa.RecordBatch) -> Mapping[int, str]:
        """Return why the times of records do not fit, by the number of the record.

        Records of a table of refused ones may lack the time as stored. Then one at the limit of the column can be any,
        and so can NULL.
        """
        times = times_of(self._layout, TIMESTAMP)
        if MILLISECONDS in records.schema.names:
            stored = records[MILLISECONDS].to_numpy()
            is_near = np.abs(np.clip(stored, -LATEST_MILLISECONDS - 1, LATEST_MILLISECONDS + 1)) <= LATEST_MILLISECONDS
            held = is_near & times.are_held(np.where(is_near, stored, 0) * 1000)
            return {
                int(row): f"timestamp: {stored[row]} ms since 1970 is no time that its column holds"
                for row in np.flatnonzero(~held)
            }
        shown = records["timestamp"].cast(pa.int64())
        is_null = shown.is_null().to_numpy(zero_copy_only=False)
        values = shown.fill_null(0).to_numpy()
        limits = np.abs(values) >= LATEST_MILLISECONDS * 1000
        return {
            int(row): "timestamp: the time as stored is not in this table, and its column does not hold it"
            for row in np.flatnonzero(is_null | limits | ~times.are_held(values))
        }


def _wrong(column: pa.Array, times: Times) -> dict[int, str]:
    """Return the rows of a column with times that it does not hold, with the reason."""
    reasons: dict[int, str] = {}

    def checked(start: int, end: int) -> pa.Array:
        check_held(column[start:end], times)
        return column[start:end]

    def why(row: int) -> str:
        found = column[row]
        text = f"{found.value} us since 1970" if pa.types.is_timestamp(column.type) else "a value"
        return f"{text} has a time that its column does not hold"

    if len(column):
        halving(checked, 0, len(column), column.type, reasons, why)
    return reasons
