"""A query of topics in several locations."""

import re
from pathlib import Path

import pytest

from tests.made_archive import CLUSTER, MadeArchive, batches
from ts_common.errors import QueryError
from ts_common.store.options import Endpoint, StorageOptions
from ts_reader.query.locations import by_location, plan_everywhere
from ts_reader.query.query import Edge, Offsets, Query, Subscription, Timestamps


def filled(directory: Path, *topics: str) -> MadeArchive:
    archive = MadeArchive(directory)
    for topic in topics:
        archive.put_segment(topic, 0, batches((0, 5)))
        archive.commit(topic, 5)
    return archive


def asked(first: MadeArchive, second: MadeArchive, **fields: object) -> Query:
    """A query whose topics `b` and `c` are in the second location."""
    elsewhere = ((Endpoint(second.location, StorageOptions()), ("b", "c")),)
    values = {"subscription": Subscription(("a", "b")), "topics_elsewhere": elsewhere, **fields}
    return Query(first.location, CLUSTER, 0, **values)  # type: ignore[arg-type]  # one dict for several types


def test_each_location_gets_its_topics_and_their_bounds(tmp_path: Path) -> None:
    """Subscriptions by name, by assignment, and bounds by topic are divided; a pattern is not."""
    first, second = filled(tmp_path / "1"), filled(tmp_path / "2")
    offsets: dict[str, dict[int, int | Edge]] = {"a": {0: 1}, "b": {0: 2}}
    times = {"a": {0: 10}, "b": {0: 20}}
    here, there = by_location(asked(first, second, start=Offsets(offsets), end=Timestamps(times)))
    assert (here.location, here.subscription.topics) == (first.location, ("a",))
    assert (here.start, here.end) == (Offsets({"a": {0: 1}}), Timestamps({"a": {0: 10}}))
    assert (there.location, there.subscription.topics) == (second.location, ("b",))
    assert (there.start, there.end) == (Offsets({"b": {0: 2}}), Timestamps({"b": {0: 20}}))
    assigned = Subscription(assigned={"a": (0,), "c": (1, 2)})
    here, there = by_location(asked(first, second, subscription=assigned))
    assert (here.subscription.assigned, there.subscription.assigned) == ({"a": (0,)}, {"c": (1, 2)})
    pattern = Subscription(pattern=re.compile("."))
    assert {part.subscription for part in by_location(asked(first, second, subscription=pattern))} == {pattern}


def test_plans_of_all_locations_are_added_up(tmp_path: Path) -> None:
    """A topic is read at its location only, whatever another one has under its name."""
    first, second = filled(tmp_path / "1", "a"), filled(tmp_path / "2", "b")
    plan = plan_everywhere(asked(first, second))
    assert [(split.location, split.ranges[0].copies[0].keys.partition.topic) for split in plan.splits] == [
        (first.location, "a"),
        (second.location, "b"),
    ]
    size = 2 * len(batches((0, 5)))
    assert (plan.segments, plan.all_segments, plan.bytes, plan.all_bytes) == (2, 2, size, size)
    with pytest.raises(QueryError, match=f"topic c: .* {re.escape(second.location)} has no such topic"):
        plan_everywhere(asked(first, second, subscription=Subscription(("a", "c"))))
