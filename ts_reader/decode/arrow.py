"""Columns as Arrow record batches with the schema of Spark's Kafka source, without a copy of keys, values and headers.

Source of the schema: Spark's `KafkaRecordToRowConverter`. A record without headers has null headers there.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ts_reader.decode.arrow_schema import (
    COLUMNS,
    CONSTANT,
    HEADERS,
    MILLISECONDS,
    TYPES,
    arrow_schema,
    batch_of,
    constant_column,
    microseconds_of,
)
from ts_reader.decode.columns import BinaryColumn, HeadersColumn, Projection, RecordColumns


def projection_of(names: Sequence[str]) -> Projection:
    """Return the fields that these columns need."""
    return Projection(key="key" in names, value="value" in names, headers=HEADERS in names)


def to_arrow(columns: RecordColumns, topic: str, partition: int, names: Sequence[str] = COLUMNS) -> pa.RecordBatch:
    """Return one record batch with the named columns; no other column is built.

    Args:
        columns: decoded with `projection_of(names)`, or more.
        topic: value of the column `topic`.
        partition: value of the column `partition`.
        names: of columns, in their order.

    Raises:
        KeyError: a column does not exist.
        ValueError: a column was not decoded.
    """
    rows = columns.row_count
    arrays = []
    for name in names:
        if name == "key":
            arrays.append(_binary(columns.keys, name))
        elif name == "value":
            arrays.append(_binary(columns.values, name))
        elif name in CONSTANT:
            arrays.append(constant_column(name, topic, partition, rows))
        elif name == "timestamp":
            microseconds = pa.py_buffer(microseconds_of(columns.timestamps))
            arrays.append(pa.Array.from_buffers(TYPES[name], rows, [None, microseconds]))
        elif name == MILLISECONDS:
            arrays.append(pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(columns.timestamps)]))
        elif name == HEADERS:
            arrays.append(_headers(columns.headers, rows))
        else:
            plain = {"offset": columns.offsets, "timestampType": columns.timestamp_types}[name]
            arrays.append(pa.Array.from_buffers(TYPES[name], rows, [None, pa.py_buffer(plain)]))
    return batch_of(arrays, arrow_schema(names), rows)


def _binary(column: BinaryColumn | None, name: str, arrow_type: pa.DataType = TYPES["key"]) -> pa.Array:
    if column is None:
        raise ValueError(f"column {name} was not decoded")
    validity = pa.py_buffer(column.validity) if column.null_count else None
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(arrow_type, len(column.offsets) - 1, buffers, null_count=column.null_count)


def _headers(column: HeadersColumn | None, rows: int) -> pa.Array:
    if column is None:
        raise ValueError(f"column {HEADERS} was not decoded")
    names, values = _binary(column.names, HEADERS, pa.string()), _binary(column.values, HEADERS)
    list_type = TYPES[HEADERS]
    entries = pa.Array.from_buffers(list_type.value_type, len(names), [None], children=[names, values])
    present = np.diff(column.offsets) > 0
    null_count = rows - int(np.count_nonzero(present))
    validity = pa.py_buffer(np.packbits(present, bitorder="little")) if null_count else None
    return pa.Array.from_buffers(
        list_type, rows, [validity, pa.py_buffer(column.offsets)], null_count=null_count, children=[entries]
    )
