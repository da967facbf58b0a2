"""A run of a table: plan, tasks, commit, until the archive has nothing more for it."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from ts_common.errors import CorruptData, OperatorError
from ts_reader.query.splits import bytes_of
from ts_tables.changes import Prepared, prepare
from ts_tables.claims.state import TableState, with_kept
from ts_tables.files.layout import WAYS_OUT, differing
from ts_tables.marks import Marking
from ts_tables.parsers.changes import KEY
from ts_tables.parsers.contract import Parser
from ts_tables.parsers.table_types import column_type, shown_type
from ts_tables.parsing import Parsing, Plans
from ts_tables.planning.plan import TablePlan
from ts_tables.replay import complete
from ts_tables.targets import OpenedTable, Target
from ts_tables.tasks import Engine


@dataclass
class RunSummary:
    """What a run did.

    Attributes:
        records: added.
        files: added.
        removed: leftover files of earlier runs that were removed.
        waits: sentences about holes that the table waits at.
        notes: sentences about partitions whose first commit may be under way.
        lag: offsets of each topic that are shipped and not claimed.
        conflicts: attempts to commit that the commit of another run or program refused.
        valid_through: as `Added.valid_through`, of the last commit with rows; None without one.
        refused: records that the parser refused.
        rewritten: bytes of files that were written again, with newer records of their keys.
        late: rows of hours or days that were marked before.
        marked: hours or days that were announced.
        marked_through: their end, in seconds since 1970; None without marks.
        changed_times: rows of a raw table whose time does not fit its column, which has the nearest one.
        held: rows of plain files that wait to be merged, after the last commit; 0 without one.
        erased: records whose rows were deleted, because lists of erased offsets hide them.
        erasing: sentences about partitions that do not obey their lists yet.
        seconds: of the run; `ts_tables.Tables.run` measures them.
    """

    commits: int = 0
    records: int = 0
    files: int = 0
    bytes: int = 0
    removed: int = 0
    waits: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    lag: dict[str, int] = field(default_factory=dict)
    conflicts: int = 0
    valid_through: int | None = None
    refused: int = 0
    rewritten: int = 0
    late: int = 0
    marked: tuple[str, ...] = ()
    marked_through: int | None = None
    changed_times: int = 0
    held: int = 0
    erased: int = 0
    erasing: tuple[str, ...] = ()
    seconds: float = 0.0


class Pace:
    """Waits so that a run reads no more than its rate.

    Args:
        rate: bytes of segments in a second.
    """

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._until = time.monotonic()

    def wait(self, read: int) -> None:
        """Wait until so many bytes may have been read since the last call.

        Args:
            read: bytes of segments.
        """
        self._until += read / self._rate
        now = time.monotonic()
        if self._until > now:
            time.sleep(self._until - now)
        self._until = max(self._until, now)


def run_once(
    target: Target,
    plans: Plans,
    engine: Engine,
    summary: RunSummary | None = None,
    parsing: Parsing | None = None,
    pace: Pace | None = None,
    marking: Marking | None = None,
) -> RunSummary:
    """Add to a table what the archive has for it, in one commit or several; return what was done.

    The refused records of a parser are committed to their own table first. So that one can be ahead, and is never
    behind: no record is in neither. The next run adds to each table what it lacks.

    Args:
        plans: plans its commits.
        engine: runs tasks, and returns their results in their order.
        summary: a new one, filled while the run works: after an error it has what was done before.
        parsing: of the records; None for a raw table.
        pace: waits between commits; None for no limit.
        marking: of the table; None without marks.

    Raises:
        HeadMoved: another run of the table has committed meanwhile; nothing of this commit is in it.
        DataLoss, QueryError, OperatorError: the table or the archive needs its operator.
        CorruptData, BatchTooLarge, ObjectNotFound, StoreUnavailable, AccessDenied, OutcomeUnknown: as the tasks, the
            parser and the target raise them.
    """
    summary = RunSummary() if summary is None else summary
    while True:
        opened, refused = _opened(target, engine, parsing)  # another run, or a replay, can have committed meanwhile
        plan = plans.plan(with_kept(opened.state, None if refused is None else refused.state))
        sides, current = [(target, opened)], parsing
        if parsing is not None and refused is not None:
            if refused.state.claims != opened.state.claims:
                refused = _catch_up(parsing, refused, opened.state, engine, summary)
                # The table gets now what that parser did not refuse.
                current = replace(parsing.at(refused.state), settled=refused)
            else:
                sides.insert(0, (parsing.refused, refused))
                current = parsing.at(opened.state, newest=True)
        summary.waits, summary.notes, summary.lag = plan.waits, plan.notes, dict(plan.lag)
        if plan.is_empty and not any(each.is_due for _, each in sides):
            break
        _commit(sides, plan, plans, engine, summary, current, marking)
        if not plan.has_more:
            break
        if pace is not None:
            pace.wait(sum(bytes_of(part) for work in plan.work for part in work.split.ranges))
    return summary


def _opened(target: Target, engine: Engine, parsing: Parsing | None) -> tuple[OpenedTable, OpenedTable | None]:
    """Return a table and that of its refused records; a replay that ended between its two commits is completed.

    Raises:
        OperatorError: one of them has the rows of another parser.
    """
    opened: OpenedTable = target.open()
    check_parser(opened.state, parsing)
    if parsing is None:
        return opened, None
    refused: OpenedTable = parsing.refused.open()
    if refused.state.replays != opened.state.replays:
        _, refused = complete(opened, refused, engine, parsing)
    check_parser(refused.state, parsing)
    return opened, refused


def check_parser(state: TableState, parsing: Parsing | None) -> None:
    """Check that a table has the rows of its parser.

    Args:
        parsing: of the file of tables; None of a raw table.

    Raises:
        OperatorError: it has those of another one.
    """
    name = None if parsing is None else parsing.name
    if state.parser == name:
        return
    labels = [each or "no parser" for each in (state.parser, name)]
    changed = "" if state.parser is None or parsing is None else _changed_columns(state, parsing.parser)
    ways = WAYS_OUT
    if parsing is None or not parsing.newest_only:  # a table of newest records has no replay
        ways += "; or adopt a mended parser by `tsctl tables replay-quarantine`"
    raise OperatorError(
        f"the table has the rows of parser {labels[0]}, and the file of tables has {labels[1]}: "
        f"{f'{changed}; {WAYS_OUT}' if changed else ways}"
    )


def _changed_columns(state: TableState, parser: Parser) -> str:
    """Return how the columns of a parser differ from those of a table; empty if they are the same."""
    before = [*state.base, *((each.name, str(column_type(each.kind))) for each in state.columns)]
    try:
        columns = parser.with_columns(state.columns).columns
    except CorruptData:  # it finds no columns, or others
        columns = parser.columns
    after = [(field.name, str(field.type)) for field in columns if field.name != KEY or parser.key_schema is None]
    texts = [{name: shown_type(kind) for name, kind in each} for each in (before, after)]
    return differing(*texts)


def _catch_up(
    parsing: Parsing, opened: OpenedTable, table: TableState, engine: Engine, summary: RunSummary
) -> OpenedTable:
    """Add to the table of refused records alone what the archive has for it; return it as it is then.

    An earlier run ended between its two commits. The plan of the table was made before, so it has no more than that.
    """
    while not (plan := parsing.plans.plan(with_kept(opened.state, table))).is_empty:
        sides = [(parsing.refused, opened)]
        (opened,) = _commit(sides, plan, parsing.plans, engine, summary, parsing.at(opened.state))
    return opened


def _commit(
    sides: Sequence[tuple[Target, OpenedTable]],
    plan: TablePlan,
    plans: Plans,
    engine: Engine,
    summary: RunSummary,
    parsing: Parsing | None,
    marking: Marking | None = None,
) -> list[OpenedTable]:
    """Commit a plan to each table, in their order, and return them as they are then.

    Raises:
        as `run_once`; tables before the one that failed have the plan.
    """
    after = []
    with ExitStack() as begun:
        changes = [begun.enter_context(target.change(opened)) for target, opened in sides]
        for prepared in prepare(changes, plan, plans, engine, parsing, marking):
            change = prepared.change
            try:
                after.append(change.commit(prepared.state, prepared.added))
            finally:
                summary.conflicts += change.conflicts
            _count(summary, prepared, is_refused=parsing is not None and change.target is parsing.refused)
            summary.removed += change.removed
    summary.commits += 1
    return after


def _count(summary: RunSummary, done: Prepared, *, is_refused: bool) -> None:
    added = done.added
    summary.files += len(added.files)
    summary.bytes += sum(each["size"] for each in added.files)
    if is_refused:
        summary.refused += sum(result.refused for result in done.results)
        return
    summary.records += sum(result.rows for result in done.results)
    summary.changed_times += sum(result.changed_times for result in done.results)
    summary.valid_through = summary.valid_through if added.valid_through is None else added.valid_through
    summary.rewritten += done.rewritten
    summary.late += done.late
    summary.held = sum(each["rows"] for each in added.held)
