"""The journal: every acknowledged record, in Parquet files that are written as the demo runs."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import KafkaError, Message

from dev.local.kafka.topics import NotDeliveredError, Record

SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
    ]
)
_ROWS = 25_000  # of one file: about 10 MB in memory

_Row = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int | None]


class Journal:
    """Records acknowledgements; close it before the files are read.

    Attributes:
        ends: by partition, the offset after the last acknowledged record.
        counts: by partition, the number of acknowledged records.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.ends: dict[int, int] = {}
        self.counts: Counter[int] = Counter()
        self._rows: list[_Row] = []
        self._files = 0

    @property
    def total(self) -> int:
        """The number of acknowledged records."""
        return self.counts.total()

    def acknowledged(self, record: Record, error: KafkaError | None, message: Message) -> None:
        """Record an acknowledgement; with `record` bound, it is a producer's delivery callback.

        The journal contains the record that the producer received; only partition and offset are those of the broker.

        Raises:
            NotDeliveredError: the broker rejected the record, or did not answer.
        """
        partition, offset = message.partition(), message.offset()
        if error is not None or partition is None or offset is None:
            reason = "no offset" if error is None else error.str()
            raise NotDeliveredError(f"{message.topic()}: a record was not acknowledged: {reason}")
        # Spark's Kafka source returns null headers for a record without headers.
        headers = list(record.headers) or None
        self._rows.append((partition, offset, record.key, record.value, headers, record.timestamp))
        self.ends[partition] = max(self.ends.get(partition, 0), offset + 1)
        self.counts[partition] += 1
        if len(self._rows) >= _ROWS:
            self._write()

    def close(self) -> None:
        """Write the remaining records."""
        if self._rows:
            self._write()

    def _write(self) -> None:
        columns: list[tuple[Any, ...]] = list(zip(*self._rows, strict=True))
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        table = pa.Table.from_arrays(arrays, schema=SCHEMA)
        pq.write_table(table, self.directory / f"{self._files:05d}.parquet")
        self._rows.clear()
        self._files += 1
