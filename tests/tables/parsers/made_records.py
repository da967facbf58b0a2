"""Records as a parser gets them."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ts_common.model import TopicPartition
from ts_tables.files.raw_columns import RawColumns
from ts_tables.parsers.contract import Parser, check

_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.binary())]))


def made_records(values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None) -> pa.RecordBatch:
    """Return records of one partition, a second apart, from offset 0."""
    count = len(values)
    rows = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([None] * count if keys is None else keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([number * 1_000_000 for number in range(count)], pa.timestamp("us", tz="UTC")),
            "timestampType": pa.array([0] * count, pa.int32()),
            "headers": pa.array([[]] * count, _HEADERS),
        }
    )
    return RawColumns(TopicPartition("topic", 0), "id").complete(rows)


def parsed(parser: Parser, values: Sequence[bytes | None]) -> tuple[list[tuple[int, dict[str, Any]]], dict[int, str]]:
    """Return the number of the record and the columns of each row, and the reason of each refused record."""
    found = parser.parse(made_records(values))
    check(parser, found, len(values))
    columns = found.rows.to_pylist() if parser.columns.names else [{}] * len(found.records)
    rows = list(zip(found.records.to_pylist(), columns, strict=True))
    return rows, dict(zip(found.refused.to_pylist(), found.reasons.to_pylist(), strict=True))
