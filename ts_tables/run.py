"""A run of a table: plan, tasks, commit, until the archive has nothing more for it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import Any, Final, Protocol

import pyarrow as pa

from ts_common.errors import OperatorError
from ts_tables.claims.state import Kept, TableState, decode_state
from ts_tables.files.digest import BLOCK_OFFSETS, DigestSum
from ts_tables.files.parsed_columns import OWN_NAMES, parsed_schema
from ts_tables.files.reading import TableFile
from ts_tables.parsers.contract import Parser
from ts_tables.planning.plan import TablePlan, TakenBack, left_of
from ts_tables.planning.work import Work
from ts_tables.targets import Added, Arranged, HeadMoved, OpenedTable, Target
from ts_tables.tasks import MergeTask, Output, ParseTask, Settled, TakenBackTask, Task, TaskResult, WriteTask

MOST_FOUND: Final = 1_000  # columns that a parser finds in values

Engine = Callable[[Sequence[Callable[[], Any]]], Sequence[Any]]  # runs tasks; returns their results in their order


class Plans(Protocol):
    """Plans the commits of a table: `ts_tables.planning.plan.Planner`."""

    def plan(self, state: TableState, *, is_first: bool = False) -> TablePlan:
        """Return what the next commit adds."""
        ...


@dataclass
class RunSummary:
    """What a run did.

    Attributes:
        commits: their number.
        records: added.
        files: added.
        bytes: of the files.
        removed: leftover files of earlier runs that were removed.
        waits: sentences about holes that the table waits at.
        lag: offsets of each topic that are shipped and not claimed.
        conflicts: attempts to commit that the commit of another run or program refused.
        valid_through: as `Added.valid_through`, of the last commit with rows; None without one.
        refused: records that the parser refused.
        held: rows of plain files that wait to be merged, after the last commit; 0 without one.
        seconds: of the run; `ts_tables.Tables.run` measures them.
    """

    commits: int = 0
    records: int = 0
    files: int = 0
    bytes: int = 0
    removed: int = 0
    waits: tuple[str, ...] = ()
    lag: dict[str, int] = field(default_factory=dict)
    conflicts: int = 0
    valid_through: int | None = None
    refused: int = 0
    held: int = 0
    seconds: float = 0.0


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
    """

    parser: Parser
    name: str
    refused: Target
    plans: Plans
    open: Callable[[TableState, bool], Parser] | None = None
    settled: OpenedTable | None = None

    def at(self, state: TableState, *, newest: bool = False) -> "Parsing":
        """Return it with the parser of a table's state.

        Args:
            state: of the table.
            newest: whether the parser may have a newer schema than the state.
        """
        parser = self.parser.with_columns(state.columns) if self.open is None else self.open(state, newest)
        return replace(self, parser=parser)


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """A table that a commit adds to.

    Attributes:
        target: of it.
        opened: as the plan found it.
    """

    target: Target
    opened: OpenedTable


def run_once(
    target: Target, plans: Plans, engine: Engine, summary: RunSummary | None = None, parsing: Parsing | None = None
) -> RunSummary:
    """Add to a table what the archive has for it, in one commit or several; return what was done.

    The refused records of a parser are committed to their own table first. So that one can be ahead, and is never
    behind: no record is in neither. The next run adds to each table what it lacks.

    Args:
        target: the table.
        plans: plans its commits.
        engine: runs tasks, and returns their results in their order.
        summary: a new one, filled while the run works: after an error it has what was done before.
        parsing: of the records; None for a raw table.

    Raises:
        HeadMoved: another run of the table has committed meanwhile; nothing of this commit is in it.
        DataLoss, QueryError, OperatorError: the table or the archive needs its operator.
        CorruptData, BatchTooLarge, ObjectNotFound, StoreUnavailable, AccessDenied, OutcomeUnknown: as the tasks, the
            parser and the target raise them.
    """
    summary = RunSummary() if summary is None else summary
    while True:
        opened: OpenedTable = target.open()
        _check_parser(opened.state, parsing)
        plan = plans.plan(opened.state)
        sides = [_Side(target, opened)]
        current = parsing
        if parsing is not None:
            refused: OpenedTable = parsing.refused.open()
            _check_parser(refused.state, parsing)
            if refused.state.claims != opened.state.claims:
                refused = _catch_up(parsing, engine, summary)
                # The table gets now what that parser did not refuse.
                current = replace(parsing.at(refused.state), settled=refused)
            else:
                sides.insert(0, _Side(parsing.refused, refused))
                current = parsing.at(opened.state, newest=True)
        summary.waits, summary.lag = plan.waits, dict(plan.lag)
        if plan.is_empty and not any(side.opened.is_due for side in sides):
            break
        _commit(sides, plan, engine, summary, current)
        if not plan.has_more:
            break
    return summary


