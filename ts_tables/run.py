"""A run of a table: plan, tasks, commit, until the archive has nothing more for it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any, Protocol

from ts_common.errors import OutcomeUnknown
from ts_tables.claims.state import Kept, TableState, decode_state
from ts_tables.files.digest import BLOCK_OFFSETS, DigestSum
from ts_tables.files.reading import TableFile
from ts_tables.planning.plan import TablePlan, TakenBack, left_of
from ts_tables.targets import Added, HeadMoved, OpenedTable, Target
from ts_tables.tasks import MergeTask, TakenBackTask, Task, TaskResult, WriteTask

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
    held: int = 0
    seconds: float = 0.0


def run_once(target: Target, plans: Plans, engine: Engine, summary: RunSummary | None = None) -> RunSummary:
    """Add to a table what the archive has for it, in one commit or several; return what was done.

    Args:
        target: the table.
        plans: plans its commits.
        engine: runs tasks, and returns their results in their order.
        summary: a new one, filled while the run works: after an error it has what was done before.

    Raises:
        HeadMoved: another run of the table has committed meanwhile; nothing of this commit is in it.
        DataLoss, QueryError, OperatorError: the table or the archive needs its operator.
        CorruptData, BatchTooLarge, ObjectNotFound, StoreUnavailable, AccessDenied, OutcomeUnknown: as the tasks and the
            target raise them.
    """
    summary = RunSummary() if summary is None else summary
    while True:
        opened: OpenedTable = target.open()
        plan = plans.plan(opened.state)
        summary.waits, summary.lag = plan.waits, dict(plan.lag)
        if plan.is_empty and not opened.is_due:
            break
        _commit(target, opened, plan, engine, summary)
        if not plan.has_more:
            break
    return summary


def _commit(target: Target, opened: OpenedTable, plan: TablePlan, engine: Engine, summary: RunSummary) -> None:
    identity = token_hex(8)
    opened.begin(identity)
    sent = False
    try:
        affected = _affected(opened, plan)
        tasks: list[Task] = [
            WriteTask(work, opened.layout, opened.files(identity, number, [work.covered]))
            for number, work in enumerate(plan.work)
        ]
        tasks += [
            TakenBackTask(
                file,
                entries,
                plan.keeps,
                opened.layout,
                opened.files(identity, number, left_of(opened.covered(file), () if plan.keeps else entries)),
            )
            for number, (file, entries) in enumerate(affected, len(tasks))
        ]
        results = _results(engine, tasks)
        replaced = () if plan.keeps else [file.path for file, _ in affected]
        arranged = opened.arrange([each for result in results for each in result.files], replaced)
        merges = [
            MergeTask(
                tuple(files),
                opened.layout,
                opened.files(identity, number, [each for file in files for each in opened.covered(file)]),
            )
            for number, files in enumerate(arranged.merges, len(tasks))
        ]
        added = Added(
            files=[*arranged.shown, *(each for result in _results(engine, merges) for each in result.files)],
            replaced=replaced,
            late=plan.late,
            valid_through=_valid_through(results),
            held=arranged.held,
        )
        state = _keeping(plan, affected, results)
        decode_state(state.encode(), "the state after this commit")  # no run could read the table after a wrong one
        sent = True
        summary.conflicts += target.commit(opened, identity, state, added)
    except OutcomeUnknown:
        raise  # it can still land: a later run removes its files, or finds them committed
    except HeadMoved:
        summary.conflicts += 1
        target.clean(unsent=identity)  # what was sent was refused
        raise
    except BaseException:
        if not sent:
            target.clean(unsent=identity)
        raise
    summary.commits += 1
    summary.records += sum(result.rows for result in results[: len(plan.work)])
    summary.files += len(added.files)
    summary.bytes += sum(each["size"] for each in added.files)
    summary.valid_through = summary.valid_through if added.valid_through is None else added.valid_through
    summary.held = sum(each["rows"] for each in added.held)
    summary.removed += target.clean()


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
    for (_, entries), result in zip(affected, results[-len(affected) :], strict=True):
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
