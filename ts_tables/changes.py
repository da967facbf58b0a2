"""What a commit adds to a table and to that of its refused records: parts are read and parsed, rows written again."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ts_reader.decode.digest import BLOCK_OFFSETS, DigestSum
from ts_tables.claims.state import Kept, TableState
from ts_tables.files.layout import Layout
from ts_tables.files.parsed_columns import parsed_schema
from ts_tables.files.reading import TableFile
from ts_tables.hidden_rows import HiddenRows
from ts_tables.latest.merging import merge, read_again
from ts_tables.latest.tasks import Staging
from ts_tables.marks import Marking
from ts_tables.parse_tasks import ParseTask, Settled
from ts_tables.parsers.contract import Parser
from ts_tables.parsing import Parsing, Plans, with_columns
from ts_tables.planning.plan import TablePlan, TakenBack, left_of
from ts_tables.planning.work import Work
from ts_tables.targets import Added, TableChange
from ts_tables.tasks import Engine, MergeTask, Output, TakenBackTask, Task, TaskResult, WriteTask


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a commit adds to one table.

    Attributes:
        state: after the commit.
        results: of the tasks that read what the plan adds.
        rewritten: bytes of the files of touched buckets, of a table of newest records.
        late: rows of hours or days that were marked before.
    """

    change: TableChange
    added: Added
    state: TableState
    results: Sequence[TaskResult]
    rewritten: int = 0
    late: int = 0


def prepare(
    changes: Sequence[TableChange],
    plan: TablePlan,
    plans: Plans,
    engine: Engine,
    parsing: Parsing | None,
    marking: Marking | None = None,
) -> list[Prepared]:
    """Read what a plan adds, write the files of all tables, and return what each one's commit adds.

    Args:
        changes: of the tables that the plan is for.
        plans: made it.
        parsing: of the records; None of a raw table.
        marking: of the table; None without marks.

    Raises:
        as `ts_tables.run.run_once`.
    """
    again = _work_again(changes, plan, plans, parsing)
    read, parsing = _read(changes, plan.work, again, engine, parsing)
    own = read[: len(plan.work)]
    prepared = []
    for change in changes:
        is_refused = parsing is not None and change.target is parsing.refused
        files = [each for result in read for each in (result.refused_files if is_refused else result.files)]
        if parsing is not None and parsing.newest_only and not is_refused:
            added, state, rewritten = _newest(change, files, plan, engine, parsing)
        else:
            added, state, rewritten = *_appended(change, files, plan, engine), 0
        added = replace(added, late=plan.late, valid_through=_valid_through(own))
        before = change.opened.state
        state = _with_unchanged(state, before)
        late = 0
        if marking is not None and not is_refused:
            marked = replace(state, marks=before.marks)
            state = marking.advanced(marked, plan.work, own, plan.lag, time.time())
            late = marking.late(before, own)
        if parsing is not None:
            state = with_columns(state, parsing.parser)
        # No run could read the table after a wrong one.
        TableState.decode(state.encode(), "the state after this commit")
        prepared.append(Prepared(change, added, state, own, rewritten, late))
    return prepared


def _work_again(
    changes: Sequence[TableChange], plan: TablePlan, plans: Plans, parsing: Parsing | None
) -> tuple[Work, ...]:
    """Return what a table of newest records reads again after an election."""
    if parsing is None or not parsing.newest_only:
        return ()
    table = next((each.opened for each in changes if each.target is not parsing.refused), None)
    return () if table is None else read_again(table.state, plan.taken_back, plans.claimed)


def _with_unchanged(state: TableState, before: TableState) -> TableState:
    """Return a state with what a commit of rows does not change."""
    return replace(
        state,
        parser=before.parser,
        base=before.base,
        generation=before.generation,
        replays=before.replays,
        initial_columns=before.initial_columns,
    )


def _appended(
    change: TableChange, files: Sequence[Mapping[str, Any]], plan: TablePlan, engine: Engine
) -> tuple[Added, TableState]:
    """Return a commit of new files, and of those with rows that an election removed; and the state after it."""
    affected, again = without_rows(change, plan.taken_back, engine, keeps=plan.keeps)
    described = [*files, *(each for result in again for each in result.files)]
    replaced = [] if plan.keeps else [file.path for file, _ in affected]
    state = _keeping(plan, _own(plan, change.opened.state), affected, again)
    return arranged(change, described, replaced, engine), state


def without_rows(
    change: TableChange, entries: Sequence[TakenBack], engine: Engine, *, keeps: bool = False
) -> tuple[list[tuple[TableFile, tuple[TakenBack, ...]]], Sequence[TaskResult]]:
    """Write files that can have rows of some offsets again, without those; return the files and what tasks did.

    Args:
        keeps: whether the rows stay: then they are only counted.
    """
    opened = change.opened
    found: dict[str, tuple[TableFile, tuple[TakenBack, ...]]] = {}
    for entry in entries:
        for file in opened.files_with(entry):
            found[file.path] = (file, (*found.get(file.path, (file, ()))[1], entry))
    affected = list(found.values())
    tasks = [
        TakenBackTask(
            file, some, keeps, opened.layout, change.files(left_of(opened.covered(file), () if keeps else some))
        )
        for file, some in affected
    ]
    return affected, results_of(engine, tasks)


