"""The rows of a cut: those with its time or an earlier one."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from ts_reader.decode.arrow_schema import MILLISECONDS

_Other = TypeVar("_Other")

# Reads the named columns.
Read = Callable[[Sequence[str]], Iterator[pa.RecordBatch | _Other]]


def rows_until(milliseconds: int | None, names: Sequence[str], read: Read[_Other]) -> Iterator[pa.RecordBatch | _Other]:
    """Yield the rows with a timestamp at or before a moment, and what is no record batch as it is.

    A record without a timestamp (-1) is such a row. Batches without any other row are passed on without a copy.

    Args:
        milliseconds: since 1970; None for all rows.
        names: of the columns.
        read: reads columns.

    Raises:
        what `read` raises.
    """
    if milliseconds is None:
        yield from read(names)
        return
    has_time = MILLISECONDS in names
    for rows in read(names if has_time else [*names, MILLISECONDS]):
        if not isinstance(rows, pa.RecordBatch):
            yield rows
            continue
        shown = rows.column(MILLISECONDS).to_numpy() <= milliseconds
        kept = rows if np.all(shown) else rows.filter(pa.array(shown))
        if kept.num_rows:
            yield kept if has_time else kept.select(list(names))
