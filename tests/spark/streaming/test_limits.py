"""The size of a stream's batches: limits per trigger, and the trigger AvailableNow."""

import pytest

from tests.made_archive import batches
from tests.spark.archives import Archive
from tests.spark.streaming.query import EARLIEST, Query
from ts_common.errors import QueryError
from ts_spark.options.batch_limits import MinOffsetsDelay, Rates, parse_duration


def test_max_offsets_per_trigger_are_shared_out(two: Archive) -> None:
    """By how far each partition is behind, and at least one offset of each, as Spark's Kafka source does."""
    two.put_segment("t", 0, batches((0, 10)), partition=1)
    two.commit("t", 10, partition=1)
    query = Query(two, **EARLIEST, maxOffsetsPerTrigger="11")
    sizes = []
    while rows := query.trigger():
        sizes.append((sum(partition == 0 for _, partition, _ in rows), sum(partition == 1 for _, partition, _ in rows)))
    assert sizes[0] == (10, 1)
    assert all(0 < first + second <= 12 for first, second in sizes)
    assert query.offsets_of() == list(range(100))
    assert query.offsets_of("t", 1) == list(range(10))


def test_limits_count_from_the_checkpoint_after_a_restart(two: Archive) -> None:
    """Spark does not pass the position of the query when it requests the next end."""
    options = {**EARLIEST, "maxOffsetsPerTrigger": "30"}
    query = Query(two, **options)
    query.trigger()
    query.start(**options)
    assert [offset for *_, offset in query.trigger()] == list(range(30, 60))


def test_min_offsets_per_trigger_wait_for_a_limited_time() -> None:
    """The first batch starts at once, others with enough offsets or after the delay."""
    delay = MinOffsetsDelay(Rates(least_offsets=50, longest_wait_milliseconds=1000))
    asked = [(1, 0), (49, 10), (50, 20), (1, 1019), (1, 1020)]
    assert [delay.waits(available, now) for available, now in asked] == [False, True, False, True, False]


def test_a_batch_that_waits_is_no_news(two: Archive) -> None:
    """The end is the offset where the query is."""
    query = Query(two, **EARLIEST, minOffsetsPerTrigger="60", maxTriggerDelay="10m")
    query.trigger()
    two.commit("t", 150, highest_base=100)
    assert query.trigger() == []
    two.commit("t", 160, highest_base=100)
    assert len(query.trigger()) == 60


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("15m", 900_000),
        ("2h", 7_200_000),
        ("70", 70),
        ("9223372036854775807", (1 << 63) - 1),  # of Java, for ever
    ],
)
def test_durations_are_in_sparks_spelling(text: str, milliseconds: int) -> None:
    """A bare number is milliseconds."""
    assert parse_duration(text) == milliseconds


def test_limits_and_sparks_wrapper_are_refused_together(two: Archive) -> None:
    """The wrapper requests the end of a restarted query before its position, so the query would repeat rows."""
    query = Query(two, **EARLIEST, maxOffsetsPerTrigger="30")
    query.trigger()
    query.trigger()
    restarted = Query(two, **EARLIEST, maxOffsetsPerTrigger="30")
    restarted._driver.latest_offset()
    with pytest.raises(QueryError, match=r"maxOffsetsPerTrigger .* cannot be combined with"):
        restarted._driver.plan(query.positions(), query.positions())


def test_a_query_continues_from_the_position_that_spark_reports(two: Archive) -> None:
    """Spark 4.2 hands over where each batch starts: of a restarted query, where the checkpoint ends."""
    two.commit("t", 200, highest_base=100)
    driver = Query(two, **EARLIEST, maxOffsetsPerTrigger="80")._driver
    begin = driver.initial_offset()
    first = driver.latest_offset(begin)
    assert (begin["t"], first["t"]) == ({"0": 0}, {"0": 80})
    restarted = Query(two, **EARLIEST, maxOffsetsPerTrigger="80")._driver
    assert restarted.latest_offset(first)["t"] == {"0": 160}
    assert restarted.latest_offset(first, unlimited=True)["t"] == {"0": 200}
    assert driver.most_offsets == 80


def test_available_now_ends_where_the_archive_was_when_it_began(two: Archive) -> None:
    """In as many batches as the limit requires, without a wait; segments shipped meanwhile are read later."""
    options = {**EARLIEST, "maxOffsetsPerTrigger": "40", "minOffsetsPerTrigger": "30"}
    driver = Query(two, **options)._driver
    driver.stop_where_it_is()
    stands, ends = driver.initial_offset(), []
    two.commit("t", 200, highest_base=100)
    while (end := driver.latest_offset(stands)) != stands:
        driver.plan(stands, end)
        ends.append(end["t"]["0"])
        stands = end
    assert ends == [40, 80, 100]
    again = Query(two, **options)._driver
    again.stop_where_it_is()
    assert again.latest_offset(stands)["t"] == {"0": 140}


@pytest.mark.parametrize("starts", [{}, {"startingTimestamp": "5000", "startingOffsetsByTimestampStrategy": "latest"}])
def test_available_now_does_not_end_below_a_beginning_that_was_found_later(
    two: Archive, starts: dict[str, str]
) -> None:
    """A segment that is shipped between the two is no loss."""
    driver = Query(two, subscribe="t", **starts)._driver
    driver.stop_where_it_is()
    two.commit("t", 200, highest_base=100)
    stands = driver.initial_offset()
    assert driver.latest_offset(stands)["t"] == stands["t"] == {"0": 200}
