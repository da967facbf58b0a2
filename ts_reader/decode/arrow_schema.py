"""The columns of a reader, their Arrow types, and columns that have one value: what needs no decoder.

Source of the schema: Spark's `KafkaRecordToRowConverter`. A record without headers has null headers there.

Timestamps of records are any 64 bits of milliseconds, and columns of microseconds hold fewer. A producer with a wrong
unit writes nanoseconds where Kafka has milliseconds. A column of microseconds ends in the year 294,246. It has the
greatest whole millisecond that it holds for each later time, and the least for each earlier one. The column
`timestampMs` has the time as stored.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ts_common.wording import counted

if TYPE_CHECKING:
    from ts_reader.decode.kernel_source import Int64s

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
MILLISECONDS: Final = "timestampMs"  # the timestamp as stored
LATEST_MILLISECONDS: Final = ((1 << 63) - 1) // 1000  # that a column of microseconds holds; the least is its negative
_LATEST: Final = pa.scalar(LATEST_MILLISECONDS * 1000, TYPES["timestamp"])
_EARLIEST: Final = pa.scalar(-LATEST_MILLISECONDS * 1000, TYPES["timestamp"])
CONSTANT: Final = frozenset({"topic", "partition"})  # of one partition's rows


def arrow_schema(names: Sequence[str] = COLUMNS) -> pa.Schema:
    """Return the schema of the named columns, in that order.

    Raises:
        KeyError: a column does not exist.
    """
    return pa.schema([(name, pa.int64() if name == MILLISECONDS else TYPES[name]) for name in names])


def batch_of(arrays: Sequence[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """Return a batch that has its number of rows without columns too: `RecordBatch.from_arrays` would have none."""
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


def microseconds_of(milliseconds: "Int64s") -> "Int64s":
    """Return times in microseconds; each that does not fit is the nearest whole millisecond that does.

    Args:
        milliseconds: since 1970.
    """
    found: Int64s = np.clip(milliseconds, -LATEST_MILLISECONDS, LATEST_MILLISECONDS) * 1000
    return found


def count_far(times: pa.Array) -> int:
    """Return how many times of a column are at its limits: the time as stored can be beyond them.

    Args:
        times: the column `timestamp`.
    """
    least, greatest = pc.min_max(times).values()
    if not least.is_valid or (least.value > _EARLIEST.value and greatest.value < _LATEST.value):
        return 0
    return int(pc.sum(pc.or_(pc.less_equal(times, _EARLIEST), pc.greater_equal(times, _LATEST))).as_py())


def far_warning(rows: int, remedy: str) -> str:
    """Return a sentence about rows whose time does not fit the column `timestamp`.

    Args:
        rows: their number, from `count_far`.
        remedy: how the reader gets the column `timestampMs`.
    """
    return (
        f"{counted(rows, 'row')} with a timestamp at or beyond a limit of its column, the years -290,308 and 294,247: "
        f"the column has that limit; expected: milliseconds since 1970; {remedy}"
    )
