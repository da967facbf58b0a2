"""The value that every reader makes and the planner reads."""

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

import pytest

from tests.made_archive import CLUSTER, MadeArchive, batches
from ts_common.archive.layout import Layout
from ts_common.errors import DataLoss, QueryError
from ts_common.store.options import Endpoint, StorageOptions
from ts_reader.query.plan_query import plan_everywhere, plan_query
from ts_reader.query.query import (
    PYTHON,
    Cut,
    Edge,
    Offsets,
    Query,
    Subscription,
    Timestamp,
    Timestamps,
    Wording,
    by_location,
    settled,
)


def test_the_entropy_bits_are_the_querys_or_the_layouts(archive: MadeArchive) -> None:
    """Without either, keys have none; a query that has them makes no request."""
    query = Query(archive.location, CLUSTER, None, Subscription(("t",)))
    assert settled(archive.store, query).keys.entropy_bits == 0
    archive.store.put(archive.keys.layout, Layout(5, CLUSTER, 0).encode())
    assert settled(archive.store, query).keys.entropy_bits == 5
    given = Query(archive.location, CLUSTER, 3, Subscription(("t",)))
    assert settled(archive.store, given) is given


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


_SENTENCES: Final = [each.name for each in fields(Wording) if each.type is str]
_NAMES: Final = (
    "prefix_entropy_bits",
    "partitions",
    "pattern",
    *(f"{side}_{what}" for side in ("starting", "ending") for what in ("offsets", "timestamps")),
)
_MARKS: Final[dict[str, Any]] = {name: f"<{name}>" for name in _SENTENCES}
MARKED: Final = Wording(**_MARKS, names={name: f"<{name}>" for name in _NAMES})


@pytest.fixture
def marked(archive: MadeArchive) -> Query:
    """Return a query of a topic with two partitions of ten records, whose wording marks each name."""
    for partition in (0, 1):
        archive.put_segment("t", 0, batches((0, 10)), partition=partition)
        archive.commit("t", 10, partition=partition)
    return Query(archive.location, CLUSTER, 0, Subscription(("t",)), wording=MARKED)


ONE_OF_TWO: Final = Offsets({"t": {0: 3}})
MISTAKES: Final[list[tuple[dict[str, object], set[str]]]] = [
    ({"entropy_bits": 5}, {"prefix_entropy_bits"}),
    ({"subscription": Subscription(assigned={"t": (0, 7)})}, {"partitions"}),
    ({"start": ONE_OF_TWO}, {"starting_offsets", "earliest"}),
    ({"end": ONE_OF_TWO}, {"ending_offsets", "latest"}),
    ({"start": Timestamps({"t": {0: 3}})}, {"starting_timestamps"}),
    ({"end": Timestamps({"t": {0: 3}})}, {"ending_timestamps"}),
    ({"start": Timestamp(1 << 40)}, {"without_match"}),
    ({"end": Offsets({"t": {0: 15, 1: Edge.LATEST}})}, {"despite_loss"}),
    ({"cut": Cut(1 << 40)}, {"despite_unproven"}),
]


@pytest.mark.parametrize(("mistake", "names"), MISTAKES, ids=[" ".join(sorted(names)) for _, names in MISTAKES])
def test_an_error_names_what_its_caller_can_change(
    archive: MadeArchive, marked: Query, mistake: dict[str, object], names: set[str]
) -> None:
    """Only by the wording: a user of Spark has no arguments of Python, nor the reverse."""
    with pytest.raises((QueryError, DataLoss)) as raised:
        plan_query(archive.store, replace(marked, **mistake))  # type: ignore[arg-type]  # fields of several types
    assert set(re.findall(r"<(\w+)>", str(raised.value))) == names


def test_a_warning_and_a_split_have_the_words_of_the_query(archive: MadeArchive, marked: Query) -> None:
    """A pattern without a match, and the way out of a corrupt batch, which is found later."""
    nothing = plan_query(archive.store, replace(marked, subscription=Subscription(pattern=re.compile("z"))))
    assert nothing.warnings[0].startswith("<pattern>=z: no topic")
    assert {split.way_out for split in plan_query(archive.store, marked).splits} == {"<despite_corruption>"}


def test_the_names_of_every_message_are_tested() -> None:
    """A new name needs a message of its own here."""
    elsewhere = {
        "pattern",
        "by_partition",
        "as_pattern",
        "stream",
        "instead_of_stream",
        "despite_corruption",
        "despite_undecoded",
        "schema_source",
        "exact_times",
    }
    assert {name for _, names in MISTAKES for name in names} | elsewhere == {*_SENTENCES, *_NAMES}


def test_without_another_wording_messages_are_for_python() -> None:
    """The default of a query, and of the wording."""
    assert Query("file:///x", CLUSTER, 0, Subscription(("t",))).wording is PYTHON
    assert Wording() == PYTHON
