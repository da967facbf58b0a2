"""How far a table and its generations are, and whether one generation can replace the other."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ts_common.model import TopicPartition
from ts_common.wording import counted, some
from ts_tables.claims.state import TableState, without
from ts_tables.targets import TableContents


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """How far a table is in a partition.

    Attributes:
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


_SHOWN: Final = 3  # of a message


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation of a table.

    Attributes:
        number: of it.
        is_in_use: whether it has the table's name.
        contents: what it has; None if it was not created.
        status: how far it is; None as above.
    """

    number: int
    is_in_use: bool
    contents: TableContents | None
    status: TableStatus | None


def lacking(state: TableState, other: TableState) -> str:
    """Return what another generation lacks, for a message; empty if it lacks nothing.

    It lacks offsets that it does not claim, and deletions of forgotten and of erased records.

    Args:
        state: of the generation in use.
        other: of the other one.
    """
    found = []
    for topic, incarnations in sorted(state.topics.items()):
        for each in incarnations:
            there = other.incarnation(topic, each.directory)
            for number, claims in sorted(each.partitions.items()):
                known = None if there is None else there.partitions.get(number)
                theirs = () if known is None else known.claims
                left = [span for own in claims.claims for span in without(own, theirs)]
                if left:
                    count = sum(end - start for start, end in left)
                    found.append(f"{topic}-{number} {counted(count, 'offset')} from {left[0][0]} on")
                deleted = {*claims.forgotten} - {*(() if known is None else known.forgotten)}
                behind = [
                    (name, number)
                    for name, number in claims.obeyed
                    if number > dict(() if known is None else known.obeyed).get(name, 0)
                ]
                found += [f"list {number} of the erased offsets of {name}" for name, number in behind]
                if deleted:
                    found.append(
                        f"{topic}-{number} {counted(len(deleted), 'deletion')}, the first at offset {min(deleted)[0]}"
                    )
    return some(found, _SHOWN)
