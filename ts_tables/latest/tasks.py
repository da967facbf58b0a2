"""The tasks of a table of newest records: a bucket of keys is read, merged with staged rows, and written again."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa

from ts_tables.files.layout import Layout, WrittenFile
from ts_tables.files.partitioning import Key
from ts_tables.files.reading import TableFile
from ts_tables.latest.newest import alive, newest_of
from ts_tables.parsers.changes import IS_DELETED
from ts_tables.planning.plan import TakenBack
from ts_tables.tasks import NewFiles, TaskResult, is_of, written_again

_ROWS: Final = 1 << 16  # of a batch that is written


@dataclass(frozen=True, slots=True)
class Staging:
    """Opens files of parsed rows that no commit gets, and describes them. It can be pickled.

    Attributes:
        files: opens them.
    """

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
        layout: of the files.
        stage: of the staged ones.
        files: opens and describes new ones.
    """

    existing: tuple[TableFile, ...]
    staged: tuple[TableFile, ...]
    removed: tuple[TakenBack, ...]
    layout: Layout
    stage: Layout
    files: NewFiles

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
                stays = np.ones(rows.num_rows, bool)
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