def arranged(change: TableChange, files: Sequence[Mapping[str, Any]], replaced: Sequence[str], engine: Engine) -> Added:
    """Return what a commit does with new files: some are merged with files that are held, and some are held.

    Args:
        files: new ones, as they were described.
        replaced: paths of files that the commit removes.
    """
    opened = change.opened
    found = opened.arrange(files, replaced)
    tasks = [
        MergeTask(tuple(some), opened.layout, change.files([each for file in some for each in opened.covered(file)]))
        for some in found.merges
    ]
    merged: Sequence[TaskResult] = results_of(engine, tasks)
    shown = [*found.shown, *(each for result in merged for each in result.files)]
    return Added(shown, replaced, late=0, valid_through=None, held=found.held)


def _newest(
    change: TableChange, staged: Sequence[Mapping[str, Any]], plan: TablePlan, engine: Engine, parsing: Parsing
) -> tuple[Added, TableState, int]:
    """Return a commit of the touched buckets of a table of newest records, and the bytes of their former files."""
    stage = _stage(change.opened.layout, parsing)
    found = merge(change, staged, plan.taken_back, stage, lambda tasks: results_of(engine, tasks))
    added = Added(found.files, found.replaced, late=0, valid_through=None)
    return added, _own(plan, change.opened.state), found.bytes


def newest_without(
    change: TableChange, work: Sequence[Work], hidden: Sequence[HiddenRows], engine: Engine, parsing: Parsing
) -> tuple[Added, Parser]:
    """Write all buckets of a table of newest records again without hidden rows; return what a commit adds.

    A former record of a key is the newest one if the later ones are hidden, so the records are read again.

    Args:
        work: what the table has claimed of the partitions of these rows, as the archive shows it.
        parsing: of the records, with the parser of the table's state and the refused records that are left out.
    """
    read, grown = _read([change], (), work, engine, parsing)
    parsing = grown or parsing
    staged = [each for result in read for each in result.files]
    stage = _stage(change.opened.layout, parsing)
    found = merge(change, staged, (), stage, lambda tasks: results_of(engine, tasks), hidden)
    return Added(found.files, found.replaced, late=0, valid_through=None), parsing.parser


def _read(
    changes: Sequence[TableChange],
    work: Sequence[Work],
    again: Sequence[Work],
    engine: Engine,
    parsing: Parsing | None,
) -> tuple[Sequence[TaskResult], Parsing | None]:
    """Read parts, and return their results, with all columns that were found in values.

    A part with a member that has no column writes nothing, and is read again when it has one.

    Args:
        work: the parts of a plan.
        again: parts whose refused records were committed before.

    Raises:
        OperatorError: the values have too many members.
    """
    parts = [*work, *again]
    results: dict[int, TaskResult] = {}
    while True:
        if parsing is not None and parsing.parser.found:
            for each in changes:
                if each.target is not parsing.refused:
                    each.extend(parsing.columns)
        left = [number for number in range(len(parts)) if number not in results]
        tasks = [_reading(parts[at], at, changes, parsing, is_again=at >= len(work)) for at in left]
        found = results_of(engine, tasks)
        results |= {at: result for at, result in zip(left, found, strict=True) if not result.unknown}
        if len(results) == len(parts):
            return [results[at] for at in range(len(parts))], parsing
        if parsing is None:
            raise AssertionError("a table without a parser has no members")
        parsing = parsing.grown(found)


def _reading(
    work: Work, number: int, changes: Sequence[TableChange], parsing: Parsing | None, *, is_again: bool
) -> Task:
    """Return the task that reads a part for all tables."""
    outputs = {each.target: Output(each.opened.layout, each.files([work.covered], number)) for each in changes}
    if parsing is None:
        (output,) = outputs.values()
        return WriteTask(work, output.layout, output.files)
    refused = outputs.pop(parsing.refused, None)
    rows = next(iter(outputs.values()), None)
    if rows is not None and parsing.newest_only:
        rows = Output(_stage(rows.layout, parsing), Staging(rows.files))
    before, forgotten = parsing.settled, None
    if is_again:
        table = next(each.opened for each in changes if each.target is not parsing.refused)
        before = before or next(each.opened for each in changes if each.target is parsing.refused)
        forgotten = table.state.forgotten_with(before.state).get((work.partition, work.topic_id))
        refused = None
    if before is not None:
        covered = work.covered
        entry = TakenBack(covered.partition, "", covered.topic_id, covered.start, covered.end)
        settled = Settled(tuple(before.files_with(entry)), before.layout)
        return ParseTask(work, parsing.parser, parsing.name, rows, refused, before.layout, settled, forgotten)
    if refused is None:
        raise AssertionError("a table of refused records is changed, or ahead")
    return ParseTask(work, parsing.parser, parsing.name, rows, refused, refused.layout)


def _stage(layout: Layout, parsing: Parsing) -> Layout:
    """Return the layout of rows that are merged before a commit has them."""
    found = frozenset(each.name for each in parsing.parser.found)  # parts that lack a member have no column of it
    schema = parsed_schema(parsing.parser.columns)
    return Layout(schema, layout.terms, target_bytes=layout.target_bytes, optional=found)


def results_of(engine: Engine, tasks: Sequence[Callable[[], Any]]) -> Sequence[Any]:
    """Return the results of tasks, one for each."""
    results: Sequence[Any] = engine(tasks) if tasks else []
    if len(results) != len(tasks):
        raise AssertionError(f"{len(tasks)} tasks have {len(results)} results")
    return results


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
