"""What a task does: it reads the rows of one part of a plan, and writes them to files."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ts_common.errors import OperatorError, StoreUnavailable
from ts_common.store.shared_stores import shared_store
from ts_reader.decode.arrow_schema import MILLISECONDS
from ts_reader.decode.memory import RecycledMemory
from ts_tables.files.column_times import with_nearest
from ts_tables.files.digest import BLOCK_OFFSETS, DigestSum, raw_digests, sum_of
from ts_tables.files.file_writer import FileWriter
from ts_tables.files.layout import Layout, WrittenFile
from ts_tables.files.parsed_columns import parsed_rows, refused_rows, topic_column
from ts_tables.files.partitioning import Key
from ts_tables.files.raw_columns import OFFSET, PARTITION, READ, TOPIC_ID, RawColumns
from ts_tables.files.reading import TableFile
from ts_tables.files.record_files import reduced
from ts_tables.parsers.contract import Parsed, Parser, check, without_records
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
        refused: their number.
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
        layout: of the files.
        files: opens and describes them.
    """

    layout: Layout
    files: NewFiles


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Writes the rows of one part of a plan. It can be pickled.

    Attributes:
        work: what to read.
        layout: of the files.
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
                last = _later(last, batch)
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
class Settled:
    """Refused records that an earlier run committed. It can be pickled.

    Attributes:
        files: that can have some.
        layout: of the files.
    """

    files: tuple[TableFile, ...]
    layout: Layout

    def digests(self, covered: Covered) -> dict[int, set[bytes]]:
        """Return the digests of those at some offsets, by offset: an election leaves several of one offset.

        Args:
            covered: the offsets.

        Raises:
            CorruptData, StoreUnavailable: as `TableFile.rows`.
        """
        found: dict[int, set[bytes]] = {}
        for file in self.files:
            for rows in file.rows(self.layout.schema, optional=self.layout.optional):
                some = rows.filter(is_of(rows, covered))
                for offset, digest in zip(some[OFFSET].to_pylist(), raw_digests(some).to_pylist(), strict=True):
                    found.setdefault(offset, set()).add(digest)
        return found


@dataclass(frozen=True, slots=True)
class ParseTask:
    """Parses the records of one part of a plan, and writes the rows and the refused records. It can be pickled.

    Attributes:
        work: what to read.
        parser: of the table.
        name: of the parser.
        rows: where rows are written; None if the table has them.
        refused: where refused records are written; None if their table has them.
        settled: those that it has; None if it has none of this part. A codec can accept a value later, when a
            registry has its schema: no record may be in both tables.
        forgotten: records that were deleted on purpose.
        refused_layout: of the files of refused records.
    """

    work: Work
    parser: Parser
    name: str
    rows: Output | None
    refused: Output | None
    refused_layout: Layout
    settled: Settled | None = None
    forgotten: Digests | None = None

    def __call__(self) -> TaskResult:
        """Read the records, parse them, and write both.

        Raises:
            as `WriteTask`; what the parser raises.
            OperatorError: it refuses a record that it accepted when the refused ones were committed.
        """
        before = None if self.settled is None else self.settled.digests(self.work.covered)
        split = self.work.split
        rows, refused_records = _Writing(self.rows), _Writing(self.refused)
        count, refused, last = 0, 0, None
        unknown: dict[Member, None] = {}
        try:
            for records in raw_records(self.work, self.forgotten, self.refused_layout, exactly=True):
                parsed = self.parser.parse(records)
                check(self.parser, parsed, records.num_rows)
                if before is not None:
                    parsed = self._as_before(records, parsed, before)
                unknown.update(dict.fromkeys(parsed.unknown))
                if unknown:  # nothing is written, but further ones are found
                    rows.abort()
                    refused_records.abort()
                    continue
                if rows.writer and len(parsed.records):
                    rows.writer.add(parsed_rows(records, parsed))
                if refused_records.writer and len(parsed.refused):
                    refused_records.writer.add(
                        with_nearest(refused_rows(records, parsed, self.name), self.refused_layout)[0]
                    )
                count += records.num_rows
                refused += len(parsed.refused)
                last = _later(last, records)
            files, refused_files = rows.close(), refused_records.close()
        except OSError as error:
            rows.abort()
            refused_records.abort()
            raise StoreUnavailable(f"a file of {self.work.partition} cannot be written: {error}") from error
        except BaseException:
            rows.abort()
            refused_records.abort()
            raise
        if unknown:
            return TaskResult(split.ranges[0].copies[0].keys.prefix, (), 0, None, unknown=tuple(unknown))
        return TaskResult(
            split.ranges[0].copies[0].keys.prefix,
            files,
            count - refused,
            last,
            refused_files=refused_files,
            refused=refused,
        )

    def _as_before(self, records: pa.RecordBatch, parsed: Parsed, before: Digests) -> Parsed:
        """Return what was parsed with the refused records of the former commit.

        Raises:
            OperatorError: others are refused now.
        """
        refused = known_of(reduced(records, self.refused_layout), before)
        if others := {*parsed.refused.to_pylist()} - {*refused}:
            reason = parsed.reasons[parsed.refused.index(min(others)).as_py()]
            raise OperatorError(
                f"{self.work.partition}: the parser refuses offset {records[OFFSET][min(others)]}, and accepted it "
                f"when a former run committed the refused records: {reason}; it must parse equal records equally"
            )
        return without_records(parsed, refused)


@dataclass(frozen=True, slots=True)
class TakenBackTask:
    """Finds rows of a file that an election removed; writes its other rows again, or counts those. It can be pickled.

    Attributes:
        file: of the table.
        taken_back: entries of the plan.
        keeps: whether the rows stay: then nothing is written.
        layout: of the files.
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
        layout: of the files.
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
        work: what to read.
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


class _Writing:
    """A writer of an output; None writes nothing."""

    def __init__(self, output: Output | None) -> None:
        self._output = output
        self.writer = None if output is None else FileWriter(output.layout, output.files.open)

    def close(self) -> tuple[Mapping[str, Any], ...]:
        """Return the files, as they are described."""
        if self.writer is None or self._output is None:
            return ()
        return tuple(self._output.files.describe(each) for each in self.writer.close())

    def abort(self) -> None:
        if self.writer is not None:
            self.writer.abort()
            self.writer = None


def written_again(
    layout: Layout, files: NewFiles, batches: Iterable[pa.RecordBatch], key: Key | None = None
) -> tuple[int, Sequence[WrittenFile]]:
    """Write rows of files to new ones; return their number and the files.

    Args:
        layout: of the new files.
        files: opens and describes them.
        batches: the rows.
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


def _later(last: int | None, records: pa.RecordBatch) -> int | None:
    """Return the greater one of a time (ms) and of the times of records."""
    found: int | None = pc.max(records[MILLISECONDS]).as_py()
    return last if found is None else found if last is None else max(last, found)
