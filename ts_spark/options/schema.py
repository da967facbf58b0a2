"""The table that a query sees: columns, types and order of Spark's own Kafka source.

A narrower schema (`.schema("offset long, value binary")`) is the one way in which Spark tells a Python data source what
it wants; only those columns are decoded. This module loads nothing heavy: Spark asks for it whenever it looks for data
sources, whichever one a query wants.
"""

import difflib
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ts_common.errors import QueryError

HEADERS: Final = "headers"
_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: ArrayType(_HEADER),
}
COLUMNS: Final = tuple(_TYPES)


def full_schema(*, include_headers: bool, corrupt_column: str | None = None) -> StructType:
    """All columns; `headers` only when it was asked for, and last the one for corrupt batches, where it has a name."""
    fields = [StructField(name, kind) for name, kind in _TYPES.items() if include_headers or name != HEADERS]
    return StructType([*fields, StructField(corrupt_column, BinaryType())] if corrupt_column else fields)


def wanted_columns(schema: StructType, *, include_headers: bool, corrupt_column: str | None = None) -> tuple[str, ...]:
    """The names of the columns that a query's schema wants, in its order.

    Raises:
        QueryError: a name or type that the source does not have; all of them at once.
    """
    types = {
        field.name: field.dataType.simpleString()
        for field in full_schema(include_headers=include_headers, corrupt_column=corrupt_column)
    }
    allowed = list(types)
    problems = []
    for field in schema:
        if field.name == HEADERS and not include_headers:
            problems.append('headers: set option("includeHeaders", "true") to have this column')
        elif field.name not in allowed:
            folded = {name.lower(): name for name in allowed}
            close = difflib.get_close_matches(field.name.lower(), folded, n=1)
            hint = f"did you mean {folded[close[0]]}?" if close else f"there are {', '.join(allowed)}"
            problems.append(f"{field.name}: no such column; {hint}")
        elif field.dataType.simpleString() != (expected := types[field.name]):
            problems.append(f"{field.name}: {field.dataType.simpleString()}; it is {expected}: cast it in the query")
    if problems:
        raise QueryError(f"kafka_segments: the schema cannot be read: {'; '.join(problems)}")
    return tuple(field.name for field in schema)
