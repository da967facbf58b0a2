"""The columns of a reader, their Arrow types, and columns that have one value: what needs no decoder.

Source of the schema: Spark's `KafkaRecordToRowConverter`. A record without headers has null headers there.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

HEADERS: Final = "headers"
TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    HEADERS: pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}
COLUMNS: Final = tuple(name for name in TYPES if name != HEADERS)  # without the option includeHeaders
COLUMNS_WITH_HEADERS: Final = tuple(TYPES)
MILLISECONDS: Final = "timestampMs"  # the timestamp as stored: `timestamp` holds no more than `ts_reader.decode.times`
CONSTANT: Final = frozenset({"topic", "partition"})  # of one partition's rows


def arrow_schema(names: Sequence[str] = COLUMNS) -> pa.Schema:
    """Return the schema of the named columns, in that order.

    Raises:
        KeyError: a column does not exist.
    """
    return pa.schema([(name, pa.int64() if name == MILLISECONDS else TYPES[name]) for name in names])


def batch_of(arrays: Sequence[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """Return a batch that has its number of rows without columns too: `RecordBatch.from_arrays` would have none.

    Args:
        arrays: the columns.
        schema: of them.
        rows: their number.
    """
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def constant_column(name: str, topic: str, partition: int, rows: int) -> pa.Array:
    """Return the column `topic` or `partition` of one partition's rows, on memory that other batches share."""
    if name == "topic":
        return _topic(topic, _capacity(rows)).slice(0, rows)
    return _partition(partition, _capacity(rows)).slice(0, rows)


def _capacity(rows: int) -> int:
    """Return a power of two at or above `rows`, so that the caches have few lengths."""
    return 1 << max(rows - 1, 0).bit_length()


@lru_cache(maxsize=64)
def _topic(topic: str, rows: int) -> pa.Array:
    return pa.array([topic], pa.string()).take(pa.array(np.zeros(rows, np.int32)))


@lru_cache(maxsize=64)
def _partition(partition: int, rows: int) -> pa.Array:
    return pa.array(np.full(rows, partition, np.int32))
