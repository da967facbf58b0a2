"""A query of topics in several locations: the planner plans it in each, and the reader reads one table."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from ts_common.store.factory import open_store
from ts_common.store.options import Endpoint, StorageOptions
from ts_reader.query.plan_query import QueryPlan, plan_query
from ts_reader.query.query import Bound, Offsets, Query, Timestamps
from ts_reader.query.wanted import EVERYTHING, Wanted

_T = TypeVar("_T")


def plan_everywhere(query: Query, wanted: Wanted = EVERYTHING) -> QueryPlan:
    """Plan a query in each of its locations.

    Raises:
        TieredStorageError: as `plan_query`, of the first location that fails.
    """
    plans = []
    for part in by_location(query):
        with open_store(part.location, StorageOptions(part.connection)) as store:
            plans.append(plan_query(store, part, wanted))
    return QueryPlan(
        splits=tuple(split for plan in plans for split in plan.splits),
        warnings=tuple(warning for plan in plans for warning in plan.warnings),
        losses=tuple(loss for plan in plans for loss in plan.losses),
        segments=sum(plan.segments for plan in plans),
        all_segments=sum(plan.all_segments for plan in plans),
        bytes=sum(plan.bytes for plan in plans),
        all_bytes=sum(plan.all_bytes for plan in plans),
    )


def by_location(query: Query) -> Iterator[Query]:
    """Yield a query for each location, of its topics. The first location gets all topics that no other one has."""
    elsewhere = {topic for _, topics in query.topics_elsewhere for topic in topics}
    first = Endpoint(query.location, StorageOptions(query.connection))
    for endpoint, topics in ((first, None), *query.topics_elsewhere):

        def is_here(topic: str, topics: tuple[str, ...] | None = topics) -> bool:
            return topic not in elsewhere if topics is None else topic in topics

        def here(by_topic: Mapping[str, _T]) -> dict[str, _T]:
            return {topic: value for topic, value in by_topic.items() if is_here(topic)}

        def bound(whole: Bound) -> Bound:
            match whole:
                case Offsets(by_topic):
                    return Offsets(here(by_topic))
                case Timestamps(by_topic):
                    return Timestamps(here(by_topic))
                case _:
                    return whole

        asked = query.subscription
        yield replace(
            query,
            location=endpoint.location,
            connection=endpoint.options.connection,
            topics_elsewhere=(),
            subscription=replace(
                asked,
                topics=tuple(topic for topic in asked.topics if is_here(topic)),
                assigned=None if asked.assigned is None else here(asked.assigned),
            ),
            start=bound(query.start),
            end=bound(query.end),
        )
