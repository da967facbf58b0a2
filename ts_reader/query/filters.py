"""What filters, joined by AND, leave of a query: topics, partitions, offsets and timestamps that can match."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from ts_common.model import TopicPartition

LOWEST, BEYOND = -(1 << 63), 1 << 63  # the bounds of a column of 64 bits

Ranges = tuple[tuple[int, int], ...]  # [from, to), ascending and disjoint
ALL: Final[Ranges] = ((LOWEST, BEYOND),)


class Operator(Enum):
    """How a topic's name is compared; strings compare by code points, as bytes of UTF-8 do."""

    IN = "in"
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    LESS = "<"
    LESS_OR_EQUAL = "<="


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """A comparison of a topic's name.

    Attributes:
        values: of `IN` any number, else one.
    """

    operator: Operator
    values: tuple[str, ...]

    def matches(self, topic: str) -> bool:
        """Return whether a topic's records can match."""
        match self.operator:
            case Operator.IN:
                return topic in self.values
            case Operator.GREATER:
                return topic > self.values[0]
            case Operator.GREATER_OR_EQUAL:
                return topic >= self.values[0]
            case Operator.LESS:
                return topic < self.values[0]
            case Operator.LESS_OR_EQUAL:
                return topic <= self.values[0]


@dataclass(frozen=True, slots=True)
class QueryFilters:
    """What filters leave of a query; a reader may return more, because its engine applies the filters again.

    Attributes:
        topics: filters of the topic's name; all of them hold.
        milliseconds: since 1970, of records.
        keys: of records; None for all, also those without a key.
    """

    topics: tuple[TopicFilter, ...] = ()
    partitions: Ranges = ALL
    offsets: Ranges = ALL
    milliseconds: Ranges = ALL
    keys: frozenset[bytes] | None = None

    @property
    def is_narrow(self) -> bool:
        """Whether a filter restricts the query."""
        return self != EVERYTHING

    @property
    def of_partitions(self) -> "QueryFilters":
        """The same without the filters of single records; keys are those of all records that are compared."""
        return QueryFilters(self.topics, self.partitions, keys=self.keys)

    def has(self, partition: TopicPartition) -> bool:
        """Return whether records of a partition can match."""
        number = partition.partition
        return bool(intersection(self.partitions, ((number, number + 1),))) and all(
            each.matches(partition.topic) for each in self.topics
        )

    def windows(self, start: int, end: int) -> Ranges:
        """Return the ranges of `[start, end)` that can match."""
        return intersection(self.offsets, ((start, end),)) if start < end else ()


EVERYTHING: Final = QueryFilters()


def intersection(some: Ranges, others: Ranges) -> Ranges:
    """Return the ranges that are in both."""
    both = ((max(a, c), min(b, d)) for a, b in some for c, d in others)
    return tuple(sorted((low, high) for low, high in both if low < high))
