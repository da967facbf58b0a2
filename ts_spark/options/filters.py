"""Filters that Spark hands over: what they say of topics, partitions, offsets and timestamps.

Spark applies every filter again to what is read, so a filter may be taken for less than it says, never for more: what
is not understood here restricts nothing. Filters are joined by AND.

**Why this is asked for by an option.** Spark (seen with 4.1.4) keeps the plan that a filtered query got beside the
table, not beside the query: `PythonScanBuilder.pushFilters` calls `PythonDataSourceV2.setReadInfo`, and every scan of
that DataFrame or view takes what was set last. `table.where("offset < 3").count()` and then `table.count()` give 3 both
times, and a union of two filters reads one of them twice. So leaving rows out is safe only where each query loads its
table anew, once for each filter, which nobody but the user can know: `pushDownPredicate`.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ts_common.model import TopicPartition
from ts_spark.options.spark_versions import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

OPTION: Final = "pushDownPredicate"
SETTING: Final = "spark.sql.python.filterPushdown.enabled"
_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"
_LOWEST, _BEYOND = -(1 << 63), 1 << 63  # of what a column can hold
_MOST_WINDOWS: Final = 32  # of offsets; each is looked up by itself
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_UNITS: Final = {"partition": 1, "offset": 1, "timestamp": 1000}  # a record has milliseconds, Spark microseconds

Ranges = tuple[tuple[int, int], ...]  # [from, to), ascending and apart
_ALL: Final[Ranges] = ((_LOWEST, _BEYOND),)

_Comparison = EqualTo | EqualNullSafe | In | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the filters leave of a query.

    Attributes:
        topics: those on topics.
        partitions: numbers.
        offsets: of records.
        milliseconds: since 1970, of records.
    """

    topics: tuple[_Comparison, ...] = ()
    partitions: Ranges = _ALL
    offsets: Ranges = _ALL
    milliseconds: Ranges = _ALL

    @property
    def is_narrow(self) -> bool:
        """Whether the filters say anything that was understood."""
        return self != EVERYTHING

    @property
    def of_partitions(self) -> "Wanted":
        """Without what is said of single records."""
        return Wanted(self.topics, self.partitions)

    def has(self, partition: TopicPartition) -> bool:
        """Whether records of a partition can be wanted."""
        number = partition.partition
        return bool(_common(self.partitions, ((number, number + 1),))) and all(
            _holds(comparison, partition.topic) for comparison in self.topics
        )

    def windows(self, start: int, end: int) -> Ranges:
        """What is wanted of the offsets `[start, end)`; more than that where it would be many pieces."""
        found = _common(self.offsets, ((start, end),)) if start < end else ()
        return found if len(found) <= _MOST_WINDOWS else ((found[0][0], found[-1][1]),)


EVERYTHING: Final = Wanted()


def filters_are_handed_over() -> bool:
    """Whether this process is the one in which Spark hands over filters: only there a reader may have `pushFilters`.

    Where the setting is off, Spark refuses a reader that has it. The process in which it plans a query does not say how
    the setting is, but filters come to a process of another module, which runs only where it is on, and which PySpark's
    daemon names in its arguments. (Without the daemon, `spark.python.use.daemon=false`, Spark 4.1.4 cannot start it.)
    """
    return sys.argv[1:2] == [_WORKER]


def wanted_by(filters: Iterable[Filter]) -> Wanted:
    """What the filters of a query leave of it."""
    topics: list[_Comparison] = []
    ranges = dict.fromkeys(_UNITS, _ALL)
    for each in filters:
        if not isinstance(each, _Comparison) or len(each.attribute) != 1:
            continue
        (column,) = each.attribute
        if column == "topic" and all(isinstance(value, str) for value in _values(each)):
            topics.append(each)
        elif column in ranges:
            numbers = [_units(column, value) for value in _values(each)]
            known = [number for number in numbers if number is not None]
            if len(known) == len(numbers):
                ranges[column] = _common(ranges[column], _ranges(each, known, _UNITS[column]))
    return Wanted(tuple(topics), ranges["partition"], ranges["offset"], ranges["timestamp"])


def _values(comparison: _Comparison) -> list[Any]:
    """What the column is compared with; a null in a list matches nothing."""
    if isinstance(comparison, In):
        return [value for value in comparison.value if value is not None]
    return [comparison.value]


def _holds(comparison: _Comparison, topic: str) -> bool:
    """Whether a comparison with texts holds. Spark compares bytes of UTF-8, which is the order of code points."""
    match comparison:
        case In():
            return topic in _values(comparison)
        case EqualTo() | EqualNullSafe():
            return bool(topic == comparison.value)
        case GreaterThan():
            return bool(topic > comparison.value)
        case GreaterThanOrEqual():
            return bool(topic >= comparison.value)
        case LessThan():
            return bool(topic < comparison.value)
        case LessThanOrEqual():
            return bool(topic <= comparison.value)


def _units(column: str, value: object) -> int | None:
    """A value as a number: microseconds of a timestamp; None where it is none, or has no time zone."""
    if column != "timestamp":
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // timedelta(microseconds=1)


def _ranges(comparison: _Comparison, numbers: Iterable[int], unit: int) -> Ranges:
    """The whole numbers `n` for which `n * unit` compares so with one of `numbers`."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        below, above = number // unit, -(-number // unit)
        match comparison:
            case GreaterThan():
                found.append((below + 1, _BEYOND))
            case GreaterThanOrEqual():
                found.append((above, _BEYOND))
            case LessThan():
                found.append((_LOWEST, above))
            case LessThanOrEqual():
                found.append((_LOWEST, below + 1))
            case _ if below != above:
                pass  # between two milliseconds there is no record
            case _ if found and found[-1][1] == below:
                found[-1] = (found[-1][0], below + 1)
            case _:
                found.append((below, below + 1))
    return tuple(found)


def _common(some: Ranges, others: Ranges) -> Ranges:
    """What lies in both."""
    both = ((max(a, c), min(b, d)) for a, b in some for c, d in others)
    return tuple(sorted((low, high) for low, high in both if low < high))
