"""Number, offsets and timestamps of the records of batches, by their headers where these suffice.

A decoder with a `BatchSummary` does not decompress the batches that their headers describe. The other batches are
decoded, and its caller adds their records. A header of magic 2 does not suffice for:

- the number of records, if a bound of the range cuts the batch and compaction removed some of its records;
- the first offset, if compaction removed records of the first batch; for the last one see `sparse`;
- the greatest timestamp, if a bound cuts the batch;
- the least timestamp, unless the batch has one record, or the broker's time;
- anything, if one of its records can be erased.

A broker computes the greatest timestamp of a batch from its records, and so does the log cleaner for those that it
keeps. Messages of magic 0 and 1 are always decoded.

A producer's mistake makes a header wrong (`framing.BatchHeader.contradicts_itself`). From such a batch on, no header is
used. A broker compares the offsets of the records with the header in compressed batches only: all others are decoded,
without a copy of their fields. Records of batches that are not compressed, and records inside a compressed message of
magic 0 or 1, can have offsets above their header's, and so hide the next records: where they can, or do, the next
batches are decoded too.
"""

from enum import IntEnum
from typing import Final, Protocol

import numpy as np

from ts_reader.decode.compiled import kernel
from ts_reader.decode.kernel_arrays import PASSED as _PASSED
from ts_reader.decode.kernel_arrays import Column
from ts_reader.decode.kernel_source import Int64Rows, Int64s

_CODEC, _MAGIC, _COUNT = int(Column.CODEC), int(Column.MAGIC), int(Column.RECORD_COUNT)
_HIDDEN, _RECORDS_BASE, _ERASED = int(Column.HIDDEN), int(Column.RECORDS_BASE), int(Column.ERASED)
_BASE_OFFSET, _LAST_OFFSET = int(Column.BASE_OFFSET), int(Column.LAST_OFFSET)
_MAX_TIMESTAMP, _HAS_ONE_TIMESTAMP = int(Column.MAX_TIMESTAMP), int(Column.HAS_ONE_TIMESTAMP)
_LOWEST: Final = -(1 << 63)
_HIGHEST: Final = (1 << 63) - 1


class _Sum(IntEnum):
    """Places in the array of sums."""

    ROWS = 0
    FIRST = 1
    LAST = 2
    LEAST = 3
    GREATEST = 4
    BEGUN = 5  # whether a batch before has records
    SPARSE = 6  # base offset of the last batch whose last record's offset is unknown; -1 without one
    DISTRUSTED = 7  # whether a header counts more records than it has offsets: the next records can repeat offsets


_ROWS, _FIRST, _LAST, _LEAST = int(_Sum.ROWS), int(_Sum.FIRST), int(_Sum.LAST), int(_Sum.LEAST)
_GREATEST, _BEGUN, _SPARSE = int(_Sum.GREATEST), int(_Sum.BEGUN), int(_Sum.SPARSE)
_DISTRUSTED: Final = int(_Sum.DISTRUSTED)


class BatchObserver(Protocol):
    """Receives the batches that a decoder lists, before it decodes them."""

    def take(self, table: Int64Rows, start: int, end: int, following: int) -> None:
        """Receive rows of the table in `[start, end)`, as `BatchSummary.take`."""
        ...


class BatchSummary:
    """The sums over the batches of one or more ranges, in the order of offsets.

    Args:
        offsets: whether first and last offset and the greatest timestamp are wanted too.
        least: whether the least timestamp is wanted too.
    """

    def __init__(self, offsets: bool = True, least: bool = True) -> None:
        self._wanted = (offsets or least, least)
        self._sums = np.array([0, _HIGHEST, -1, _HIGHEST, _LOWEST, 0, -1, 0], np.int64)

    def take(self, table: Int64Rows, start: int, end: int, following: int) -> None:
        """Add the batches of a table that headers describe in `[start, end)`, and mark them as passed in the table.

        Args:
            table: rows as in `ts_reader.decode.kernel_arrays`.
            start: first offset.
            end: the offset after the last.
            following: the least offset that a record of them is shown with (`CursorField.NEXT_OFFSET`).
        """
        _take(table, start, end, following, *self._wanted, self._sums)

    def add(self, offsets: Int64s, timestamps: Int64s) -> None:
        """Add records that were decoded: at least one; offsets ascend, timestamps are in ms."""
        sums = self._sums
        sums[_ROWS] += len(offsets)
        sums[_FIRST] = min(sums[_FIRST], offsets[0])
        sums[_LAST] = max(sums[_LAST], offsets[-1])
        sums[_LEAST] = min(sums[_LEAST], timestamps.min())
        sums[_GREATEST] = max(sums[_GREATEST], timestamps.max())
        sums[_BEGUN] = 1

    @property
    def rows(self) -> int:
        """The number of records."""
        return int(self._sums[_ROWS])

    @property
    def first(self) -> int:
        """The first offset; above all others if there is no record."""
        return int(self._sums[_FIRST])

    @property
    def last(self) -> int:
        """The last offset, except of `sparse`; -1 if there is no record."""
        return int(self._sums[_LAST])

    @property
    def sparse(self) -> int | None:
        """Base offset of the last batch that lost records, if its header was used: its last record is unknown."""
        return None if self._sums[_SPARSE] < 0 else int(self._sums[_SPARSE])

    @property
    def least(self) -> int:
        """The least timestamp in ms."""
        return int(self._sums[_LEAST])

    @property
    def greatest(self) -> int:
        """The greatest timestamp in ms."""
        return int(self._sums[_GREATEST])


@kernel
def _take(
    table: Int64Rows, start: int, end: int, following: int, want_offsets: bool, want_least: bool, sums: Int64s
) -> None:
    is_open = False  # whether records of a batch before in the table can hide those of the next
    for number in range(len(table)):
        row = table[number]
        is_old = row[_MAGIC] < 2
        if row[_CODEC] >= 0 and is_old == (row[_CODEC] > 0) and not row[_HIDDEN]:  # only brokers write markers
            is_open = True
        if row[_CODEC] < 0 or is_old or row[_HIDDEN] or not row[_COUNT]:
            continue
        count, base, last = row[_COUNT], row[_BASE_OFFSET], row[_LAST_OFFSET]
        if count > last - base + 1 or row[_RECORDS_BASE] != base:
            sums[_DISTRUSTED] = 1
        if sums[_DISTRUSTED] or is_open or following > max(base, start):
            continue
        low, high = max(base, start), min(last, end - 1)
        is_whole = low == base and high == last
        is_full = count == last - base + 1
        has_one_time = row[_HAS_ONE_TIMESTAMP] != 0 or count == 1
        is_known = is_whole or is_full
        if want_offsets and not (is_whole or has_one_time):
            is_known = False
        if want_offsets and not (is_full or sums[_BEGUN]):
            is_known = False
        if (want_least and not has_one_time) or not row[_CODEC] or row[_ERASED]:
            is_known = False
        if is_known:
            sums[_ROWS] += high - low + 1 if is_full else count
            if is_full:
                sums[_FIRST] = min(sums[_FIRST], low)
                sums[_LAST] = max(sums[_LAST], high)
            else:
                sums[_SPARSE] = base
            sums[_LEAST] = min(sums[_LEAST], row[_MAX_TIMESTAMP])
            sums[_GREATEST] = max(sums[_GREATEST], row[_MAX_TIMESTAMP])
            row[_CODEC] = _PASSED
        if is_whole or is_full:
            sums[_BEGUN] = 1
