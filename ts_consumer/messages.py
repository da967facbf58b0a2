"""Archived records as `confluent_kafka.Message`s.

Its constructor is documented as one for tests, and `commit` and `store_offsets` refuse a subclass. So its use is here
alone, and a contract test compares every field with those of librdkafka's own messages, for each release.
"""

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any, Final

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from ts_common.archive.epoch_history import EpochHistory
from ts_reader.decode.arrow_schema import HEADERS, MILLISECONDS

COLUMNS: Final = ("offset", MILLISECONDS, "timestampType", "key", "value", HEADERS)
_NO_EPOCH: Final = -1
_NO_LATENCY: Final = -1.0
# Kafka's types in the column, from Spark's schema: create time 0, log append time 1. librdkafka's are one higher.
_NO_TIMESTAMP: Final = (0, -1)


def messages_of(topic: str, partition: int, rows: pa.RecordBatch, epochs: EpochHistory) -> list[Message]:
    """Return the messages of rows.

    Args:
        rows: with the columns of `COLUMNS`.
        epochs: which leader epoch wrote which offset.
    """
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    offsets = columns["offset"].to_numpy().tolist()
    headers = columns[HEADERS]
    nones: Any = repeat(None)
    message: Any = Message
    return list(
        map(
            message,
            repeat(topic),
            repeat(partition),
            offsets,
            _texts(columns["key"]),
            _texts(columns["value"]),
            nones if headers.null_count == len(headers) else map(_headers, headers.to_pylist()),
            nones,
            _timestamps(columns["timestampType"].to_numpy(), columns[MILLISECONDS].to_numpy()),
            repeat(_NO_LATENCY),
            _epochs(offsets, epochs),
        )
    )


def _texts(column: pa.Array) -> list[bytes | None]:
    """Return the values of a binary column, ten times as fast as `to_pylist`."""
    found: list[bytes | None] = column.to_numpy(zero_copy_only=False).tolist()
    return found


def _timestamps(kinds: "np.ndarray[Any, Any]", milliseconds: "np.ndarray[Any, Any]") -> Iterator[tuple[int, int]]:
    """Return the timestamps one by one: `zip` uses its tuple again, so the collector of garbage has less to count."""
    times = milliseconds.tolist()
    first = int(kinds[0])
    if first >= 0 and (kinds == first).all():
        return zip(repeat(first + 1), times)
    return ((kind + 1, time) if kind >= 0 else _NO_TIMESTAMP for kind, time in zip(kinds.tolist(), times, strict=True))


def _headers(of_record: "list[dict[str, Any]] | None") -> list[tuple[str, bytes | None]] | None:
    return [(each["key"], each["value"]) for each in of_record] if of_record else None


def _epochs(offsets: Sequence[int], epochs: EpochHistory) -> Any:
    first, last = epochs.at(offsets[0]), epochs.at(offsets[-1])
    if first == last:
        return repeat(_NO_EPOCH if first is None else first)
    found = map(epochs.at, offsets)
    return (_NO_EPOCH if epoch is None else epoch for epoch in found)
