"""A run of a table: plan, tasks, commit, until the archive has nothing more for it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from secrets import token_hex

from ts_common.errors import CorruptData, OperatorError
from ts_reader.query.splits import bytes_of
from ts_tables.changes import Change, Parsing, Plans, Side, changes_of
from ts_tables.claims.state import TableState, with_kept
from ts_tables.files.layout import WAYS_OUT, differing
from ts_tables.marks import Marking
from ts_tables.parsers.changes import KEY
from ts_tables.parsers.contract import Parser
from ts_tables.parsers.table_types import column_type, shown_type
from ts_tables.planning.plan import TablePlan
from ts_tables.replay import complete
from ts_tables.targets import HeadMoved, OpenedTable, Target
from ts_tables.tasks import Engine


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
        target: the table.
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
        opened: OpenedTable = target.open()
        check_parser(opened.state, parsing)
        refused: OpenedTable | None = None if parsing is None else parsing.refused.open()
        if parsing is not None and refused is not None:
            if refused.state.replays != opened.state.replays:
                complete(target, engine, parsing)  # a replay has ended between its two commits
                continue
            check_parser(refused.state, parsing)
        plan = plans.plan(with_kept(opened.state, None if refused is None else refused.state))
        sides = [Side(target, opened)]
        current = parsing
        if parsing is not None and refused is not None:
            if refused.state.claims != opened.state.claims:
                refused = _catch_up(parsing, opened.state, engine, summary)
                # The table gets now what that parser did not refuse.
                current = replace(parsing.at(refused.state), settled=refused)
            else:
                sides.insert(0, Side(parsing.refused, refused))
                current = parsing.at(opened.state, newest=True)
        summary.waits, summary.notes, summary.lag = plan.waits, plan.notes, dict(plan.lag)
        if plan.is_empty and not any(side.opened.is_due for side in sides):
            break
        _commit(sides, plan, plans, engine, summary, current, marking)
        if not plan.has_more:
            break
        if pace is not None:
            pace.wait(sum(bytes_of(part) for work in plan.work for part in work.split.ranges))
    return summary


def check_parser(state: TableState, parsing: Parsing | None) -> None:
    """Check that a table has the rows of its parser.

    Args:
        state: of the table.
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


def _catch_up(parsing: Parsing, table: TableState, engine: Engine, summary: RunSummary) -> OpenedTable:
    """Add to the table of refused records alone what the archive has for it; return it as it is then.

    An earlier run ended between its two commits. The plan of the table was made before, so it has no more than that.
    """
    while True:
        opened: OpenedTable = parsing.refused.open()
        plan = parsing.plans.plan(with_kept(opened.state, table))
        if plan.is_empty:
            return opened
        only = [Side(parsing.refused, opened)]
        _commit(only, plan, parsing.plans, engine, summary, parsing.at(opened.state))


def _commit(
    sides: Sequence[Side],
    plan: TablePlan,
    plans: Plans,
    engine: Engine,
    summary: RunSummary,
    parsing: Parsing | None,
    marking: Marking | None = None,
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
        for change in changes_of(sides, plan, plans, identity, engine, parsing, marking):
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


def _count(summary: RunSummary, change: Change, *, is_refused: bool) -> None:
    added = change.added
    summary.files += len(added.files)
    summary.bytes += sum(each["size"] for each in added.files)
    if is_refused:
        summary.refused += sum(result.refused for result in change.results)
        return
    summary.records += sum(result.rows for result in change.results)
    summary.changed_times += sum(result.changed_times for result in change.results)
    summary.valid_through = summary.valid_through if added.valid_through is None else added.valid_through
    summary.rewritten += change.rewritten
    summary.late += change.late
    summary.held = sum(each["rows"] for each in added.held)
