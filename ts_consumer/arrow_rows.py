"""Rows of both tiers as Arrow tables with one schema: that of this project's readers, with all optional columns."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from ts_reader.decode.arrow_schema import (
    COLUMNS_WITH_HEADERS,
    HEADERS,
    MILLISECONDS,
    arrow_schema,
    constant_column,
    microseconds_of,
)

SCHEMA: Final = arrow_schema((*COLUMNS_WITH_HEADERS, MILLISECONDS))
EMPTY: Final = SCHEMA.empty_table()


def table_rows(topic: str, partition: int, rows: pa.RecordBatch) -> pa.Table:
    """Return archived rows as a table.

    Args:
        rows: with the columns of `ts_consumer.messages.COLUMNS`.
    """
    columns: dict[str, Any] = dict(zip(rows.schema.names, rows.columns, strict=True))
    columns["timestamp"] = _times(columns[MILLISECONDS].to_numpy())
    columns["topic"] = constant_column("topic", topic, partition, rows.num_rows)
    columns["partition"] = constant_column("partition", topic, partition, rows.num_rows)
    return pa.Table.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def live_rows(messages: Sequence[Message]) -> pa.Table:
    """Return live messages, none of them an event, as a table."""
    stamps = [message.timestamp() for message in messages]
    milliseconds = np.array([time for _, time in stamps], np.int64)
    columns: dict[str, Any] = {
        "topic": [message.topic() for message in messages],
        "partition": [message.partition() for message in messages],
        "offset": [message.offset() for message in messages],
        "key": [message.key() for message in messages],
        "value": [message.value() for message in messages],
        "timestamp": _times(milliseconds),
        "timestampType": [kind - 1 for kind, _ in stamps],  # librdkafka's types are one higher
        HEADERS: [_headers(message) for message in messages],
        MILLISECONDS: milliseconds,
    }
    return pa.Table.from_arrays(
        [
            columns[field.name] if field.name == "timestamp" else pa.array(columns[field.name], field.type)
            for field in SCHEMA
        ],
        schema=SCHEMA,
    )


def _times(milliseconds: "np.ndarray[Any, np.dtype[np.int64]]") -> pa.Array:
    return pa.array(microseconds_of(milliseconds), pa.int64()).cast(SCHEMA.field("timestamp").type)


def _headers(message: Message) -> list[dict[str, Any]] | None:
    found: Any = message.headers()
    return [{"key": name, "value": value} for name, value in found] if found else None
