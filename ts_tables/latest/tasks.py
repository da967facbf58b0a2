"""The tasks of a table of newest records: a bucket of keys is read, merged with staged rows, and written again."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ts_tables.files.layout import Layout, WrittenFile
from ts_tables.files.parsed_columns import TOPIC
from ts_tables.files.partitioning import Key
from ts_tables.files.raw_columns import OFFSET, ORDINAL, PARTITION, TOPIC_ID
from ts_tables.files.reading import TableFile
from ts_tables.hidden_rows import HiddenRows, either
from ts_tables.parsers.changes import IS_DELETED, KEY
from ts_tables.planning.plan import TakenBack
from ts_tables.tasks import NewFiles, TaskResult, is_of, written_again

_ROWS: Final = 1 << 16  # of a batch that is written


@dataclass(frozen=True, slots=True)
class Staging:
    """Opens files of parsed rows that no commit gets, and describes them. It can be pickled."""

    files: NewFiles

    def open(self, key: Key, /) -> tuple[str, BinaryIO]:
        """Return the path of a new file for rows of a bucket, and a stream to write it."""
        return self.files.open(key)

    def describe(self, written: WrittenFile, /) -> dict[str, Any]:
        """Return JSON values: the path and the bucket."""
        return {"path": written.path, "key": list(written.key)}


@dataclass(frozen=True, slots=True)
class NewestTask:
    """Writes the newest rows of one bucket. It can be pickled.

    Its memory holds all rows of the bucket.

    Attributes:
        existing: files of the bucket.
        staged: files of new rows of the bucket, with `_is_deleted`.
        removed: rows that an election removed from the log.
        hidden: rows that lists of erased offsets hide.
        stage: of the staged ones.
        files: opens and describes new ones.
    """

    existing: tuple[TableFile, ...]
    staged: tuple[TableFile, ...]
    removed: tuple[TakenBack, ...]
    layout: Layout
    stage: Layout
    files: NewFiles
    hidden: tuple[HiddenRows, ...] = ()

    def __call__(self) -> TaskResult:
        """Read the files, and write the newest row of each key.

        Raises:
            CorruptData: a file lacks a column of the table.
            StoreUnavailable: a file cannot be read or written.
        """
        names = self.stage.schema.names
        batches = [rows.select(names) for rows in (*self._before(), *self._new())]
        merged = pa.Table.from_batches([rows.cast(self.stage.schema) for rows in batches], self.stage.schema)
        rows = alive(newest_of(merged))
        count, written = written_again(self.layout, self.files, rows.to_batches(_ROWS))
        return TaskResult("", tuple(self.files.describe(each) for each in written), count, None)

    def _before(self) -> Iterator[pa.RecordBatch]:
        for file in self.existing:
            for rows in file.rows(self.layout.schema, optional=self.layout.optional):
                stays = ~either(rows, self.hidden).to_numpy(zero_copy_only=False)
                for each in self.removed:
                    stays &= ~is_of(rows, each).to_numpy(zero_copy_only=False)
                left = rows.filter(pa.array(stays))
                yield left.append_column(IS_DELETED, pa.repeat(pa.scalar(False), left.num_rows))

    def _new(self) -> Iterator[pa.RecordBatch]:
        for file in self.staged:
            yield from file.rows(self.stage.schema, optional=self.stage.optional)


def by_key(described: Sequence[Mapping[str, Any]]) -> dict[Key, list[str]]:
    """Return the paths of staged files by their bucket.

    Args:
        described: as `Staging.describe` returns them.
    """
    found: dict[Key, list[str]] = {}
    for each in described:
        found.setdefault(tuple(each["key"]), []).append(each["path"])
    return found


IDENTITY: Final = (TOPIC, TOPIC_ID, PARTITION, KEY)


def newest_of(rows: pa.Table) -> pa.Table:
    """Return the rows of the newest record of each key, sorted by partition, key and ordinal.

    It has the highest offset, as Kafka's compaction defines it. A key of two partitions has a row for each: offsets of
    different partitions have no order. Kafka's producers put a key into one partition, as long as the topic gets no
    further partitions.

    Args:
        rows: with the columns of `IDENTITY`, `_offset` and `_ordinal`; a record can have several rows. One that is
            there twice, as after an election, is returned once.
    """
    if not rows.num_rows:
        return rows
    order = pc.sort_indices(rows, [(name, "ascending") for name in (*IDENTITY, OFFSET, ORDINAL)])
    rows = rows.take(order).combine_chunks()
    is_other_key = np.zeros(rows.num_rows - 1, bool)  # than the row before
    for name in IDENTITY:
        is_other_key |= _differs(rows[name])
    is_other_record = is_other_key | _differs(rows[OFFSET])
    record = np.concatenate([[0], np.cumsum(is_other_record)])
    lasts = np.flatnonzero(np.append(is_other_key, True))
    newest = np.repeat(record[lasts], np.diff(lasts, prepend=-1))
    is_first = np.concatenate([[True], is_other_record | _differs(rows[ORDINAL])])
    return rows.filter(pa.array((record == newest) & is_first))


def alive(rows: pa.Table) -> pa.Table:
    """Return rows whose record does not delete its key, without the column for that."""
    return rows.filter(pc.invert(rows[IS_DELETED])).drop_columns([IS_DELETED])


def _differs(column: pa.ChunkedArray) -> "np.typing.NDArray[np.bool_]":
    """Return whether each value but the first is another one than that before; NULL equals NULL."""
    before, after = column.slice(0, len(column) - 1), column.slice(1)
    is_other = pc.fill_null(pc.not_equal(before, after), False)
    is_one_null = pc.xor(before.is_null(), after.is_null())
    found: np.typing.NDArray[np.bool_] = pc.or_(is_other, is_one_null).to_numpy()
    return found
