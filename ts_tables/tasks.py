"""What a task does: it reads the rows of one part of a plan, and writes them to files."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ts_common.decode.memory import RecycledMemory
from ts_common.errors import CorruptData, StoreUnavailable
from ts_common.query.shared_stores import shared_store
from ts_tables.files.digest import BLOCK_OFFSETS, DigestSum, sum_of
from ts_tables.files.parquet_writer import FileWriter, Layout, WrittenFile
from ts_tables.files.partitioning import Key
from ts_tables.files.raw_columns import OFFSET, PARTITION, READ, TOPIC_ID, RawColumns
from ts_tables.planning.plan import TakenBack
from ts_tables.planning.work import Work

_ID: Final = b"PARQUET:field_id"
_REWRITTEN_ROWS: Final = 1 << 15

Task = Callable[[], "TaskResult"]


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
        found: for each entry of a `TakenBackTask`, the sums of its rows by the number of their block.
    """

    partition: str
    files: tuple[Mapping[str, Any], ...]
    rows: int
    last_timestamp: int | None
    found: tuple[Mapping[int, DigestSum], ...] = ()


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


@dataclass(frozen=True, slots=True)
class TakenBackTask:
    """Finds the rows of a file that were taken back; writes its other rows again, or counts those. It can be pickled.

    Attributes:
        open_file: opens the file for reading.
        taken_back: entries of the plan.
        keeps: whether the rows stay: then nothing is written.
        layout: of the files.
        files: opens new ones.
        describer: describes them.
    """

    open_file: Callable[[], BinaryIO]
    taken_back: tuple[TakenBack, ...]
    keeps: bool
    layout: Layout
    files: NewFiles
    describer: Describer

    def __call__(self) -> TaskResult:
        """Read the file, and write the rows that stay.

        Raises:
            CorruptData: the file lacks a column of the table.
            StoreUnavailable: a file cannot be read or written.
        """
        writer = FileWriter(self.layout, self.files.open)
        found: list[dict[int, DigestSum]] = [{} for _ in self.taken_back]
        rows = 0
        try:
            with self.open_file() as stream:
                file = pq.ParquetFile(stream)
                _check_ids(file.schema_arrow, self.layout.schema)
                for batch in file.iter_batches(_REWRITTEN_ROWS):
                    is_taken = pa.array(np.zeros(batch.num_rows, bool))
                    for at, each in enumerate(self.taken_back):
                        is_one = _is_of(batch, each)
                        _add_by_block(found[at], batch.filter(is_one))
                        is_taken = pc.or_(is_taken, is_one)
                    staying = batch.filter(pc.invert(is_taken))
                    rows += staying.num_rows
                    if not self.keeps and staying.num_rows:
                        writer.add(staying)
            written = writer.close()
        except OSError as error:
            writer.abort()
            raise StoreUnavailable(f"a file of the table cannot be written again: {error}") from error
        except BaseException:
            writer.abort()
            raise
        return TaskResult("", tuple(self.describer.describe(each) for each in written), rows, None, tuple(found))


def _check_ids(found: pa.Schema, expected: pa.Schema) -> None:
    """Check that a file has the columns of a table under their own names.

    Raises:
        CorruptData: a column is missing, or has the name of another one.
    """
    for field in expected:
        at = found.get_field_index(field.name)
        if at < 0 or (found.field(at).metadata or {}).get(_ID) != (field.metadata or {}).get(_ID):
            raise CorruptData(f"a file of the table has no column {field.name}, or another one of that name")


def _add_by_block(sums: dict[int, DigestSum], rows: pa.RecordBatch) -> None:
    numbers = rows[OFFSET].to_numpy() // BLOCK_OFFSETS
    for number in np.unique(numbers).tolist():
        sums[number] = sums.get(number, DigestSum()) + sum_of(rows.filter(pa.array(numbers == number)))


def _is_of(rows: pa.RecordBatch, taken_back: TakenBack) -> pa.Array:
    """Return which rows are of an entry."""
    topic_id = taken_back.topic_id
    return functools.reduce(
        pc.and_,
        [
            pc.equal(rows["topic"], taken_back.partition.topic),
            pc.equal(rows[PARTITION], taken_back.partition.partition),
            rows[TOPIC_ID].is_null() if topic_id is None else pc.fill_null(pc.equal(rows[TOPIC_ID], topic_id), False),
            pc.greater_equal(rows[OFFSET], taken_back.start),
            pc.less(rows[OFFSET], taken_back.end),
        ],
    )


def _later(last: int | None, times: pa.Array) -> int | None:
    """Return the greater one of a time (ms) and of the times of rows."""
    found = pc.max(times).cast(pa.int64()).as_py()
    if found is None:
        return last
    milliseconds: int = found // 1000
    return milliseconds if last is None else max(last, milliseconds)
