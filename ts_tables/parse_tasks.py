"""The task of a parsed table: it parses the records of one part of a plan, and writes rows and refused records."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ts_common.errors import OperatorError, StoreUnavailable
from ts_reader.decode.digest import raw_digests
from ts_tables.files.column_times import with_nearest
from ts_tables.files.file_writer import FileWriter
from ts_tables.files.layout import Layout
from ts_tables.files.parsed_columns import parsed_rows, refused_rows
from ts_tables.files.raw_columns import OFFSET
from ts_tables.files.reading import TableFile
from ts_tables.files.record_files import reduced
from ts_tables.parsers.contract import Parsed, Parser, check, without_records
from ts_tables.parsers.inference import Member
from ts_tables.planning.work import Covered, Work
from ts_tables.tasks import Digests, Output, TaskResult, is_of, known_of, later, raw_records


@dataclass(frozen=True, slots=True)
class Settled:
    """Refused records that an earlier run committed. It can be pickled.

    Attributes:
        files: that can have some.
    """

    files: tuple[TableFile, ...]
    layout: Layout

    def digests(self, covered: Covered) -> dict[int, set[bytes]]:
        """Return the digests of those at some offsets, by offset: an election leaves several of one offset.

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
                last = later(last, records)
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
