"""Plans of commits that add no row: they show what is held."""

from ts_tables.claims.state import TableState
from ts_tables.planning.claimed import Claimed
from ts_tables.planning.plan import TablePlan


class NothingNew:
    """Plans commits without new rows."""

    def plan(self, state: TableState, *, is_first: bool = False) -> TablePlan:
        """Return a plan that adds nothing."""
        del is_first
        return TablePlan(state, (), (), keeps=False, late=0, waits=(), behind={}, lag={})

    def claimed(self, state: TableState) -> Claimed:
        """Return nothing: no row is read again."""
        del state
        return Claimed((), {}, ())
