"""A comparison of values: the records of the claims are parsed again, and each row of the table is compared."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from ts_common.model import TopicPartition
from ts_reader.decode.digest import BLOCK_OFFSETS
from ts_tables.claims.state import TableState, without
from ts_tables.files.layout import Layout
from ts_tables.files.parsed_columns import parsed_rows
from ts_tables.files.reading import TableFile
from ts_tables.files.record_files import reduced
from ts_tables.parse_tasks import Settled
from ts_tables.parsers.contract import Parser, check, without_records
from ts_tables.planning.claimed import Claimed
from ts_tables.planning.work import Covered, Work
from ts_tables.targets import OpenedTable
from ts_tables.tasks import Digests, Engine, is_of, known_of, raw_records
from ts_tables.verify.compare import Difference, differences, different_blocks
from ts_tables.verify.newest import NewestRecords, by_partition, refused_rows
from ts_tables.verify.run import Verification, can_have, together, whole
from ts_tables.verify.sums import Block, Row, Skipped, Sums, added, counted, summed
from ts_tables.verify.values import Compared, Older, counting_all, older_rows, valued


class _Source(Protocol):
    """Returns rows of one partition of the archive, or of a file, with a digest of their values."""

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield them."""
        ...


@dataclass(frozen=True, slots=True)
class FileValues:
    """The rows of a file. It can be pickled."""

    file: TableFile
    layout: Layout
    compared: Compared

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows; raise as `TableFile.rows`."""
        for rows in self.file.rows(self.layout.schema, optional=self.layout.optional):
            yield counting_all(valued(rows, self.compared.names))


@dataclass(frozen=True, slots=True)
class ParsedValues:
    """What a parser makes of records of the archive. It can be pickled.

    Attributes:
        forgotten: records that are left out.
        refused: the records that are in the table of refused ones.
        older: rows that are older than some of the columns; None without such.
    """

    work: Work
    parser: Parser
    compared: Compared
    forgotten: Digests
    refused: Settled
    older: Older | None = None

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, and one for each record that only now is refused; raise as `Work.rows` and the parser."""
        known = self.refused.digests(self.work.covered)
        for records in raw_records(self.work, self.forgotten, self.refused.layout, exactly=True):
            parsed = self.parser.parse(records)
            check(self.parser, parsed, records.num_rows)
            settled = known_of(reduced(records, self.refused.layout), known)
            others = [each for each in parsed.refused.to_pylist() if each not in {*settled}]
            yield refused_rows(records.take(pa.array(others, pa.int32())))
            rows = parsed_rows(records, without_records(parsed, settled))
            if self.older is not None:
                rows = self.older.cut(rows, self.compared.later)
            yield counting_all(valued(rows, self.compared.names))


@dataclass(frozen=True, slots=True)
class SumsOf:
    """Computes the sums of rows. It can be pickled.

    Attributes:
        skipped: by partition and topic id, ranges of offsets that are not compared.
    """

    source: _Source
    skipped: Skipped

    def __call__(self) -> Sums:
        """Return the sums by block; raise as the source."""
        return summed(self.source.rows(), self.skipped)


@dataclass(frozen=True, slots=True)
class RowsOf:
    """Returns the rows of a block. It can be pickled.

    Attributes:
        skipped: as of `SumsOf`.
    """

    source: _Source
    block: Block
    skipped: Skipped

    def __call__(self) -> "Counter[Row]":
        """Return how often each row is there; raise as the source."""
        return counted(self.source.rows(), self.block, self.skipped)


@dataclass(frozen=True, slots=True)
class OlderRows:
    """Returns the rows of a block that can be older than some columns. It can be pickled."""

    source: FileValues
    block: Block

    def __call__(self) -> Older:
        """Read the rows; raise as `TableFile.rows`."""
        block, layout = self.block, self.source.layout
        start, end = block.number * BLOCK_OFFSETS, (block.number + 1) * BLOCK_OFFSETS
        covered = Covered(TopicPartition(block.topic, block.partition), block.topic_id, start, end)
        later = self.source.compared.later
        return Older.of(
            older_rows(rows.filter(is_of(rows, covered)), later)
            for rows in self.source.file.rows(layout.schema, optional=layout.optional)
        )


def with_values(
    found: Verification,
    opened: OpenedTable,
    refused: OpenedTable,
    claimed: Claimed,
    run_tasks: Engine,
    parser: Parser,
    names: Sequence[str],
    *,
    newest_only: bool,
) -> Verification:
    """Return a verification with the differences of values.

    Args:
        refused: the table of refused records; they stay refused.
        claimed: the claims, as the archive shows them.
        parser: of the table's state.
        names: of the table's columns.
        newest_only: whether the table has only the newest record of each key.

    Raises:
        CorruptData, BatchTooLarge, ObjectNotFound, StoreUnavailable, AccessDenied: from the archive, the table, or the
            parser.
    """
    if newest_only:
        claimed = whole(claimed, opened.state)
    skipped, notes = _without_kept(claimed.skipped, opened.state)
    forgotten = opened.state.forgotten_with(refused.state)
    settled = Settled(tuple(refused.all_files()), refused.layout)
    later = opened.state.columns[opened.state.initial_columns :] if parser.schemas else ()
    columns = Compared(tuple(names), tuple(each.name for each in later))

    def source(work: tuple[Work, ...]) -> NewestRecords | ParsedValues:
        known = forgotten.get((work[0].partition, work[0].topic_id), {})
        if newest_only:
            return NewestRecords(work, parser, known, settled, columns)
        return ParsedValues(work[0], parser, columns, known, settled)

    parts = by_partition(claimed.work) if newest_only else [(each,) for each in claimed.work]
    theirs = [(source(work), work) for work in parts]
    ours = [FileValues(each, opened.layout, columns) for each in opened.all_files()]
    archive = added(run_tasks([SumsOf(source, skipped) for source, _ in theirs]))
    table = added(run_tasks([SumsOf(source, skipped) for source in ours]))
    different: list[Difference] = []
    for block in different_blocks(table, archive, {}):
        older = Older.of(run_tasks([OlderRows(source, block) for source in ours])) if columns.later else None
        some_work = [source for source, work in theirs if any(can_have(one, block) for one in work)]
        expected = run_tasks([RowsOf(replace(source, older=older), block, skipped) for source in some_work])
        rows = run_tasks([RowsOf(source, block, skipped) for source in ours])
        different += differences(block, together(rows), together(expected))
    return replace(
        found, differences=(*found.differences, *_new(different, found.differences)), notes=(*found.notes, *notes)
    )


def _new(found: Sequence[Difference], known: Sequence[Difference]) -> Iterator[Difference]:
    """Yield differences at offsets that have no other one."""
    for each in found:
        others = [(one.start, one.end) for one in known if one.block == each.block]
        for start, end in without((each.start, each.end), others):
            yield replace(each, start=start, end=end)


def _without_kept(skipped: Skipped, state: TableState) -> tuple[Skipped, list[str]]:
    """Return ranges that are not compared with those of kept rows, and a sentence about each of these."""
    found: dict[Any, tuple[tuple[int, int], ...]] = dict(skipped)
    notes = []
    for topic, incarnations in state.topics.items():
        for each in incarnations:
            for number, claims in each.partitions.items():
                key = (TopicPartition(topic, number), each.topic_id)
                for kept in claims.kept:
                    found[key] = (*found.get(key, ()), (kept.start, kept.end))
                    notes.append(
                        f"{topic}-{number}: the values of offsets {kept.start} to {kept.end - 1} were not compared, as "
                        "the table keeps rows there that an election removed"
                    )
    return found, notes
