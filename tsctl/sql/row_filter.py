"""A condition of SQL over the rows of record batches, as DuckDB evaluates it behind WHERE."""

import json
from typing import Any, Final

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ts_common.errors import QueryError
from ts_common.printable import printable
from tsctl.sql.session import CONFINED, SETTINGS

_ROW: Final = "number of the row"  # no column of records has the name
_SUBQUERY: Final = "SUBQUERY"
_SELECT: Final = "SELECT_NODE"  # and no union of two


class RowFilter:
    """Decides for which rows a condition is true; not thread-safe.

    Args:
        condition: SQL. It sees one batch at a time, so a subquery is refused.
        schema: of the rows.

    Raises:
        QueryError: the condition is not SQL, has a subquery, or names another column.
    """

    def __init__(self, condition: str, schema: pa.Schema) -> None:
        self._condition = condition
        self._connection = duckdb.connect()
        for setting in (*SETTINGS, *CONFINED):
            self._connection.execute(f"SET {setting}")
        # A comment at the end of the condition ends with its line.
        self._statement = f'SELECT "{_ROW}" FROM records WHERE ({condition}\n)'  # noqa: S608  (the operator's own)
        self._check()
        self.matches(pa.RecordBatch.from_pylist([], schema))

    def matches(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Return for which rows the condition is true: bool[rows].

        Raises:
            QueryError: it cannot be evaluated for a row, as a cast of a text that is no number. DuckDB's own message
                can have a value of the row, so this one has not.
        """
        numbers = pa.array(np.arange(rows.num_rows, dtype=np.int64))
        table = pa.Table.from_batches([rows]).append_column(_ROW, numbers)
        try:
            self._connection.register("records", table)
            found = self._connection.execute(self._statement).fetchnumpy()[_ROW]
            self._connection.unregister("records")
        except duckdb.Error as error:
            if rows.num_rows:
                kind = str(error).partition(":")[0] if isinstance(error, duckdb.DataError) else "error"
                why = f"{kind} in one of {rows.num_rows:,} records; TRY_CAST and TRY give null instead"
                raise self._mistake(why) from None
            raise self._mistake(str(error)) from error
        flags = np.zeros(rows.num_rows, np.bool_)
        flags[np.asarray(found, np.int64)] = True
        return flags

    def _check(self) -> None:
        """Check that the condition is one expression.

        Raises:
            QueryError: it is not.
        """
        try:
            statements = self._connection.extract_statements(self._statement)
            ((parsed,),) = self._connection.execute("SELECT json_serialize_sql(?)", [self._statement]).fetchall()
        except duckdb.Error as error:
            raise self._mistake(str(error)) from error
        tree = json.loads(parsed)
        if tree.get("error", True):
            raise self._mistake(str(tree.get("error_message", "a condition is expected, as behind WHERE")))
        if len(statements) != 1 or tree["statements"][0]["node"].get("type") != _SELECT:
            raise self._mistake("one condition is expected, as behind WHERE")
        if _has_subquery(tree):
            raise self._mistake("a subquery sees a part of the records only; write a condition without one")

    def _mistake(self, why: str) -> QueryError:
        first = "; ".join(line.strip() for line in why.partition("\n\n")[0].splitlines() if line.strip())
        return QueryError(printable(f"--where={self._condition}: {first}"))


def _has_subquery(tree: Any) -> bool:
    """Return whether an expression in DuckDB's tree of a statement is a subquery."""
    if isinstance(tree, dict):
        return tree.get("class") == _SUBQUERY or any(map(_has_subquery, tree.values()))
    return isinstance(tree, list) and any(map(_has_subquery, tree))
