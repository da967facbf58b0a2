"""Filters that Spark pushes down, as a `QueryFilters` of the planner.

Spark applies every filter again to the rows that it reads. So a filter may restrict less here than it does in Spark,
but never more: a filter that this module does not understand restricts nothing.

**Why an option switches it on.** Spark (seen with 4.1.4) keeps the plan of a filtered query with the table, not with
the query. `PythonScanBuilder.pushFilters` calls `PythonDataSourceV2.setReadInfo`, and every scan of that DataFrame or
view uses what was set last. `table.where("offset < 3").count()` and then `table.count()` both return 3, and a union of
two filters reads one of them twice. So rows may be left out only if each query loads its table itself, once for each
filter. Only the user can ensure that: `pushDownPredicate`.
"""

import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ts_reader.query.filters import ALL, BEYOND, LOWEST, Operator, QueryFilters, Ranges, TopicFilter, intersection
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
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_UNITS: Final = {"partition": 1, "offset": 1, "timestamp": 1000}  # a record has milliseconds, Spark microseconds

_Comparison = EqualTo | EqualNullSafe | In | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
_OPERATORS: Final = {
    In: Operator.IN,
    EqualTo: Operator.IN,
    EqualNullSafe: Operator.IN,
    GreaterThan: Operator.GREATER,
    GreaterThanOrEqual: Operator.GREATER_OR_EQUAL,
    LessThan: Operator.LESS,
    LessThanOrEqual: Operator.LESS_OR_EQUAL,
}


def filters_are_handed_over() -> bool:
    """Return whether Spark pushes filters down to this process: only here a reader may have `pushFilters`.

    If the setting is off, Spark rejects a reader with `pushFilters`. The process that plans a query cannot read the
    setting. But Spark pushes filters down to a process of another module, which runs only if the setting is on, and
    PySpark's daemon has its name in its arguments. (Without the daemon, `spark.python.use.daemon=false`, Spark 4.1.4
    cannot start that process.)
    """
    return sys.argv[1:2] == [_WORKER]


def query_filters(filters: Iterable[Filter]) -> QueryFilters:
    """Return what the filters leave of a query."""
    topics: list[TopicFilter] = []
    ranges = dict.fromkeys(_UNITS, ALL)
    keys: frozenset[bytes] | None = None
    for each in filters:
        if not isinstance(each, _Comparison) or len(each.attribute) != 1:
            continue
        (column,) = each.attribute
        if column == "topic" and all(isinstance(value, str) for value in _values(each)):
            topics.append(TopicFilter(_OPERATORS[type(each)], tuple(_values(each))))
        elif column == "key" and isinstance(each, EqualTo | EqualNullSafe | In):
            found = _values(each)
            if all(isinstance(value, bytes | bytearray) for value in found):
                wanted = frozenset(map(bytes, found))
                keys = wanted if keys is None else keys & wanted
        elif column in ranges:
            numbers = [_units(column, value) for value in _values(each)]
            known = [number for number in numbers if number is not None]
            if len(known) == len(numbers):
                ranges[column] = intersection(ranges[column], _ranges(each, known, _UNITS[column]))
    return QueryFilters(tuple(topics), ranges["partition"], ranges["offset"], ranges["timestamp"], keys)


def _values(comparison: _Comparison) -> list[Any]:
    """Return the values that the column is compared with; a null in a list matches nothing."""
    if isinstance(comparison, In):
        return [value for value in comparison.value if value is not None]
    return [comparison.value]


def _units(column: str, value: object) -> int | None:
    """Return a value as a number, of a timestamp in microseconds; None if it is not one, or has no time zone."""
    if column != "timestamp":
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // timedelta(microseconds=1)


def _ranges(comparison: _Comparison, numbers: Iterable[int], unit: int) -> Ranges:
    """Return the whole numbers `n` for which `n * unit` compares so with one of `numbers`."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        below, above = number // unit, -(-number // unit)
        match comparison:
            case GreaterThan():
                found.append((below + 1, BEYOND))
            case GreaterThanOrEqual():
                found.append((above, BEYOND))
            case LessThan():
                found.append((LOWEST, above))
            case LessThanOrEqual():
                found.append((LOWEST, below + 1))
            case _ if below != above:
                pass  # no record is between two milliseconds
            case _ if found and found[-1][1] == below:
                found[-1] = (found[-1][0], below + 1)
            case _:
                found.append((below, below + 1))
    return tuple(found)
