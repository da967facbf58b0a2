"""How a table's records are parsed, and what plans its commits."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, Protocol

import pyarrow as pa

from ts_common.errors import OperatorError
from ts_tables.claims.state import TableState
from ts_tables.files.parsed_columns import OWN_NAMES, parsed_schema
from ts_tables.parsers.changes import IS_DELETED
from ts_tables.parsers.contract import Parser
from ts_tables.planning.claimed import Claimed
from ts_tables.planning.erased import Erased
from ts_tables.planning.plan import TablePlan
from ts_tables.targets import OpenedTable, Target
from ts_tables.tasks import TaskResult

MOST_FOUND: Final = 1_000  # columns that a parser finds in values


class Plans(Protocol):
    """Plans the commits of a table: `ts_tables.planning.plan.Planner`."""

    def plan(self, state: TableState, *, is_first: bool = False) -> TablePlan:
        """Return what the next commit adds."""
        ...

    def claimed(self, state: TableState) -> Claimed:
        """Return what a table has claimed, as the archive shows it now."""
        ...

    def erased(self, state: TableState) -> Erased:
        """Return what lists of erased offsets hide of a table's claims, beyond what it obeys."""
        ...


@dataclass(frozen=True, slots=True)
class Parsing:
    """How a table's records are parsed.

    Attributes:
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
            newest: whether the parser may have a newer schema than the state.
        """
        parser = self.parser.with_columns(state.columns) if self.open is None else self.open(state, newest)
        return replace(self, parser=parser)

    def grown(self, results: Iterable[TaskResult]) -> "Parsing":
        """Return it with columns for the members that tasks found in values.

        Raises:
            OperatorError: the values have too many members.
        """
        parser = self.parser.grown([member for result in results for member in result.unknown], OWN_NAMES)
        if len(parser.found) > MOST_FOUND:
            raise OperatorError(
                f"the values have more than {MOST_FOUND} members: declare columns, and one of type json for the rest, "
                "in a table of another name"
            )
        return replace(self, parser=parser)


def with_columns(state: TableState, parser: Parser) -> TableState:
    """Return a state with the columns and schemas of a parser."""
    columns, schemas = tuple(parser.found), tuple(parser.schemas)
    return replace(state, columns=columns, schemas=schemas, key_schema=parser.key_schema)
