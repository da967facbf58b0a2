"""Messages of a query name options and arguments as its caller writes them."""

import re
from dataclasses import fields, replace
from typing import Any, Final

import pytest

from tests.made_archive import CLUSTER, MadeArchive, batches
from ts_common.errors import DataLoss, QueryError
from ts_reader.query.plan_query import plan_query
from ts_reader.query.query import Cut, Edge, Offsets, Query, Subscription, Timestamp, Timestamps
from ts_reader.query.wording import PYTHON, Wording

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
