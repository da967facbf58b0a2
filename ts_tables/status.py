"""How far a table is."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ts_common.model import TopicPartition
from ts_tables.claims.state import TableState


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """How far a table is in a partition.

    Attributes:
        partition: topic and number.
        topic_id: of the incarnation; None if the cluster has no topic ids.
        start: first claimed offset.
        end: the offset after the last claimed one.
        missing: offsets between them that are not claimed: passed holes and lost ones.
    """

    partition: TopicPartition
    topic_id: str | None
    start: int
    end: int
    missing: int


@dataclass(frozen=True, slots=True)
class TableStatus:
    """How far a table is.

    Attributes:
        name: of the table.
        partitions: by topic, incarnation and number.
        lag: offsets of each topic that are shipped and not claimed; empty if the table fails.
        findings: sentences about holes that it waits at, and why it fails.
        notes: sentences about partitions whose first commit may be under way.
    """

    name: str
    partitions: tuple[PartitionStatus, ...]
    lag: Mapping[str, int]
    findings: tuple[str, ...]
    notes: tuple[str, ...] = ()


def partitions_of(state: TableState) -> Iterator[PartitionStatus]:
    """Yield how far a table is in each partition, by topic, incarnation and number."""
    for topic, incarnations in sorted(state.topics.items()):
        for incarnation in incarnations:
            for number, claims in sorted(incarnation.partitions.items()):
                claimed = sum(high - low for low, high in claims.claims)
                yield PartitionStatus(
                    TopicPartition(topic, number),
                    incarnation.topic_id,
                    claims.start,
                    claims.end,
                    claims.end - claims.start - claimed,
                )
