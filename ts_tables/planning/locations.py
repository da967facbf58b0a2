"""Plans of a table whose topics are in several locations: one planner for each, one commit for all."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeVar

from ts_common.archive.object_keys import ClusterKeys
from ts_common.store.contract import ObjectStore
from ts_common.store.shared_stores import shared_store
from ts_reader.query.query import Query, settled
from ts_tables.claims.advance import Policy
from ts_tables.claims.state import TableState
from ts_tables.planning.claimed import Claimed
from ts_tables.planning.erased import Erased
from ts_tables.planning.plan import Begins, Planner, TablePlan

_T = TypeVar("_T")

Locate = Callable[[], Sequence[Query]]


class LocatedPlanner:
    """Plans the commits of one table; not thread-safe.

    Args:
        locate: returns a query for each location, with its topics; a pattern can have more topics at each call.
        begins: as of `ts_tables.planning.plan.Planner`, like the next one.
        most_bytes: of segments that one commit adds in a location.
    """

    def __init__(self, locate: Locate, policy: Policy, begins: Begins, most_bytes: int | None) -> None:
        self._locate = locate
        self._arguments = (policy, begins, most_bytes)
        self._planners: list[tuple[Query, Planner]] = []

    def plan(self, state: TableState, *, is_first: bool = False) -> TablePlan:
        """Return what the next commit adds; raise as `ts_tables.planning.plan.Planner.plan`."""
        plans = [planner.plan(there, is_first=is_first) for planner, there in self._by_location(state)]
        if len(plans) == 1:
            return plans[0]
        return TablePlan(
            state=replace(state, topics=_joined(plan.state.topics for plan in plans)),
            work=_chained(plan.work for plan in plans),
            taken_back=_chained(plan.taken_back for plan in plans),
            keeps=plans[0].keeps,
            late=sum(plan.late for plan in plans),
            waits=_chained(plan.waits for plan in plans),
            behind=_joined(plan.behind for plan in plans),
            lag=_joined(plan.lag for plan in plans),
            has_more=any(plan.has_more for plan in plans),
            notes=_chained(plan.notes for plan in plans),
        )

    def claimed(self, state: TableState) -> Claimed:
        """Return what a table has claimed, as the archive shows it now."""
        parts = [planner.claimed(there) for planner, there in self._by_location(state)]
        return Claimed(
            work=tuple(work for part in parts for work in part.work),
            skipped={each: ranges for part in parts for each, ranges in part.skipped.items()},
            notes=tuple(note for part in parts for note in part.notes),
        )

    def erased(self, state: TableState) -> Erased:
        """Return what lists of erased offsets hide of a table's claims, beyond what it obeys."""
        parts = [planner.erased(there) for planner, there in self._by_location(state)]
        return Erased(_chained(part.claims for part in parts), _chained(part.notes for part in parts))

    def stores(self, state: TableState) -> Iterator[tuple[ObjectStore, ClusterKeys, TableState]]:
        """Yield the store of each location and its keys, with the state of its topics."""
        for planner, there in self._by_location(state):
            yield planner.store, planner.keys, there

    def _by_location(self, state: TableState) -> Iterator[tuple[Planner, TableState]]:
        """Yield the planner of each location, with the state of its topics; the first has those of no other."""
        queries = list(self._locate())
        elsewhere = {topic for query in queries[1:] for topic in _named(query)}
        for query in queries:
            here = _named(query) if query is not queries[0] else {*state.topics} - elsewhere
            topics = {name: claims for name, claims in state.topics.items() if name in here}
            yield self._planner(query), replace(state, topics=topics)

    def _planner(self, query: Query) -> Planner:
        """Return the planner of a location; it caches ends and copies as long as the topics are the same."""
        for known, planner in self._planners:
            if known == query:
                return planner
        store = shared_store(query.location, query.connection)
        planner = Planner(store, settled(store, query), *self._arguments)
        others = [(known, each) for known, each in self._planners if known.location != query.location]
        self._planners = [*others, (query, planner)]
        return planner


def _chained(parts: Iterable[Iterable[_T]]) -> tuple[_T, ...]:
    return tuple(chain.from_iterable(parts))


def _joined(parts: Iterable[Mapping[str, _T]]) -> dict[str, _T]:
    return {name: value for part in parts for name, value in part.items()}


def _named(query: Query) -> set[str]:
    return {*query.subscription.topics}
