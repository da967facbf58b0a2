"""Where an offset is read, by mode and by what both tiers have."""

import pytest

from ts_consumer.modes import Extent, TierMode, Way, way_of

KAFKA_FIRST, ARCHIVE_FIRST, ARCHIVE = (
    TierMode.KAFKA_PREFERRED,
    TierMode.TIERED_STORAGE_PREFERRED,
    TierMode.TIERED_STORAGE_ONLY,
)


@pytest.mark.parametrize(
    ("mode", "offset", "way"),
    [
        (KAFKA_FIRST, 10, Way.ARCHIVE),
        (KAFKA_FIRST, 59, Way.ARCHIVE),
        (KAFKA_FIRST, 60, Way.KAFKA),
        (KAFKA_FIRST, 100, Way.KAFKA),
        (KAFKA_FIRST, 9, Way.BELOW),
        (ARCHIVE_FIRST, 10, Way.ARCHIVE),
        (ARCHIVE_FIRST, 79, Way.ARCHIVE),
        (ARCHIVE_FIRST, 80, Way.KAFKA),
        (ARCHIVE_FIRST, 9, Way.BELOW),
    ],
)
def test_the_mode_decides_where_both_tiers_have_the_offset(mode: TierMode, offset: int, way: Way) -> None:
    """The archive has [10, 80), and Kafka [60, 100)."""
    assert way_of(mode, offset, Extent(10, 80), Extent(60, 100)) is way


@pytest.mark.parametrize("mode", [KAFKA_FIRST, ARCHIVE_FIRST])
@pytest.mark.parametrize(
    ("offset", "way"), [(49, Way.ARCHIVE), (50, Way.NOWHERE_YET), (59, Way.NOWHERE_YET), (60, Way.KAFKA)]
)
def test_an_archive_that_ends_below_kafkas_log_leaves_a_gap(mode: TierMode, offset: int, way: Way) -> None:
    """The archive has [10, 50), and Kafka [60, 100)."""
    assert way_of(mode, offset, Extent(10, 50), Extent(60, 100)) is way


@pytest.mark.parametrize(
    ("offset", "way"), [(9, Way.BELOW), (10, Way.ARCHIVE), (80, Way.NOWHERE_YET), (90, Way.NOWHERE_YET)]
)
def test_the_archive_alone_waits_for_more_at_its_end(offset: int, way: Way) -> None:
    """Nothing is read from brokers, and what is not shipped yet follows later."""
    assert way_of(ARCHIVE, offset, Extent(10, 80), None) is way


def test_a_topic_that_no_agent_ships_is_read_from_kafka() -> None:
    """Without an archive, Kafka decides; without both there is nothing yet."""
    assert way_of(ARCHIVE_FIRST, 60, None, Extent(60, 100)) is Way.KAFKA
    assert way_of(ARCHIVE_FIRST, 59, None, Extent(60, 100)) is Way.BELOW
    assert way_of(ARCHIVE, 0, None, None) is Way.NOWHERE_YET
