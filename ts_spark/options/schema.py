"""The table of a query: columns, types and order of Spark's own Kafka source.

Spark passes a Python data source its columns only by a narrower schema (`.schema("offset long, value binary")`); only
those columns are decoded. This module loads nothing heavy, because Spark imports it whenever it searches for data
sources, for any query.
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
MILLISECONDS: Final = "timestampMs"
_OPTIONS: Final = {HEADERS: "includeHeaders", MILLISECONDS: "includeTimestampMs"}
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
    MILLISECONDS: LongType(),
}
COLUMNS: Final = tuple(_TYPES)


def full_schema(
    *, include_headers: bool, include_timestamp_ms: bool = False, corrupt_column: str | None = None
) -> StructType:
    """Return all columns: optional ones if included, and last the column for corrupt batches if it has a name."""
    optional = {HEADERS: include_headers, MILLISECONDS: include_timestamp_ms}
    fields = [StructField(name, kind) for name, kind in _TYPES.items() if optional.get(name, True)]
    return StructType([*fields, StructField(corrupt_column, BinaryType())] if corrupt_column else fields)


def wanted_columns(
    schema: StructType,
    *,
    include_headers: bool,
    include_timestamp_ms: bool = False,
    corrupt_column: str | None = None,
) -> tuple[str, ...]:
    """Return the names of the columns of a query's schema, in its order.

    Raises:
        QueryError: with every name and type that the source does not have.
    """
    types = {
        field.name: field.dataType.simpleString()
        for field in full_schema(
            include_headers=include_headers, include_timestamp_ms=include_timestamp_ms, corrupt_column=corrupt_column
        )
    }
    allowed = list(types)
    problems = []
    for field in schema:
        if field.name in _OPTIONS and field.name not in allowed:
            problems.append(f'{field.name}: set option("{_OPTIONS[field.name]}", "true") to have this column')
        elif field.name not in allowed:
            folded = {name.lower(): name for name in allowed}
            close = difflib.get_close_matches(field.name.lower(), folded, n=1)
            hint = f"did you mean {folded[close[0]]}?" if close else f"there are {', '.join(allowed)}"
            problems.append(f"{field.name}: no such column; {hint}")
        elif field.dataType.simpleString() != (expected := types[field.name]):
            problems.append(f"{field.name}: {field.dataType.simpleString()}; it is {expected}: cast it in the query")
    if problems:
        raise QueryError(f"kafka_segments: the schema is not valid: {'; '.join(problems)}")
    return tuple(field.name for field in schema)
