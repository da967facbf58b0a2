"""What filters leave of a query."""

import pytest

from ts_common.model import TopicPartition
from ts_reader.query.filters import BEYOND, EVERYTHING, LOWEST, Operator, QueryFilters, TopicFilter, intersection


@pytest.mark.parametrize(
    ("operator", "values", "matching"),
    [
        (Operator.IN, ("a", "c"), "ac"),
        (Operator.IN, (), ""),
        (Operator.GREATER, ("b",), "c"),
        (Operator.GREATER_OR_EQUAL, ("b",), "bc"),
        (Operator.LESS, ("b",), "a"),
        (Operator.LESS_OR_EQUAL, ("b",), "ab"),
    ],
)
def test_a_topic_is_compared_by_its_name(operator: Operator, values: tuple[str, ...], matching: str) -> None:
    """Each operator includes and excludes its bound as SQL does."""
    assert "".join(topic for topic in "abc" if TopicFilter(operator, values).matches(topic)) == matching


def test_a_partition_needs_every_filter() -> None:
    """Filters are joined by AND."""
    wanted = QueryFilters((TopicFilter(Operator.IN, ("t",)), TopicFilter(Operator.LESS, ("u",))), partitions=((1, 3),))
    assert [number for number in range(4) if wanted.has(TopicPartition("t", number))] == [1, 2]
    assert not wanted.has(TopicPartition("s", 1))
    assert wanted.is_narrow
    assert not EVERYTHING.is_narrow


def test_windows_are_the_selected_offsets_of_a_range() -> None:
    """An offset of a window is in the range, and in a filter."""
    assert QueryFilters(offsets=((2, 4), (8, 99))).windows(3, 10) == ((3, 4), (8, 10))
    assert EVERYTHING.windows(5, 5) == ()
    many = tuple((n, n + 1) for n in range(0, 100, 2))
    assert QueryFilters(offsets=many).windows(0, 100) == many


def test_the_intersection_of_ranges_is_ascending_and_disjoint() -> None:
    """An offset is in the result if it is in both."""
    assert intersection(((0, 5), (7, 9)), ((3, 8), (LOWEST, 1), (8, BEYOND))) == ((0, 1), (3, 5), (7, 8), (8, 9))
