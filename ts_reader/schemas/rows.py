"""Python values to one Arrow column, a bounded number at once, with a reason for each value that does not fit."""

import base64
import math
from datetime import datetime
from decimal import Decimal
from typing import Final

import pyarrow as pa

from ts_common.errors import BatchTooLarge
from ts_common.printable import printable
from ts_reader.schemas.cell_counts import Cells
from ts_reader.schemas.contract import Decoded
from ts_reader.schemas.limits import (
    BYTES_AT_ONCE,
    CELLS_AT_ONCE,
    MAX_COLUMN_CELLS,
    REASON_CHARACTERS,
    ROWS_AT_ONCE,
)

_NO_FIT: Final = (pa.ArrowException, OverflowError, TypeError, ValueError)


class ColumnBuilder:
    """Collects values and refusals of one column, in the order of its rows.

    Args:
        cells: of this type, if the caller has them.
    """

    def __init__(self, arrow_type: pa.DataType, cells: Cells | None = None) -> None:
        self._type = arrow_type
        self._cells = cells or Cells(arrow_type)
        self._values: list[object] = []
        self._reasons: list[str | None] = []
        self._waiting = 0
        self._waiting_cells = 0
        self._done_cells = 0
        self._done: list[pa.Array] = []

    def add(self, value: object, size: int = 0) -> None:
        """Add a row; `size` is the number of its encoded bytes.

        Raises:
            ValueError: it has more than `MAX_CELLS` cells, and was not added.
            BatchTooLarge: all rows have more than `MAX_COLUMN_CELLS` cells.
        """
        self._waiting_cells += self._cells.of(value)
        self._values.append(value)
        self._reasons.append(None)
        self._waiting += size
        if len(self._values) >= ROWS_AT_ONCE or self._waiting >= BYTES_AT_ONCE or self._waiting_cells >= CELLS_AT_ONCE:
            self._flush()

    def refuse(self, reason: str) -> None:
        """Add a row that does not decode."""
        self.add(None)
        self._reasons[-1] = printable(reason[:REASON_CHARACTERS])

    def finish(self) -> Decoded:
        """Return the rows.

        Raises:
            BatchTooLarge: the column has more than 2 GiB in one of its parts, or too many cells.
        """
        self._flush()
        column = pa.concat_arrays(self._done) if self._done else pa.array([], self._type)
        return Decoded(column, pa.array(self._reasons, pa.string()))

    def _flush(self) -> None:
        if not self._values:
            return
        values, self._values, self._waiting = self._values, [], 0
        self._done_cells += self._waiting_cells
        self._waiting_cells = 0
        if self._done_cells > MAX_COLUMN_CELLS:
            raise BatchTooLarge(
                f"{len(self._reasons)} rows decode to more than {MAX_COLUMN_CELLS} cells; decode fewer rows at once"
            )
        first = len(self._reasons) - len(values)
        self._done += self._arrays(values, first)

    def _arrays(self, values: list[object], first: int) -> list[pa.Array]:
        """Return arrays of values; halve them until each value that does not fit is alone, and is refused."""
        try:
            array = pa.array(values, self._type)
        except _NO_FIT as error:
            if len(values) == 1:
                self._reasons[first] = printable(f"does not fit its column: {error}"[:REASON_CHARACTERS])
                return [pa.nulls(1, self._type)]
            middle = len(values) // 2
            return [*self._arrays(values[:middle], first), *self._arrays(values[middle:], first + middle)]
        if isinstance(array, pa.ChunkedArray):
            raise BatchTooLarge(f"{len(values)} rows decode to more than 2 GiB; decode fewer rows at once")
        return [array]


def jsonable(value: object) -> object:
    """Return a decoded value in types of JSON.

    Bytes are base64, times ISO 8601, decimals and numbers that are not finite text.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return str(value)
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case dict():
            return {str(name): jsonable(inner) for name, inner in value.items()}
        case list() | tuple():
            return [jsonable(inner) for inner in value]
        case _:
            return str(value)
