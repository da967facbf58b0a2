"""From the bounds of a query to offsets of each partition, and what is lost outside of its view."""

from dataclasses import replace

import pytest

from tests.made_archive import CLUSTER, MadeArchive, batches, steps
from tests.made_views import view_of
from ts_common.archive.directories import list_topics
from ts_common.errors import CorruptData, DataLoss, QueryError
from ts_common.model import TopicPartition
from ts_reader.query.bounds import Bounds, Loss, check_losses, check_named_partitions, find_bounds, first_offset_of
from ts_reader.query.query import (
    Bound,
    CorruptionMode,
    Edge,
    Offsets,
    Query,
    Subscription,
    Timestamp,
    Timestamps,
    Tolerance,
)
from ts_reader.reading.topics import read_topics


def asked(archive: MadeArchive, start: Bound, end: Bound = Edge.LATEST, **fields: object) -> Query:
    values = {"subscription": Subscription(("t",)), "start": start, "end": end, **fields}
    return Query(archive.location, CLUSTER, 0, **values)  # type: ignore[arg-type]  # one dict for several types


def at(offset: int | Edge) -> Offsets:
    return Offsets({"t": {0: offset}})


@pytest.fixture
def view(archive: MadeArchive) -> MadeArchive:
    """Return an archive whose view is [20, 60); the record at offset `o` has the timestamp 1000 + `o`."""
    archive.put_segment("t", 0, batches(*steps(0, 80)))
    archive.commit("t", 60, log_start=20)
    return archive


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (Edge.EARLIEST, Edge.LATEST, (20, 60)),
        (Edge.LATEST, Edge.LATEST, (60, 60)),
        (at(30), at(40), (30, 40)),
        (at(Edge.EARLIEST), at(Edge.LATEST), (20, 60)),
        (Timestamp(1030), Timestamp(1040), (30, 40)),
        (Timestamp(0), Timestamp(9999), (20, 60)),
        (Timestamps({"t": {0: 1030}}), Timestamps({"t": {0: 1030}}), (30, 30)),
    ],
)
def test_bounds_are_offsets_of_the_view(view: MadeArchive, start: Bound, end: Bound, expected: tuple[int, int]) -> None:
    """The end is exclusive, by offset and by timestamp."""
    assert find_bounds(view.store, view_of(view), asked(view, start, end)) == Bounds(*expected)


@pytest.mark.parametrize(
    ("start", "end", "expected", "lost", "reason"),
    [
        (at(5), at(30), (20, 30), [(5, 20)], "below the log's start 20"),
        (at(5), at(10), (20, 20), [(5, 10)], "below the log's start 20"),
        (at(50), at(90), (50, 60), [(60, 90)], "the next offset is 60"),
        (at(70), at(90), (60, 60), [(70, 90)], "the next offset is 60"),
        (at(70), Edge.LATEST, (60, 60), [(60, 70)], "the next offset is 60"),
    ],
)
def test_offsets_outside_the_view_are_lost(
    view: MadeArchive, start: Bound, end: Bound, expected: tuple[int, int], lost: list[tuple[int, int]], reason: str
) -> None:
    """Each range of them once, with its reason."""
    found = find_bounds(view.store, view_of(view), asked(view, start, end))
    assert (found.start, found.end) == expected
    assert [(low, high) for low, high, _ in found.lost] == lost
    assert all(reason in why for *_, why in found.lost)


def test_a_query_of_committed_records_ends_at_the_last_stable_offset(view: MadeArchive) -> None:
    """The message names it."""
    query = asked(view, at(50), at(90), read_committed=True)
    ((_, _, why),) = find_bounds(view.store, view_of(view), query).lost
    assert "the last stable offset is 60" in why


def test_a_start_above_the_end_is_an_error(view: MadeArchive) -> None:
    """Unless the query ends at latest: then the start may be shipped later."""
    with pytest.raises(QueryError, match="t-0: the query starts at offset 50, which is greater than the offset 40"):
        find_bounds(view.store, view_of(view), asked(view, at(50), at(40)))


