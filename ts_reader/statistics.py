"""What a scan has of each partition, without its rows."""

from dataclasses import dataclass

from ts_common.model import TopicPartition
from ts_reader.planned_query import PlannedQuery
from ts_reader.query.totals import Detail, Totals


@dataclass(frozen=True, slots=True)
class PartitionStatistics:
    """The rows that a scan returns of a partition; there is at least one.

    Attributes:
        topic: its name.
        partition: its number.
        rows: their number.
        first_offset: the least offset.
        last_offset: the greatest offset.
        least_timestamp: ms since 1970, as stored; None if it is not wanted, or if no row has a timestamp.
        greatest_timestamp: ms since 1970; None if no row has a timestamp.
    """

    topic: str
    partition: int
    rows: int
    first_offset: int
    last_offset: int
    least_timestamp: int | None
    greatest_timestamp: int | None


def statistics_of(planned: PlannedQuery, *, least_timestamp: bool) -> list[PartitionStatistics]:
    """Return the statistics of each partition with rows, by topic and number; raise as `PlannedQuery.run`.

    Args:
        planned: the query.
        least_timestamp: whether it is wanted.
    """
    totals = planned.totals(Detail.ALL if least_timestamp else Detail.HEADERS)
    with_rows = sorted(partition for partition, found in totals.items() if found.rows)
    return [_shown(partition, totals[partition], least_timestamp) for partition in with_rows]


def _shown(partition: TopicPartition, totals: Totals, least_timestamp: bool) -> PartitionStatistics:
    has_time = totals.greatest >= totals.least
    return PartitionStatistics(
        partition.topic,
        partition.partition,
        totals.rows,
        totals.first,
        totals.last,
        totals.least if has_time and least_timestamp else None,
        totals.greatest if has_time else None,
    )
