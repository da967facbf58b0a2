"""Delimited text: a value is one line, and its fields are the columns, in their order."""

import csv
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ts_common.wording import counted
from ts_reader.schemas.limits import MAX_VALUE_BYTES
from ts_tables.parsers.contract import Parsed, Parser
from ts_tables.parsers.converted import parsed_of
from ts_tables.parsers.parser_columns import Column
from ts_tables.parsers.texts import from_texts, strings_of

_LINE_END: Final = r"\r?\n\z"


class DelimitedParser(Parser):
    """Parses lines of fields. A record without a value is a row of nulls; so is an empty field, but in a string.

    Args:
        columns: of the rows, in the order of the fields.
        delimiter: between fields.
        quote: around a field that contains delimiters, as in RFC 4180; None if no field is quoted.
    """

    def __init__(self, columns: Sequence[Column], delimiter: str, quote: str | None = None) -> None:
        self._columns = tuple(columns)
        self._delimiter = delimiter
        self._quote = quote

    @property
    def columns(self) -> pa.Schema:
        """The columns of its rows."""
        return pa.schema([(column.name, column.type) for column in self._columns])

    def parse(self, records: pa.RecordBatch) -> Parsed:
        """Return the rows of a batch; raise `BatchTooLarge` as `Parser.parse`."""
        refused: dict[int, str] = {}
        lines = pc.replace_substring_regex(strings_of(records["value"], refused), _LINE_END, "")
        fields = self._split(lines) if self._quote is None else self._unquoted(lines, refused)
        count = len(self._columns)
        lengths = pc.list_value_length(fields)
        has_all = pc.fill_null(pc.equal(lengths, count), False)
        for row in pc.indices_nonzero(pc.fill_null(pc.not_equal(lengths, count), False)).to_pylist():
            refused.setdefault(row, f"it has {counted(lengths[row].as_py(), 'field')}; expected {count}")
        whole = pc.if_else(has_all, fields, pa.scalar([None] * count, pa.list_(pa.string())))
        found = [from_texts(pc.list_element(whole, at), column) for at, column in enumerate(self._columns)]
        return parsed_of(self.columns, found, np.arange(len(lines)), refused, self.columns.names)

    def _split(self, lines: pa.Array) -> pa.Array:
        return pc.split_pattern(lines, self._delimiter)

    def _unquoted(self, lines: pa.Array, refused: dict[int, str]) -> pa.Array:
        csv.field_size_limit(MAX_VALUE_BYTES)
        fields: list[list[str] | None] = []
        for row, line in enumerate(lines.to_pylist()):
            fields.append(None)
            if line is None:
                continue
            try:
                found = list(csv.reader([line], delimiter=self._delimiter, quotechar=self._quote, strict=True))
            except csv.Error as error:
                refused[row] = str(error)
                continue
            fields[row] = found[0] if found else [""]
        return pa.array(fields, pa.list_(pa.string()))
