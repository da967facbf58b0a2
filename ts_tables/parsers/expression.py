"""A regular expression: its named groups are the columns.

The expressions are RE2's: a match needs time in proportion to the text, whatever the text is.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ts_tables.parsers.contract import Parsed, Parser
from ts_tables.parsers.converted import parsed_of, shown
from ts_tables.parsers.parser_columns import Column
from ts_tables.parsers.texts import from_texts, strings_of


class ExpressionParser(Parser):
    """Parses texts that match; others are refused. A record without a value is a row of nulls.

    Args:
        columns: of the rows; each has a group of its name.
        expression: matches any part of a text; `^` and `$` are its ends.

    Raises:
        ValueError: it is no expression of RE2, or its groups are others.
    """

    def __init__(self, columns: Sequence[Column], expression: str) -> None:
        self._columns = tuple(columns)
        self._expression = expression
        try:
            groups = pc.extract_regex(pa.array([""]), expression).type
        except pa.ArrowInvalid as error:
            raise ValueError(f"{expression!r} is no regular expression of RE2 with named groups: {error}") from error
        found, expected = [field.name for field in groups], [column.name for column in columns]
        if sorted(found) != sorted(expected):
            raise ValueError(f"{expression!r} has the groups {', '.join(found)}; the columns are {', '.join(expected)}")

    @property
    def columns(self) -> pa.Schema:
        """The columns of its rows."""
        return pa.schema([(column.name, column.type) for column in self._columns])

    def parse(self, records: pa.RecordBatch) -> Parsed:
        """Return the rows of a batch; raise `BatchTooLarge` as `Parser.parse`."""
        refused: dict[int, str] = {}
        texts = strings_of(records["value"], refused)
        groups = pc.extract_regex(texts, self._expression)
        for row in pc.indices_nonzero(pc.and_(texts.is_valid(), groups.is_null())).to_pylist():
            refused[row] = f"{shown(texts[row].as_py())} does not match"
        found = [from_texts(pc.struct_field(groups, column.name), column) for column in self._columns]
        return parsed_of(self.columns, found, np.arange(len(texts)), refused, self.columns.names)
