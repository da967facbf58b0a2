"""A condition of SQL over decoded records, which finds those of a request."""

from collections.abc import Mapping

import numpy as np

from ts_common.archive.object_keys import PartitionKeys
from ts_common.wording import counted
from ts_reader.decode.arrow import to_arrow
from ts_reader.decode.arrow_schema import COLUMNS_WITH_HEADERS, MILLISECONDS
from ts_reader.decode.columns import Projection, RecordColumns
from ts_reader.execution.decoded_columns import Columns, error_column
from ts_reader.query.query import Undecoded
from ts_reader.schemas.contract import Codec, Part
from tsctl.erase.criteria import Criterion, Flags
from tsctl.sql.row_filter import RowFilter


class WhereTrue(Criterion):
    """Records for which a condition of SQL is true.

    Args:
        condition: over the columns of `tsctl sql`: key, value, topic, partition, offset, timestamp, timestampType,
            headers, timestampMs.
        codecs: of keys and values, by topic; without one a column has bytes.

    Raises:
        QueryError: the condition is no such condition.
    """

    def __init__(self, condition: str, codecs: Mapping[Part, Mapping[str, Codec]]) -> None:
        super().__init__(Projection())
        refusals = [error_column(part) for part in codecs]
        names = [*COLUMNS_WITH_HEADERS, MILLISECONDS, *refusals]
        self._columns = Columns(names, codecs=codecs, undecoded=Undecoded.NULL)
        self._filter = RowFilter(condition, self._columns.schema)
        self._refusals = refusals
        self._refused = 0

    def matches(self, keys: PartitionKeys, columns: RecordColumns) -> Flags:
        """Return for which rows the condition is true; what a codec refuses is null, and no match."""
        topic, number = keys.partition
        rows = self._columns.decode(to_arrow(columns, topic, number, self._columns.read), keys.partition)
        flags = self._filter.matches(rows)
        for name in self._refusals:
            refused = rows.column(name).is_valid().to_numpy(zero_copy_only=False)
            self._refused += int(np.count_nonzero(refused))
            flags &= ~refused
        return flags

    def doubt(self) -> str | None:
        """Return a sentence about keys and values that their codec refused."""
        refused, self._refused = self._refused, 0
        if not refused:
            return None
        return f"{counted(refused, 'record')} with a key or value that its codec refuses, so --where did not see it"
