"""What a commit adds to a table and to that of its refused records: parts are read and parsed, rows written again."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final, Protocol, cast

import pyarrow as pa

from ts_common.errors import OperatorError
from ts_tables.claims.state import Kept, TableState
from ts_tables.files.digest import BLOCK_OFFSETS, DigestSum
from ts_tables.files.layout import Layout
from ts_tables.files.parsed_columns import OWN_NAMES, parsed_schema
from ts_tables.files.reading import TableFile
from ts_tables.latest.merging import merge, read_again
from ts_tables.latest.tasks import Staging
from ts_tables.marks import Marking
from ts_tables.parsers.changes import IS_DELETED
from ts_tables.parsers.contract import Parser
from ts_tables.planning.claimed import Claimed
from ts_tables.planning.plan import TablePlan, TakenBack, left_of
from ts_tables.planning.work import Work
from ts_tables.targets import Added, Arranged, OpenedBuckets, OpenedTable, Target
from ts_tables.tasks import (
    Digests,
    Engine,
    MergeTask,
    Output,
    ParseTask,
    Settled,
    TakenBackTask,
    Task,
    TaskResult,
    WriteTask,
)

MOST_FOUND: Final = 1_000  # columns that a parser finds in values


class Plans(Protocol):
    """Plans the commits of a table: `ts_tables.planning.plan.Planner`."""

    def plan(self, state: TableState, *, is_first: bool = False) -> TablePlan:
        """Return what the next commit adds."""
        ...

    def claimed(self, state: TableState) -> Claimed:
        """Return what a table has claimed, as the archive shows it now."""
        ...


@dataclass(frozen=True, slots=True)
class Parsing:
    """How a table's records are parsed.

    Attributes:
        parser: of the table.
        name: of the parser.
        refused: the table of refused records.
        plans: of that table alone, after a run that ended between its two commits. If an election removed
            only records that the table lacks, they are deleted from that one.
        open: returns the parser of a table's state: with the columns of the state, and with its schemas; if the
            second argument is true, with the newest schema too. None if the parser has no schemas.
        settled: the table of refused records, if it is ahead: what it has is refused, and nothing else.
        newest_only: whether the table has only the newest record of each key.
    """

    parser: Parser
    name: str
    refused: Target
    plans: Plans
    open: Callable[[TableState, bool], Parser] | None = None
    settled: OpenedTable | None = None
    newest_only: bool = False

    @property
    def columns(self) -> pa.Schema:
        """The columns of the table: those of the parser, but `_is_deleted` where no row is."""
        found = parsed_schema(self.parser.columns)
        return pa.schema([field for field in found if not (self.newest_only and field.name == IS_DELETED)])

    def at(self, state: TableState, *, newest: bool = False) -> "Parsing":
        """Return it with the parser of a table's state.

        Args:
            state: of the table.
            newest: whether the parser may have a newer schema than the state.
        """
        parser = self.parser.with_columns(state.columns) if self.open is None else self.open(state, newest)
        return replace(self, parser=parser)


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """A table that a commit adds to.

    Attributes:
        target: of it.
        opened: as the plan found it.
    """

    target: Target
    opened: OpenedTable


@dataclass(frozen=True, slots=True)
class Change:
    """What a commit adds to one side.

    Attributes:
        side: of it.
        added: files.
        state: after the commit.
        results: of the tasks that read what the plan adds.
        rewritten: bytes of the files of touched buckets, of a table of newest records.
        late: rows of hours or days that were marked before.
    """

    side: Side
    added: Added
    state: TableState
    results: Sequence[TaskResult]
    rewritten: int = 0
    late: int = 0


def changes_of(
    sides: Sequence[Side],
    plan: TablePlan,
    plans: Plans,
    identity: str,
    engine: Engine,
    parsing: Parsing | None,
    marking: Marking | None = None,
) -> list[Change]:
    """Read what a plan adds, write the files of all sides, and return what each one's commit adds.

    Args:
        sides: the tables that the plan is for.
        plan: of the commit.
        plans: made it.
        identity: of the plan.
        engine: runs tasks.
        parsing: of the records; None of a raw table.
        marking: of the table; None without marks.

    Raises:
        as `ts_tables.run.run_once`.
    """
    again: tuple[Work, ...] = ()
    if parsing is not None and parsing.newest_only:
        table = next((side.opened for side in sides if side.target is not parsing.refused), None)
        if table is not None:
            again = read_again(table.state, plan.taken_back, plans.claimed)
    read, sides, parsing = _read(sides, plan.work, again, identity, engine, parsing)
    numbers = count(len(plan.work) + len(again))
    changes = []
    for side in sides:
        is_refused = parsing is not None and side.target is parsing.refused
        files = [each for result in read for each in (result.refused_files if is_refused else result.files)]
        if parsing is not None and parsing.newest_only and not is_refused:
            added, state, rewritten = _newest(side, files, plan, identity, numbers, engine, parsing)
        else:
            added, state, rewritten = *_appended(side, files, plan, identity, numbers, engine), 0
        own = read[: len(plan.work)]
        added = replace(added, late=plan.late, valid_through=_valid_through(own))
        before = side.opened.state
        state = replace(
            state,
            parser=before.parser,
            base=before.base,
            generation=before.generation,
            replays=before.replays,
            initial_columns=before.initial_columns,
        )
        late = 0
        if marking is not None and not is_refused:
            state = replace(state, marks=before.marks)
            state = marking.advanced(state, plan.work, own, plan.lag, time.time())
            late = marking.late(before, own)
        if parsing is not None:
            state = with_columns(state, parsing.parser)
        # No run could read the table after a wrong one.
        TableState.decode(state.encode(), "the state after this commit")
        changes.append(Change(side, added, state, own, rewritten, late))
    return changes


def with_columns(state: TableState, parser: Parser) -> TableState:
    """Return a state with the columns and schemas of a parser."""
    columns, schemas = tuple(parser.found), tuple(parser.schemas)
    return replace(state, columns=columns, schemas=schemas, key_schema=parser.key_schema)


def _appended(
    side: Side,
    files: Sequence[Mapping[str, Any]],
    plan: TablePlan,
    identity: str,
    numbers: Iterator[int],
    engine: Engine,
) -> tuple[Added, TableState]:
    """Return a commit of new files, and of those with rows that an election removed; and the state after it.

    Args:
        side: the table.
        files: new ones, as they were described.
        plan: of the commit.
        identity: of the plan.
        numbers: of its parts that are free.
        engine: runs tasks.
    """
    opened = side.opened
    affected = _affected(opened, plan)
    again = results_of(
        engine,
        [
            TakenBackTask(
                file,
                entries,
                plan.keeps,
                opened.layout,
                opened.files(identity, next(numbers), left_of(opened.covered(file), () if plan.keeps else entries)),
            )
            for file, entries in affected
        ],
    )
    replaced = () if plan.keeps else [file.path for file, _ in affected]
    described = [*files, *(each for result in again for each in result.files)]
    added = arranged(opened, described, replaced, identity, numbers, engine)
    return added, _keeping(plan, _own(plan, opened.state), affected, again)


def arranged(
    opened: OpenedTable,
    files: Sequence[Mapping[str, Any]],
    replaced: Sequence[str],
    identity: str,
    numbers: Iterator[int],
    engine: Engine,
) -> Added:
    """Return what a commit does with new files: some are merged with files that are held, and some are held.

    Args:
        opened: the table.
        files: new ones, as they were described.
        replaced: paths of files that the commit removes.
        identity: of the plan.
        numbers: of its parts that are free.
        engine: runs tasks.
    """
    found = opened.arrange(files, replaced)
    merged = _merged(opened, found, identity, numbers, engine)
    shown = [*found.shown, *(each for result in merged for each in result.files)]
    return Added(shown, replaced, late=0, valid_through=None, held=found.held)


def _newest(
    side: Side,
    staged: Sequence[Mapping[str, Any]],
    plan: TablePlan,
    identity: str,
    numbers: Iterator[int],
    engine: Engine,
    parsing: Parsing,
) -> tuple[Added, TableState, int]:
    """Return a commit of the touched buckets of a table of newest records, and the bytes of their former files."""
    opened = cast("OpenedBuckets", side.opened)
    stage = _stage(opened.layout, parsing)
    found = merge(opened, staged, plan.taken_back, stage, (identity, numbers), lambda tasks: results_of(engine, tasks))
    added = Added(found.files, found.replaced, late=0, valid_through=None)
    return added, _own(plan, opened.state), found.bytes


def _read(
    sides: Sequence[Side],
    work: Sequence[Work],
    again: Sequence[Work],
    identity: str,
    engine: Engine,
    parsing: Parsing | None,
) -> tuple[Sequence[TaskResult], Sequence[Side], Parsing | None]:
    """Read parts, and return their results, with all columns that were found in values.

    A part with a member that has no column writes nothing, and is read again when it has one.

    Args:
        sides: the tables.
        work: the parts of a plan.
        again: parts whose refused records were committed before.
        identity: of the plan.
        engine: runs tasks.
        parsing: of the records.

    Raises:
        OperatorError: the values have too many members.
    """
    parts = [*work, *again]
    results: dict[int, TaskResult] = {}
    while True:
        if parsing is not None and parsing.parser.found:
            schema = parsing.columns
            sides = [each if each.target is parsing.refused else _extended(each, schema) for each in sides]
        left = [number for number in range(len(parts)) if number not in results]
        tasks = [_reading(parts[at], at, identity, sides, parsing, is_again=at >= len(work)) for at in left]
        found = results_of(engine, tasks)
        results |= {at: result for at, result in zip(left, found, strict=True) if not result.unknown}
        if len(results) == len(parts):
            return [results[at] for at in range(len(parts))], sides, parsing
        if parsing is None:
            raise AssertionError("a table without a parser has no members")
        members = [member for result in found for member in result.unknown]
        parsing = replace(parsing, parser=parsing.parser.grown(members, OWN_NAMES))
        check_found(parsing.parser)


def check_found(parser: Parser) -> None:
    """Check the number of columns that a parser found.

    Raises:
        OperatorError: there are too many.
    """
    if len(parser.found) > MOST_FOUND:
        raise OperatorError(
            f"the values have more than {MOST_FOUND} members: declare columns, and one of type json for the rest, in a "
            "table of another name"
        )


def _extended(side: Side, schema: pa.Schema) -> Side:
    return replace(side, opened=side.opened.extended(schema))


def _reading(
    work: Work, number: int, identity: str, sides: Sequence[Side], parsing: Parsing | None, *, is_again: bool
) -> Task:
    """Return the task that reads a part for all sides."""
    outputs = {
        side.target: Output(side.opened.layout, side.opened.files(identity, number, [work.covered])) for side in sides
    }
    if parsing is None:
        (output,) = outputs.values()
        return WriteTask(work, output.layout, output.files)
    refused = outputs.pop(parsing.refused, None)
    refused_layout = None if refused is None else refused.layout
    rows = next(iter(outputs.values()), None)
    if rows is not None and parsing.newest_only:
        rows = Output(_stage(rows.layout, parsing), Staging(rows.files))
    before = parsing.settled
    if is_again:
        before = before or next(side.opened for side in sides if side.target is parsing.refused)
        refused = None
    if before is not None:
        refused_layout = before.layout
    if refused_layout is None:
        raise AssertionError("a table of refused records is a side, or ahead")
    settled = None
    forgotten: Digests | None = None
    if is_again:
        table = next(side.opened for side in sides if side.target is not parsing.refused)
        noted = table.state.forgotten_with(None if before is None else before.state)
        forgotten = noted.get((work.partition, work.topic_id))
    if before is not None:
        covered = work.covered
        entry = TakenBack(covered.partition, "", covered.topic_id, covered.start, covered.end)
        settled = Settled(tuple(before.files_with(entry)), before.layout)
    return ParseTask(work, parsing.parser, parsing.name, rows, refused, refused_layout, settled, forgotten)


def _stage(layout: Layout, parsing: Parsing) -> Layout:
    """Return the layout of rows that are merged before a commit has them."""
    found = frozenset(each.name for each in parsing.parser.found)  # parts that lack a member have no column of it
    schema = parsed_schema(parsing.parser.columns)
    return Layout(schema, layout.terms, target_bytes=layout.target_bytes, optional=found)


def _merged(
    opened: OpenedTable, arranged: Arranged, identity: str, numbers: Iterator[int], engine: Engine
) -> Sequence[TaskResult]:
    merges = [
        MergeTask(
            tuple(files),
            opened.layout,
            opened.files(identity, next(numbers), [each for file in files for each in opened.covered(file)]),
        )
        for files in arranged.merges
    ]
    return results_of(engine, merges)


def results_of(engine: Engine, tasks: Sequence[Callable[[], Any]]) -> Sequence[Any]:
    """Return the results of tasks, one for each."""
    results: Sequence[Any] = engine(tasks) if tasks else []
    if len(results) != len(tasks):
        raise AssertionError(f"{len(tasks)} tasks have {len(results)} results")
    return results


def _affected(opened: OpenedTable, plan: TablePlan) -> list[tuple[TableFile, tuple[TakenBack, ...]]]:
    """Return the files that can have rows that an election removed, each with the entries of the plan."""
    affected: dict[str, tuple[TableFile, tuple[TakenBack, ...]]] = {}
    for entry in plan.taken_back:
        for file in opened.files_with(entry):
            affected[file.path] = (file, (*affected.get(file.path, (file, ()))[1], entry))
    return list(affected.values())


def _own(plan: TablePlan, before: TableState) -> TableState:
    """Return the plan's state with what a table has of its own; an election ends that at the offsets it removed."""
    for each in plan.taken_back:
        topic, number = each.partition.topic, each.partition.partition
        known = before.incarnation(topic, each.directory)
        if known is not None and number in known.partitions:
            partitions = {**known.partitions, number: known.partitions[number].below(each.start)}
            before = before.with_incarnation(topic, replace(known, partitions=partitions))
    return plan.state.with_own(before)


def _keeping(plan: TablePlan, state: TableState, affected: Sequence[Any], results: Sequence[TaskResult]) -> TableState:
    """Return a state with the rows that an election removed and that stay."""
    if not plan.keeps or not affected:
        return state
    sums: dict[tuple[TakenBack, int], DigestSum] = {}
    for (_, entries), result in zip(affected, results, strict=True):
        for entry, by_block in zip(entries, result.found, strict=True):
            for number, found in by_block.items():
                sums[entry, number] = sums.get((entry, number), DigestSum()) + found
    for (entry, number), found in sums.items():
        start, end = number * BLOCK_OFFSETS, (number + 1) * BLOCK_OFFSETS
        kept = Kept(max(entry.start, start), min(entry.end, end), found.rows, found.text)
        state = state.keeping(entry.partition.topic, entry.directory, entry.partition.partition, kept)
    return state


def _valid_through(results: Sequence[TaskResult]) -> int | None:
    """Return the least, over partitions, of the greatest timestamp of their rows."""
    latest: dict[str, int] = {}
    for result in results:
        if result.last_timestamp is not None:  # of a task that added rows
            latest[result.partition] = max(result.last_timestamp, latest.get(result.partition, result.last_timestamp))
    return min(latest.values(), default=None)
