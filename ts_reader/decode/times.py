"""Timestamps of records, which are any 64 bits of milliseconds, in columns of microseconds, which hold fewer.

A producer with a wrong unit writes nanoseconds where Kafka has milliseconds. A column of microseconds ends in the year
294,246. It has the greatest whole millisecond that it holds for each later time, and the least for each earlier one.
The column `timestampMs` has the time as stored.
"""

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ts_common.wording import counted
from ts_reader.decode.arrow_schema import TYPES

if TYPE_CHECKING:
    from ts_reader.decode.compiled import Int64s

LATEST_MILLISECONDS: Final = ((1 << 63) - 1) // 1000  # that a column of microseconds holds; the least is its negative
_LATEST: Final = pa.scalar(LATEST_MILLISECONDS * 1000, TYPES["timestamp"])
_EARLIEST: Final = pa.scalar(-LATEST_MILLISECONDS * 1000, TYPES["timestamp"])


def microseconds_of(milliseconds: "Int64s") -> "Int64s":
    """Return times in microseconds; each that does not fit is the nearest whole millisecond that does.

    Args:
        milliseconds: since 1970.
    """
    found: Int64s = np.clip(milliseconds, -LATEST_MILLISECONDS, LATEST_MILLISECONDS) * 1000
    return found


def count_far(times: pa.Array) -> int:
    """Return how many times of a column are at its limits: the time as stored can be beyond them.

    Args:
        times: the column `timestamp`.
    """
    least, greatest = pc.min_max(times).values()
    if not least.is_valid or (least.value > _EARLIEST.value and greatest.value < _LATEST.value):
        return 0
    return int(pc.sum(pc.or_(pc.less_equal(times, _EARLIEST), pc.greater_equal(times, _LATEST))).as_py())


def far_warning(rows: int, remedy: str) -> str:
    """Return a sentence about rows whose time does not fit the column `timestamp`.

    Args:
        rows: their number, from `count_far`.
        remedy: how the reader gets the column `timestampMs`.
    """
    return (
        f"{counted(rows, 'row')} with a timestamp at or beyond a limit of its column, the years -290,308 and 294,247: "
        f"the column has that limit; expected: milliseconds since 1970; {remedy}"
    )
