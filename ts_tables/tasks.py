"""What a task does: it reads the rows of one part of a plan, and writes them to files."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ts_common.errors import StoreUnavailable
from ts_common.store.shared_stores import shared_store
from ts_reader.decode.arrow_schema import MILLISECONDS
from ts_reader.decode.digest import BLOCK_OFFSETS, DigestSum, raw_digests, sum_of
from ts_reader.decode.memory import RecycledMemory
from ts_tables.files.column_times import with_nearest
from ts_tables.files.file_writer import FileWriter
from ts_tables.files.layout import Layout, WrittenFile
from ts_tables.files.parsed_columns import topic_column
from ts_tables.files.partitioning import Key
from ts_tables.files.raw_columns import OFFSET, PARTITION, READ, TOPIC_ID, RawColumns
from ts_tables.files.reading import TableFile
from ts_tables.files.record_files import reduced
from ts_tables.parsers.inference import Member
from ts_tables.planning.plan import TakenBack
from ts_tables.planning.work import Covered, Work

Task = Callable[[], "TaskResult"]
Digests = Mapping[int, set[bytes]]  # of records, by offset
Engine = Callable[[Sequence[Callable[[], Any]]], Sequence[Any]]  # runs tasks; returns their results in their order


class NewFiles(Protocol):
    """Opens the files of a task, and describes them for the commit."""

    def open(self, key: Key, /) -> tuple[str, BinaryIO]:
        """Return the path of a new file for rows of a partition key, and a stream to write it."""
        ...

    def describe(self, written: WrittenFile, /) -> dict[str, Any]:
        """Return JSON values for a complete file."""
        ...


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a task did.

    Attributes:
        partition: prefix of the keys of its partition.
        files: as `NewFiles.describe` returns them.
        rows: their number; of a parser, the number of records that are not refused.
        last_timestamp: the greatest of the rows, ms; None without rows, or if none has one.
        found: for each entry of a `TakenBackTask`, the sums of its rows by the number of their block.
        refused_files: of records that a parser refused, as `files`.
        unknown: members of the values without a column; then there are no files.
        changed_times: the number of rows of a raw table whose column `timestamp` does not hold the time as stored.
    """

    partition: str
    files: tuple[Mapping[str, Any], ...]
    rows: int
    last_timestamp: int | None
    found: tuple[Mapping[int, DigestSum], ...] = ()
    refused_files: tuple[Mapping[str, Any], ...] = ()
    refused: int = 0
    unknown: tuple[Member, ...] = ()
    changed_times: int = 0


@dataclass(frozen=True, slots=True)
class Output:
    """Where rows of one kind are written. It can be pickled.

    Attributes:
        files: opens and describes them.
    """

    layout: Layout
    files: NewFiles


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Writes the rows of one part of a plan. It can be pickled.

    Attributes:
        files: opens and describes them.
    """

    work: Work
    layout: Layout
    files: NewFiles

    def __call__(self) -> TaskResult:
        """Read the rows, and write them.

        Raises:
            CorruptData, BatchTooLarge, ObjectNotFound, AccessDenied: from reading.
            StoreUnavailable: from reading, or a file cannot be written.
        """
        writer = FileWriter(self.layout, self.files.open)
        rows, changed, last = 0, 0, None
        try:
            for batch in raw_records(self.work):
                fitting, some = with_nearest(batch, self.layout)
                writer.add(fitting)
                rows += batch.num_rows
                changed += some
                last = later(last, batch)
            written = writer.close()
        except OSError as error:
            writer.abort()
            raise StoreUnavailable(f"a file of {self.work.partition} cannot be written: {error}") from error
        except BaseException:
            writer.abort()
            raise
        prefix = self.work.split.ranges[0].copies[0].keys.prefix
        files = tuple(self.files.describe(each) for each in written)
        return TaskResult(prefix, files, rows, last, changed_times=changed)


@dataclass(frozen=True, slots=True)
class TakenBackTask:
    """Finds rows of a file that an election removed; writes its other rows again, or counts those. It can be pickled.

    Attributes:
        taken_back: entries of the plan.
        keeps: whether the rows stay: then nothing is written.
        files: opens and describes new ones.
    """

    file: TableFile
    taken_back: tuple[TakenBack, ...]
    keeps: bool
    layout: Layout
    files: NewFiles

    def __call__(self) -> TaskResult:
        """Read the file, and write the rows that stay.

        Raises:
            CorruptData: the file lacks a column of the table.
            StoreUnavailable: a file cannot be read or written.
        """
        found: list[dict[int, DigestSum]] = [{} for _ in self.taken_back]

        def staying() -> Iterator[pa.RecordBatch]:
            for batch in self.file.rows(self.layout.schema, optional=self.layout.optional):
                is_taken = pa.array(np.zeros(batch.num_rows, bool))
                for at, each in enumerate(self.taken_back):
                    is_one = is_of(batch, each)
                    _add_by_block(found[at], batch.filter(is_one))
                    is_taken = pc.or_(is_taken, is_one)
                if not self.keeps:
                    yield batch.filter(pc.invert(is_taken))

        rows, written = written_again(self.layout, self.files, staying(), self.file.key)
        return TaskResult("", tuple(self.files.describe(each) for each in written), rows, None, tuple(found))


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Writes the rows of several files to one. It can be pickled.

    Attributes:
        sources: files of one partition key.
        files: opens and describes new ones.
    """

    sources: tuple[TableFile, ...]
    layout: Layout
    files: NewFiles

    def __call__(self) -> TaskResult:
        """Read the files, and write their rows; raise as `TakenBackTask`."""
        all_rows = (
            batch for each in self.sources for batch in each.rows(self.layout.schema, optional=self.layout.optional)
        )
        rows, written = written_again(self.layout, self.files, all_rows, self.sources[0].key)
        return TaskResult("", tuple(self.files.describe(each) for each in written), rows, None)