def test_a_timestamp_after_all_records_is_an_error_or_the_end(view: MadeArchive) -> None:
    """By the query's option."""
    with pytest.raises(
        QueryError, match=r"starting at timestamp 1060 \(1970-.*01.060Z\): t-0 .* 20 to 59; with starting_without_match"
    ):
        find_bounds(view.store, view_of(view), asked(view, Timestamp(1060)))
    query = asked(view, Timestamp(1060), start_without_match=Edge.LATEST)
    assert find_bounds(view.store, view_of(view), query) == Bounds(60, 60)


def test_bounds_by_partition_name_every_partition_and_no_other(archive: MadeArchive) -> None:
    """A topic without data may be named with any partition, because the store has no number of them."""
    for partition in (0, 1):
        archive.put_segment("t", 0, batches((0, 5)), partition=partition)
        archive.commit("t", 5, partition=partition)
    archive.put_incarnations("empty", "AAAAAAAAAAAAAAAAAAAAAQ")
    topics = read_topics(archive.store, archive.keys, list_topics(archive.store, archive.keys)).values()
    check_named_partitions(asked(archive, Offsets({"t": {0: 0, 1: Edge.LATEST}, "empty": {7: 3}})), topics)
    with pytest.raises(QueryError, match=r'^starting_offsets: nothing for t-1 \("earliest" is earliest\); t-2, which'):
        check_named_partitions(asked(archive, Offsets({"t": {0: 0, 2: 1}})), topics)
    with pytest.raises(QueryError, match=r"^ending_timestamp: nothing for t-0, t-1; it must name every partition"):
        check_named_partitions(asked(archive, Edge.EARLIEST, Timestamps({})), topics)


QUERY = Query("file:///nowhere", "prod", 0, Subscription(("t",)))


def losses(count: int) -> list[Loss]:
    return [Loss(TopicPartition("t", number), 5, 8, "are lost") for number in range(count)]


def test_a_loss_is_a_sentence() -> None:
    """It names the last offset, not the one after it."""
    assert str(*losses(1)) == "t-0: offsets 5 to 7 are lost"


def test_losses_end_a_query_unless_it_allows_them() -> None:
    """The error lists the first twenty, counts the rest, and has the way out."""
    check_losses([], QUERY)
    check_losses(losses(1), replace(QUERY, fail_on_data_loss=False))
    with pytest.raises(DataLoss) as caught:
        check_losses([*losses(22), "a sentence"], QUERY)
    listed = "; ".join(map(str, losses(20)))
    assert str(caught.value) == f"{listed}; and 3 more. {QUERY.wording.despite_loss}"


LOG = batches((0, 5), (5, 10), (10, 15))
SIZE = len(batches((0, 5)))


def test_a_tolerant_query_skips_corrupt_batches(archive: MadeArchive) -> None:
    """Offsets 5 to 9 are damaged; the record at offset `o` has the timestamp 1000 + `o`."""
    body = bytearray(LOG)
    body[SIZE + 70] ^= 1
    archive.put_segment("t", 0, LOG, body=bytes(body))
    archive.commit("t", 15)
    strict = Query(archive.location, CLUSTER, 0, Subscription(("t",)))
    tolerant = replace(strict, tolerance=Tolerance(CorruptionMode.DROPMALFORMED))
    view = view_of(archive)
    assert [first_offset_of(archive.store, view, time, tolerant) for time in (1003, 1007, 1012, 1015)] == [
        3,
        10,
        12,
        None,
    ]
    assert first_offset_of(archive.store, view, 1003, strict) == 3
    with pytest.raises(CorruptData, match=r"pass mode=.DROPMALFORMED"):
        first_offset_of(archive.store, view, 1007, strict)


def test_a_tolerant_query_reads_an_intact_copy(archive: MadeArchive) -> None:
    """Another copy of the same offsets has the record."""
    body = bytearray(LOG)
    body[SIZE + 70] ^= 1
    archive.put_segment("t", 0, LOG, body=bytes(body))
    archive.put_segment("t", 0, LOG[: 2 * SIZE], variant=True)
    archive.commit("t", 15)
    tolerant = Query(
        archive.location, CLUSTER, 0, Subscription(("t",)), tolerance=Tolerance(CorruptionMode.DROPMALFORMED)
    )
    assert first_offset_of(archive.store, view_of(archive), 1007, tolerant) == 7
