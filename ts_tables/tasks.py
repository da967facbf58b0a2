"""What a task does: it reads the rows of one part of a plan, and writes them to files."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ts_common.decode.memory import RecycledMemory
from ts_common.errors import StoreUnavailable
from ts_common.query.shared_stores import shared_store
from ts_tables.files.parquet_writer import FileWriter, Layout, WrittenFile
from ts_tables.files.partitioning import Key
from ts_tables.files.raw_columns import READ, RawColumns
from ts_tables.planning.work import Work


class NewFiles(Protocol):
    """Opens the files of a task."""

    def open(self, key: Key, /) -> tuple[str, BinaryIO]:
        """Return the path of a new file for rows of a partition key, and a stream to write it."""
        ...


class Describer(Protocol):
    """Describes a file for the commit."""

    def describe(self, written: WrittenFile) -> dict[str, Any]:
        """Return JSON values."""
        ...


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a task did.

    Attributes:
        partition: prefix of the keys of its partition.
        files: as `Describer.describe` returns them.
        rows: their number.
        last_timestamp: the greatest of the rows, ms; None without rows, or if none has one.
    """

    partition: str
    files: tuple[Mapping[str, Any], ...]
    rows: int
    last_timestamp: int | None


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Writes the rows of one part of a plan. It can be pickled.

    Attributes:
        work: what to read.
        layout: of the files.
        files: opens them.
        describer: describes them.
    """

    work: Work
    layout: Layout
    files: NewFiles
    describer: Describer

    def __call__(self) -> TaskResult:
        """Read the rows, and write them.

        Raises:
            CorruptData, BatchTooLarge, ObjectNotFound, AccessDenied: from reading.
            StoreUnavailable: from reading, or a file cannot be written.
        """
        split = self.work.split
        columns = RawColumns(self.work.partition, self.work.topic_id)
        writer = FileWriter(self.layout, self.files.open)
        rows, last = 0, None
        try:
            for batch in self.work.rows(shared_store(split.location, split.connection), READ, RecycledMemory()):
                writer.add(columns.complete(batch))
                rows += batch.num_rows
                last = _later(last, batch["timestamp"])
            written = writer.close()
        except OSError as error:
            writer.abort()
            raise StoreUnavailable(f"a file of {self.work.partition} cannot be written: {error}") from error
        except BaseException:
            writer.abort()
            raise
        prefix = split.ranges[0].copies[0].keys.prefix
        return TaskResult(prefix, tuple(self.describer.describe(each) for each in written), rows, last)


def _later(last: int | None, times: pa.Array) -> int | None:
    """Return the greater one of a time (ms) and of the times of rows."""
    found = pc.max(times).cast(pa.int64()).as_py()
    if found is None:
        return last
    milliseconds: int = found // 1000
    return milliseconds if last is None else max(last, milliseconds)
