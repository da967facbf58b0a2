"""Rows that lists of erased offsets hide, and the task that writes a file of a table again without them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ts_common.archive.erased_offsets import ErasedOffsets
from ts_common.model import TopicPartition
from ts_common.store.shared_stores import shared_store
from ts_tables.files.layout import Layout
from ts_tables.files.parsed_columns import topic_column
from ts_tables.files.raw_columns import OFFSET, ORDINAL, PARTITION, TOPIC_ID
from ts_tables.files.reading import TableFile
from ts_tables.planning.work import Covered, Work
from ts_tables.tasks import NewFiles, is_of, written_again

_READ: Final = "offset"  # the column of a scan


@dataclass(frozen=True, slots=True)
class HiddenRows:
    """Rows of a partition at some offsets. It can be pickled.

    Attributes:
        topic_id: of its rows.
        offsets: at least one; whatever their epochs are.
    """

    partition: TopicPartition
    topic_id: str | None
    offsets: ErasedOffsets

    def of(self, rows: pa.RecordBatch) -> pa.Array:
        """Return which rows are hidden."""
        starts, ends = (np.frombuffer(each, np.int64) for each in (self.offsets.starts, self.offsets.ends))
        positions = rows[OFFSET].to_numpy()
        at = np.minimum(np.searchsorted(ends, positions, side="right"), len(ends) - 1)
        is_there = (starts[at] <= positions) & (positions < ends[at])
        span = Covered(self.partition, self.topic_id, int(starts[0]), int(ends[-1]))
        return pc.and_(is_of(rows, span), pa.array(is_there))


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of a file.

    Attributes:
        files: with its other rows, as `NewFiles.describe` returns them.
        records: the number of records whose rows they lack; 0: the file has no hidden row, and nothing was written.
    """

    files: tuple[Mapping[str, Any], ...] = ()
    records: int = 0


@dataclass(frozen=True, slots=True)
class HidingTask:
    """Writes a file again without hidden rows, if it has some. It can be pickled.

    Attributes:
        hidden: of partitions that the file can have rows of.
        files: opens and describes new ones.
    """

    file: TableFile
    layout: Layout
    hidden: tuple[HiddenRows, ...]
    files: NewFiles

    def __call__(self) -> Left:
        """Read the file, its positions first, and write the rows that stay.

        Raises:
            CorruptData: the file lacks a column of the table.
            StoreUnavailable: a file cannot be read or written.
        """
        names = (topic_column(self.layout.schema), TOPIC_ID, PARTITION, OFFSET, ORDINAL)
        records = 0
        for rows in self.file.rows(self.layout.schema, names, self.layout.optional):
            records += pc.sum(pc.and_(self._hidden(rows), pc.equal(rows[ORDINAL], 0))).as_py() or 0
        if not records:
            return Left()

        def staying() -> Iterator[pa.RecordBatch]:
            for rows in self.file.rows(self.layout.schema, optional=self.layout.optional):
                yield rows.filter(pc.invert(self._hidden(rows)))

        _, written = written_again(self.layout, self.files, staying(), self.file.key)
        return Left(tuple(self.files.describe(each) for each in written), records)

    def _hidden(self, rows: pa.RecordBatch) -> pa.Array:
        return either(rows, self.hidden)


@dataclass(frozen=True, slots=True)
class ShownTask:
    """Returns the offsets of the records that a part of the archive shows. It can be pickled."""

    work: Work

    def __call__(self) -> list[int]:
        """Read them; raise as `ts_tables.planning.work.Work.rows`."""
        store = shared_store(self.work.split.location, self.work.split.connection)
        return [offset for rows in self.work.rows(store, [_READ]) for offset in rows[_READ].to_pylist()]


def either(rows: pa.RecordBatch, hidden: tuple[HiddenRows, ...]) -> pa.Array:
    """Return which rows one of several hides."""
    found = np.zeros(rows.num_rows, bool)
    for each in hidden:
        found |= each.of(rows).to_numpy(zero_copy_only=False)
    return pa.array(found)
