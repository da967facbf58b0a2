"""A replay of refused records: a mended parser parses them again, and those that it accepts move to the table.

First the table of refused records gets the name of the new parser. From then on no run of the former parser commits to
it, not even one that was planned before: the table would lack the rows of that parser for ever. Then the table is
committed, with the number of its replays; then the accepted records are removed from the other one. A run or a replay
that finds the table ahead completes the last commit: a record that the table has is removed. So a record can be in both
for a moment, and is never in neither.

At offsets where a table keeps records that an election removed from the log, refused records stay as they are: those
of both leaders are there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ts_common.errors import OperatorError
from ts_common.model import TopicPartition
from ts_reader.decode.arrow_schema import MILLISECONDS
from ts_reader.decode.digest import RAW_DIGEST, raw_digests
from ts_tables.changes import arranged, results_of
from ts_tables.claims.state import TableState
from ts_tables.files.layout import Layout
from ts_tables.files.parsed_columns import TOPIC, parsed_rows, parsed_schema
from ts_tables.files.raw_columns import (
    OFFSET,
    ORDINAL,
    PARSER,
    PARTITION,
    RAW_SCHEMA,
    REASON,
    RECORD_SCHEMA,
    TOPIC_ID,
)
from ts_tables.files.reading import TableFile
from ts_tables.parsers.changes import base_of
from ts_tables.parsers.contract import Parsed, Parser, check
from ts_tables.parsers.inference import Member
from ts_tables.parsing import Parsing, with_columns
from ts_tables.planning.plan import TakenBack
from ts_tables.targets import OpenedTable, TableChange, Target
from ts_tables.tasks import Engine, Output, TaskResult, is_of, written_again

_POSITION: Final = (TOPIC, TOPIC_ID, PARTITION, OFFSET)
_DIGESTS: Final = parsed_schema(pa.schema([])).empty_table().select([*_POSITION, ORDINAL, RAW_DIGEST]).schema

Position = tuple[str, str | None, int, int]
Records = set[tuple[Position, bytes]]


@dataclass
class ReplaySummary:
    """What a replay did.

    Attributes:
        moved: records that the parser accepts now.
        left: records that it refuses still.
    """

    moved: int = 0
    left: int = 0


@dataclass(frozen=True, slots=True)
class ReplayTask:
    """Parses the refused records of a file again, and writes the rows of those that are accepted. It can be pickled.

    Attributes:
        file: of refused records.
        kept: offsets whose records stay.
        rows: where rows are written.
    """

    file: TableFile
    layout: Layout
    kept: tuple[TakenBack, ...]
    parser: Parser
    rows: Output

    def __call__(self) -> TaskResult:
        """Read the file, and write the rows.

        Raises:
            CorruptData, StoreUnavailable: as `TableFile.rows` and the parser.
        """
        unknown: dict[Member, None] = {}
        accepted = 0

        def rows() -> Iterator[pa.RecordBatch]:
            nonlocal accepted
            for _, records, parsed, is_kept in _parsed(self.file, self.layout, self.kept, self.parser):
                if is_kept:
                    continue
                unknown.update(dict.fromkeys(parsed.unknown))
                if not unknown and len(parsed.records):
                    accepted += records.num_rows - len(parsed.refused)
                    yield parsed_rows(records, parsed)

        _, written = written_again(self.rows.layout, self.rows.files, rows())
        files = () if unknown else tuple(self.rows.files.describe(each) for each in written)
        return TaskResult("", files, accepted, None, unknown=tuple(unknown))


@dataclass(frozen=True, slots=True)
class SpansTask:
    """Returns the offsets that the records of a file span in each partition. It can be pickled.

    Attributes:
        file: of refused records.
    """

    file: TableFile
    layout: Layout

    def __call__(self) -> list[TakenBack]:
        """Read the positions; raise as `TableFile.rows`."""
        spans: dict[tuple[str, str | None, int], tuple[int, int]] = {}
        names = ("topic", TOPIC_ID, PARTITION, OFFSET)
        for rows in self.file.rows(self.layout.schema, names):
            for topic, topic_id, partition, offset in zip(*(rows[name].to_pylist() for name in names), strict=True):
                low, high = spans.get((topic, topic_id, partition), (offset, offset))
                spans[topic, topic_id, partition] = min(low, offset), max(high, offset)
        return [
            TakenBack(TopicPartition(topic, partition), "", topic_id, low, high + 1)
            for (topic, topic_id, partition), (low, high) in spans.items()
        ]


@dataclass(frozen=True, slots=True)
class LeftTask:
    """Writes a file of refused records again, without those that the table has. It can be pickled.

    Attributes:
        file: of refused records.
        refused: the layout of that file, and where the new one is written.
        kept: offsets whose records stay.
        table: files of the table that can have some.
    """

    file: TableFile
    refused: Output
    kept: tuple[TakenBack, ...]
    table: tuple[TableFile, ...]
    parser: Parser
    name: str

    def __call__(self) -> TaskResult:
        """Read the files, and write the records that stay; raise as `ReplayTask`."""
        in_table = _records_of(self.table)
        moved = 0

        def left() -> Iterator[pa.RecordBatch]:
            nonlocal moved
            for rows, records, parsed, is_kept in _parsed(self.file, self.refused.layout, self.kept, self.parser):
                if is_kept:
                    yield rows
                    continue
                places = zip(*(records[name].to_pylist() for name in ("topic", *_POSITION[1:])), strict=True)
                digests = raw_digests(records).to_pylist()
                is_moved = np.array([each in in_table for each in zip(places, digests, strict=True)], bool)
                moved += int(is_moved.sum())
                reasons = rows[REASON].to_pylist()
                names = rows[PARSER].to_pylist()
                for at, reason in zip(parsed.refused.to_pylist(), parsed.reasons.to_pylist(), strict=True):
                    reasons[at], names[at] = reason, self.name
                columns = {REASON: pa.array(reasons, pa.string()), PARSER: pa.array(names, pa.string())}
                arrays = [columns.get(name, rows[name]) for name in rows.schema.names]
                changed = pa.RecordBatch.from_arrays(arrays, schema=rows.schema)
                yield changed.filter(pa.array(~is_moved))

        count_left, written = written_again(self.refused.layout, self.refused.files, left())
        files = tuple(self.refused.files.describe(each) for each in written)
        return TaskResult("", files, count_left, None, refused=moved)


def replay(target: Target, engine: Engine, parsing: Parsing) -> ReplaySummary:
    """Parse the refused records of a table again, and move those that are accepted to the table.

    Args:
        parsing: of the records, by the mended parser.

    Raises:
        OperatorError: the last run did not end, or the table cannot have the rows of the parser.
        HeadMoved and others: as `ts_tables.run.run_once`.
    """
    opened: OpenedTable = target.open()
    refused: OpenedTable = parsing.refused.open()
    if parsing.newest_only:
        raise OperatorError(
            "a table of mode: latest has no replay, as its records may be newer: create it again under another name"
        )
    if base_of(parsing.parser) != opened.state.base:
        raise OperatorError(
            "the parser has other columns than the table: a replay keeps them; make a generation for other columns"
        )
    if refused.state.replays == opened.state.replays:
        if refused.state.claims != opened.state.claims:
            raise OperatorError(
                "the last run of the table did not end: run it with the parser that it had then, and repeat the replay"
            )
        refused = _without_runs(refused, engine, parsing)
        opened = _commit_rows(target, opened, refused, engine, parsing)
    return complete(opened, refused, engine, parsing)[0]


def complete(
    opened: OpenedTable, refused: OpenedTable, engine: Engine, parsing: Parsing
) -> tuple[ReplaySummary, OpenedTable]:
    """Remove from the table of refused records those that the table has, after a replay; raise as `replay`.

    Return what the replay did, and the table of refused records after it.

    Args:
        refused: the table of refused records.
    """
    parser = parsing.at(opened.state).parser
    kept = _kept(refused.state)
    files = refused.all_files()
    spans: Sequence[Sequence[TakenBack]] = results_of(engine, [SpansTask(each, refused.layout) for each in files])
    with parsing.refused.change(refused) as change:
        tasks = []
        for file, some in zip(files, spans, strict=True):
            found = {each.path: each for span in some for each in opened.files_with(span)}
            output = Output(refused.layout, change.files(refused.covered(file)))
            tasks.append(LeftTask(file, output, kept, tuple(found.values()), parser, parsing.name))
        results: Sequence[TaskResult] = results_of(engine, tasks)
        described = [each for result in results for each in result.files]
        added = arranged(change, described, [each.path for each in files], engine)
        state = replace(with_columns(refused.state, parser), parser=parsing.name, replays=opened.state.replays)
        after = change.commit(state, added)
    return ReplaySummary(sum(each.refused for each in results), sum(each.rows for each in results)), after


def _without_runs(refused: OpenedTable, engine: Engine, parsing: Parsing) -> OpenedTable:
    """Name the parser in the table of refused records, so that no run of another one commits to it; return it then."""
    if refused.state.parser == parsing.name:
        return refused
    with parsing.refused.change(refused) as change:
        after: OpenedTable = change.commit(
            replace(refused.state, parser=parsing.name), arranged(change, (), (), engine)
        )
    return after


def _commit_rows(
    target: Target, opened: OpenedTable, refused: OpenedTable, engine: Engine, parsing: Parsing
) -> OpenedTable:
    """Commit the rows of records that are accepted now, and the parser; return the table after it."""
    with target.change(opened) as change:
        described, parser = _accepted(change, refused, engine, parsing.at(opened.state, newest=True))
        added = arranged(change, described, (), engine)
        state = replace(with_columns(opened.state, parser), parser=parsing.name, replays=opened.state.replays + 1)
        after: OpenedTable = change.commit(state, added)
    return after


def _accepted(
    change: TableChange, refused: OpenedTable, engine: Engine, parsing: Parsing
) -> tuple[list[Mapping[str, Any]], Parser]:
    """Write the rows of accepted records; return them and the parser, with all columns that are found in values."""
    files, kept = refused.all_files(), _kept(refused.state)
    while True:
        if parsing.parser.found:
            change.extend(parsing.columns)
        tasks = [
            ReplayTask(
                file,
                refused.layout,
                kept,
                parsing.parser,
                Output(change.opened.layout, change.files(refused.covered(file), number)),
            )
            for number, file in enumerate(files)
        ]
        results: Sequence[TaskResult] = results_of(engine, tasks)
        if not any(result.unknown for result in results):
            return [each for result in results for each in result.files], parsing.parser
        parsing = parsing.grown(results)


def _parsed(
    file: TableFile, layout: Layout, kept: Sequence[TakenBack], parser: Parser
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch, Parsed, bool]]:
    """Yield the rows of a file, their records, what the parser makes of them, and whether they are kept ones."""
    nothing = parser.parse(pa.RecordBatch.from_pylist([], RAW_SCHEMA)) if kept else None
    for rows in file.rows(layout.schema, optional=layout.optional):
        schema = RECORD_SCHEMA if MILLISECONDS in rows.schema.names else RAW_SCHEMA
        records = rows.select(schema.names).cast(schema)
        is_kept = np.zeros(rows.num_rows, bool)
        for each in kept:
            is_kept |= is_of(records, each).to_numpy(zero_copy_only=False)
        if nothing is not None and is_kept.any():
            stays = pa.array(is_kept)
            yield rows.filter(stays), records.filter(stays), nothing, True
        others = pa.array(~is_kept)
        records = records.filter(others)
        parsed = parser.parse(records)
        check(parser, parsed, records.num_rows)
        yield rows.filter(others), records, parsed, False


def _records_of(files: Sequence[TableFile]) -> Records:
    """Return the positions and digests of the records of a table's files."""
    found: Records = set()
    for file in files:
        for rows in file.rows(_DIGESTS, tuple(_DIGESTS.names)):
            firsts = rows.filter(pc.equal(rows[ORDINAL], 0))
            places = zip(*(firsts[name].to_pylist() for name in _POSITION), strict=True)
            found.update(zip(places, firsts[RAW_DIGEST].to_pylist(), strict=True))
    return found


def _kept(state: TableState) -> tuple[TakenBack, ...]:
    """Return the offsets of records that an election removed from the log, and that stay."""
    return tuple(
        TakenBack(TopicPartition(topic, number), each.directory, each.topic_id, kept.start, kept.end)
        for topic, incarnations in state.topics.items()
        for each in incarnations
        for number, partition in each.partitions.items()
        for kept in partition.kept
    )