def _check_parser(state: TableState, parsing: Parsing | None) -> None:
    """Check that a table has the rows of its parser.

    Raises:
        OperatorError: it has those of another one.
    """
    name = None if parsing is None else parsing.name
    if state.parser != name:
        labels = [each or "no parser" for each in (state.parser, name)]
        raise OperatorError(
            f"the table has the rows of parser {labels[0]}, and the file of tables has {labels[1]}: undo the change, "
            "or create a table of another name"
        )


def _catch_up(parsing: Parsing, engine: Engine, summary: RunSummary) -> OpenedTable:
    """Add to the table of refused records alone what the archive has for it; return it as it is then.

    An earlier run ended between its two commits. The plan of the table was made before, so it has no more than that.
    """
    while True:
        opened: OpenedTable = parsing.refused.open()
        plan = parsing.plans.plan(opened.state)
        if plan.is_empty:
            return opened
        _commit([_Side(parsing.refused, opened)], plan, engine, summary, parsing.at(opened.state))


def _commit(
    sides: Sequence[_Side], plan: TablePlan, engine: Engine, summary: RunSummary, parsing: Parsing | None
) -> None:
    """Commit a plan to each side, in their order.

    Raises:
        as `run_once`; sides before the one that failed have the plan.
    """
    identity = token_hex(8)
    for side in sides:
        side.opened.begin(identity)
    unsent = [side.target for side in sides]
    try:
        for change in _changes(sides, plan, identity, engine, parsing):
            side = change.side
            unsent.remove(side.target)
            try:
                summary.conflicts += side.target.commit(side.opened, identity, change.state, change.added)
            except HeadMoved:
                summary.conflicts += 1
                unsent.append(side.target)  # what was sent was refused
                raise
            _count(summary, change, is_refused=parsing is not None and side.target is parsing.refused)
            summary.removed += side.target.clean()
    except BaseException:
        # What was sent can still land after OutcomeUnknown: a later run removes its files, or finds them committed.
        for target in unsent:
            target.clean(unsent=identity)
        raise
    summary.commits += 1


@dataclass(frozen=True, slots=True)
class _Change:
    """What a commit adds to one side.

    Attributes:
        side: of it.
        added: files.
        state: after the commit.
        results: of the tasks that read the archive.
    """

    side: _Side
    added: Added
    state: TableState
    results: Sequence[TaskResult]


def _changes(
    sides: Sequence[_Side], plan: TablePlan, identity: str, engine: Engine, parsing: Parsing | None
) -> list[_Change]:
    """Read what a plan adds, write the files of all sides, and return what each one's commit adds."""
    read, sides, parsing = _read(sides, plan, identity, engine, parsing)
    affected = [_affected(side.opened, plan) for side in sides]
    tasks: list[Task] = []
    for side, some in zip(sides, affected, strict=True):
        opened = side.opened
        tasks += [
            TakenBackTask(
                file,
                entries,
                plan.keeps,
                opened.layout,
                opened.files(identity, number, left_of(opened.covered(file), () if plan.keeps else entries)),
            )
            for number, (file, entries) in enumerate(some, len(plan.work) + len(tasks))
        ]
    left = _results(engine, tasks)
    changes, number = [], len(plan.work) + len(tasks)
    for side, some in zip(sides, affected, strict=True):
        again, left = left[: len(some)], left[len(some) :]
        is_refused = parsing is not None and side.target is parsing.refused
        files = [each for result in read for each in (result.refused_files if is_refused else result.files)]
        files += [each for result in again for each in result.files]
        replaced = () if plan.keeps else [file.path for file, _ in some]
        arranged = side.opened.arrange(files, replaced)
        merged = _merged(side.opened, arranged, identity, number, engine)
        number += len(arranged.merges)
        added = Added(
            files=[*arranged.shown, *(each for result in merged for each in result.files)],
            replaced=replaced,
            late=plan.late,
            valid_through=_valid_through(read),
            held=arranged.held,
        )
        state = replace(_keeping(plan, some, again), parser=side.opened.state.parser)
        if parsing is not None:
            parser = parsing.parser
            columns, schemas = tuple(parser.found), tuple(parser.schemas)
            state = replace(state, columns=columns, schemas=schemas, key_schema=parser.key_schema)
        decode_state(state.encode(), "the state after this commit")  # no run could read the table after a wrong one
        changes.append(_Change(side, added, state, read))
    return changes


