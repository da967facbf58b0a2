"""What Kafka would delete at its next retention."""

import pytest

from ts_common.archive.epoch_history import EpochHistory
from ts_common.errors import QueryError
from tsctl.restore.loss import due_by_retention
from tsctl.restore.partition_plan import PartitionPlan, Source, Step

NOW = 10_000_000


def part(start: int, end: int, *times: int | None) -> PartitionPlan:
    """Return a partition with a segment of 100 bytes and ten offsets for each greatest timestamp."""
    found = tuple(
        Step(start + 10 * place, start + 10 * place + 10, (Source("s", 100, None, time),))
        for place, time in enumerate(times)
    )
    return PartitionPlan(start, end, end, end, (1,), found, (), (), EpochHistory(), None, ())


@pytest.mark.parametrize(
    ("configurations", "below"),
    [
        ({"retention.ms": "1000"}, 20),
        ({"retention.ms": "1000", "cleanup.policy": "compact"}, None),
        ({"retention.ms": "1000", "cleanup.policy": "compact,delete"}, 20),
        ({"retention.ms": "-1"}, None),
        ({"retention.ms": "-1", "retention.bytes": "200"}, 10),
        ({"retention.ms": "1000", "retention.bytes": "50"}, 20),
        ({}, None),
    ],
)
def test_whole_segments_are_due_from_the_first_on(configurations: dict[str, str], below: int | None) -> None:
    """By age, by size, by neither; a segment in front of a young one is kept."""
    found = due_by_retention(part(0, 30, NOW - 5000, NOW - 2000, NOW), configurations, NOW)
    assert (found and found.below) == below


@pytest.mark.parametrize(
    ("configurations", "below"),
    [({}, 10), ({"retention.ms": "-1"}, None), ({"retention.ms": "-1", "retention.bytes": "50"}, 20)],
)
def test_the_brokers_defaults_count_where_the_topic_has_none(configurations: dict[str, str], below: int | None) -> None:
    """A cluster with another `log.retention.ms` than Kafka's seven days."""
    defaults = {"cleanup.policy": "delete", "retention.ms": "3000", "retention.bytes": "-1"}
    found = due_by_retention(part(0, 30, NOW - 5000, NOW - 2000, NOW), configurations, NOW, defaults)
    assert (found and found.below) == below


def test_a_limit_that_is_no_number_is_an_error() -> None:
    """The file of --configurations has it, or a changed plan."""
    with pytest.raises(QueryError, match=r"retention\.ms=1 week: a whole number is expected"):
        due_by_retention(part(0, 10, NOW), {"retention.ms": "1 week"}, NOW)


def test_a_segment_without_a_known_time_is_not_counted_as_due() -> None:
    """Nor are those after it: Kafka deletes from the first one on."""
    assert due_by_retention(part(0, 20, None, 5), {"retention.ms": "1000"}, NOW) is None
