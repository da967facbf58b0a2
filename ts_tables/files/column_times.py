"""Times that files of a table hold: fewer than the 64 bits of milliseconds that a record has.

================================  ====================================================================================
a column of microseconds          the years -290,308 to 294,247
the same, partitioned by `hour`   to the year 246,953: Iceberg's hours have 32 bits
ORC                               the years 1677 to 2262, as pyarrow reads nanoseconds; no fraction of a second before
                                  1970, as pyarrow writes a negative one, and readers in Java end with an error
================================  ====================================================================================

A raw row has the nearest time that its column holds, or NULL for a fraction that ORC lacks. A parser of `FittingParser`
refuses the record.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ts_reader.decode.arrow_schema import LATEST_MILLISECONDS, MILLISECONDS
from ts_tables.files.layout import RECORD_FORMATS, FileFormat, Layout

_LATEST: Final = LATEST_MILLISECONDS * 1000
_LATEST_OF_ORC: Final = ((1 << 63) - 1) // 1000  # nanoseconds as microseconds
_SECOND: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Times:
    """The times that a column holds.

    Attributes:
        least: microseconds since 1970.
        greatest: the same.
        has_fractions: whether times before 1970 can have a part of a second.
    """

    least: int = -_LATEST
    greatest: int = _LATEST
    has_fractions: bool = True

    def are_held(self, times: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which times the column holds.

        Args:
            times: in microseconds.
        """
        held = (times >= self.least) & (times <= self.greatest)
        return held if self.has_fractions else held & ((times >= 0) | (times % _SECOND == 0))

    def nearest(self, column: pa.Array) -> pa.Array:
        """Return the nearest times that the column holds, in whole milliseconds; NULL for a fraction that it lacks.

        Args:
            column: of microseconds.
        """
        times = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
        if self.are_held(times).all():
            return column
        within = np.clip(times, -(-self.least // 1000) * 1000, self.greatest // 1000 * 1000)
        is_null = column.is_null().to_numpy(zero_copy_only=False) | ~self.are_held(within)
        return pa.array(within, pa.int64(), mask=is_null).cast(column.type)


def times_of(layout: Layout, column: str) -> Times:
    """Return the times that a column of a table holds."""
    found = Times()
    if layout.format is FileFormat.ORC:
        found = Times(-(_LATEST_OF_ORC // _SECOND) * _SECOND, _LATEST_OF_ORC, has_fractions=False)
    for term in layout.terms:
        if term.column == column and (some := term.times) is not None:
            found = Times(max(found.least, some.start), min(found.greatest, some.stop - 1), found.has_fractions)
    return found


def with_nearest(records: pa.RecordBatch, layout: Layout) -> tuple[pa.RecordBatch, int]:
    """Return records with times that their column holds, and the number of those that it does not hold as stored.

    Args:
        records: of `ts_tables.files.raw_columns.RECORD_SCHEMA`.
        layout: of the files of a raw table. JSON lines have the time as stored, and text and SequenceFile have none.
    """
    column = records["timestamp"]
    nearest = times_of(layout, "timestamp").nearest(column)
    if nearest is not column:
        records = records.set_column(records.schema.get_field_index("timestamp"), "timestamp", nearest)
    if layout.format in RECORD_FORMATS or layout.format is FileFormat.JSON_LINES:
        return records, 0
    stored, shown = records[MILLISECONDS].to_numpy(), nearest.cast(pa.int64())
    is_shown = shown.is_valid().to_numpy(zero_copy_only=False)
    changed = ~is_shown | (pc.fill_null(shown, 0).to_numpy() // 1000 != stored)
    return records, int(np.count_nonzero(changed))


def check_held(column: pa.Array, times: Times) -> None:
    """Check that a column holds its times, nested ones too.

    Raises:
        ArrowInvalid: it does not hold one.
    """
    kind = column.type
    if pa.types.is_timestamp(kind):
        if not times.are_held(column.drop_null().cast(pa.int64()).to_numpy()).all():
            raise pa.ArrowInvalid("a time")
    elif pa.types.is_struct(kind):
        for each in column.flatten():
            check_held(each, times)
    elif pa.types.is_map(kind):
        pair = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        # `items` of a slice are those of the whole column.
        check_held(column.cast(pa.list_(pair)).flatten(), times)
    elif pa.types.is_list(kind):
        check_held(column.flatten(), times)