def _read(
    sides: Sequence[_Side], plan: TablePlan, identity: str, engine: Engine, parsing: Parsing | None
) -> tuple[Sequence[TaskResult], Sequence[_Side], Parsing | None]:
    """Read what a plan adds, and return the results of its parts, with all columns that were found in values.

    A part with a member that has no column writes nothing, and is read again when it has one.

    Raises:
        OperatorError: the values have too many members.
    """
    results: dict[int, TaskResult] = {}
    while True:
        if parsing is not None and parsing.parser.found:
            schema = parsed_schema(parsing.parser.columns)
            sides = [each if each.target is parsing.refused else _extended(each, schema) for each in sides]
        left = [number for number in range(len(plan.work)) if number not in results]
        found = _results(engine, [_reading(plan.work[at], at, identity, sides, parsing) for at in left])
        results |= {at: result for at, result in zip(left, found, strict=True) if not result.unknown}
        if len(results) == len(plan.work):
            return [results[at] for at in range(len(plan.work))], sides, parsing
        if parsing is None:
            raise AssertionError("a table without a parser has no members")
        members = [member for result in found for member in result.unknown]
        parsing = replace(parsing, parser=parsing.parser.grown(members, OWN_NAMES))
        if len(parsing.parser.found) > MOST_FOUND:
            raise OperatorError(
                f"the values have more than {MOST_FOUND} members: declare columns, and one of type json for the rest, "
                "in a table of another name"
            )


def _extended(side: _Side, schema: pa.Schema) -> _Side:
    return replace(side, opened=side.opened.extended(schema))


def _reading(work: Work, number: int, identity: str, sides: Sequence[_Side], parsing: Parsing | None) -> Task:
    """Return the task that reads a part of a plan, for all sides."""
    outputs = {
        side.target: Output(side.opened.layout, side.opened.files(identity, number, [work.covered])) for side in sides
    }
    if parsing is None:
        (output,) = outputs.values()
        return WriteTask(work, output.layout, output.files)
    refused = outputs.pop(parsing.refused, None)
    settled = None
    if parsing.settled is not None:
        covered, layout = work.covered, parsing.settled.layout
        files = parsing.settled.files_with(
            TakenBack(covered.partition, "", covered.topic_id, covered.start, covered.end)
        )
        settled = Settled(tuple(files), layout)
    return ParseTask(work, parsing.parser, parsing.name, next(iter(outputs.values()), None), refused, settled)


def _merged(
    opened: OpenedTable, arranged: Arranged, identity: str, number: int, engine: Engine
) -> Sequence[TaskResult]:
    merges = [
        MergeTask(
            tuple(files),
            opened.layout,
            opened.files(identity, at, [each for file in files for each in opened.covered(file)]),
        )
        for at, files in enumerate(arranged.merges, number)
    ]
    return _results(engine, merges)


def _count(summary: RunSummary, change: _Change, *, is_refused: bool) -> None:
    added = change.added
    summary.files += len(added.files)
    summary.bytes += sum(each["size"] for each in added.files)
    if is_refused:
        summary.refused += sum(result.refused for result in change.results)
        return
    summary.records += sum(result.rows for result in change.results)
    summary.valid_through = summary.valid_through if added.valid_through is None else added.valid_through
    summary.held = sum(each["rows"] for each in added.held)


def _results(engine: Engine, tasks: Sequence[Task]) -> Sequence[TaskResult]:
    results: Sequence[TaskResult] = engine(tasks) if tasks else []
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


def _keeping(plan: TablePlan, affected: Sequence[Any], results: Sequence[TaskResult]) -> TableState:
    """Return the plan's state with the rows that an election removed and that stay."""
    if not plan.keeps or not affected:
        return plan.state
    sums: dict[tuple[TakenBack, int], DigestSum] = {}
    for (_, entries), result in zip(affected, results, strict=True):
        for entry, by_block in zip(entries, result.found, strict=True):
            for number, found in by_block.items():
                sums[entry, number] = sums.get((entry, number), DigestSum()) + found
    state = plan.state
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