def known_of(records: pa.RecordBatch, known: Digests) -> list[int]:
    """Return the numbers of the records of a batch whose digest is one of those at their offset.

    Args:
        records: with the columns of a raw table.
        known: as `Settled.digests` returns them.
    """
    offsets = records[OFFSET].to_pylist()
    at_them = [number for number, offset in enumerate(offsets) if offset in known]
    digests = raw_digests(records.take(pa.array(at_them, pa.int32()))).to_pylist()
    return [at for at, digest in zip(at_them, digests, strict=True) if digest in known[offsets[at]]]


def raw_records(
    work: Work, forgotten: Digests | None = None, layout: Layout | None = None, *, exactly: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a part of a plan with the columns of a raw table; raise as `Work.rows`.

    Args:
        forgotten: records that are left out, by what files of the layout have of them.
        layout: the records are as files of this layout have them; None for as they are stored in the archive.
        exactly: whether they are as they are stored in the archive, and only `forgotten` is as files have them.
    """
    columns = RawColumns(work.partition, work.topic_id)
    store = shared_store(work.split.location, work.split.connection)
    for rows in work.rows(store, READ, RecycledMemory()):
        records = columns.complete(rows)
        in_files = records if layout is None else reduced(records, layout)
        records = records if exactly else in_files
        if forgotten and (some := known_of(in_files, forgotten)):
            stays = np.ones(records.num_rows, bool)
            stays[some] = False
            records = records.filter(pa.array(stays))
        yield records


def written_again(
    layout: Layout, files: NewFiles, batches: Iterable[pa.RecordBatch], key: Key | None = None
) -> tuple[int, Sequence[WrittenFile]]:
    """Write rows of files to new ones; return their number and the files.

    Args:
        layout: of the new files.
        files: opens and describes them.
        key: their partition key; None to compute it.

    Raises:
        CorruptData, StoreUnavailable: as the rows raise them, or a file cannot be written.
    """
    writer = FileWriter(layout, files.open)
    rows = 0
    try:
        for batch in batches:
            rows += batch.num_rows
            if batch.num_rows:
                writer.add(batch, key)
        return rows, writer.close()
    except OSError as error:
        writer.abort()
        raise StoreUnavailable(f"a file of the table cannot be written again: {error}") from error
    except BaseException:
        writer.abort()
        raise


def _add_by_block(sums: dict[int, DigestSum], rows: pa.RecordBatch) -> None:
    numbers = rows[OFFSET].to_numpy() // BLOCK_OFFSETS
    for number in np.unique(numbers).tolist():
        sums[number] = sums.get(number, DigestSum()) + sum_of(rows.filter(pa.array(numbers == number)))


def is_of(rows: pa.RecordBatch, taken_back: TakenBack | Covered) -> pa.Array:
    """Return which rows are of an entry, or at these offsets."""
    topic_id = taken_back.topic_id
    return functools.reduce(
        pc.and_,
        [
            pc.equal(rows[topic_column(rows.schema)], taken_back.partition.topic),
            pc.equal(rows[PARTITION], taken_back.partition.partition),
            rows[TOPIC_ID].is_null() if topic_id is None else pc.fill_null(pc.equal(rows[TOPIC_ID], topic_id), False),
            pc.greater_equal(rows[OFFSET], taken_back.start),
            pc.less(rows[OFFSET], taken_back.end),
        ],
    )


def later(last: int | None, records: pa.RecordBatch) -> int | None:
    """Return the greater one of a time (ms) and of the times of records."""
    found: int | None = pc.max(records[MILLISECONDS]).as_py()
    return last if found is None else found if last is None else max(last, found)
