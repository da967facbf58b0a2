"""The ceiling of Spark's interface for Python data sources: ready batches, without any other work.

Each Python worker builds one batch of 32,768 rows and yields it repeatedly. So a query measures the time that
Spark needs to fetch Arrow batches from a Python worker and to process each row.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from dev.bench.measuring.records import json_value, key
from ts_reader.decode.arrow_schema import arrow_schema
from ts_spark.options.schema import full_schema

ROWS = 32_768


@dataclass(frozen=True)
class Share(InputPartition):
    """The rows of one task."""

    partition: int
    rows: int


class ReadyBatches(DataSource):
    """`format("ready_batches")` with the options `partitions` and `rows` (in all)."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "ready_batches"

    def schema(self) -> StructType:
        """Return the schema of the Kafka source."""
        return full_schema(include_headers=False)

    def reader(self, schema: StructType) -> "ReadyBatchesReader":
        """Return the reader of the requested columns."""
        return ReadyBatchesReader(int(self.options["partitions"]), int(self.options["rows"]), schema.fieldNames())


class ReadyBatchesReader(DataSourceReader):
    """Yields the batch until the number of rows is reached."""

    def __init__(self, partitions: int, rows: int, names: Sequence[str]) -> None:
        self._partitions = partitions
        self._rows = rows
        self._names = tuple(names)

    def partitions(self) -> Sequence[InputPartition]:
        """Return tasks of equal size, within one row."""
        each, more = divmod(self._rows, self._partitions)
        return [Share(number, each + (number < more)) for number in range(self._partitions)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        if not isinstance(partition, Share):
            return
        batch = _batch(partition.partition).select(list(self._names))
        for first in range(0, partition.rows, ROWS):
            yield batch.slice(0, min(ROWS, partition.rows - first))


@lru_cache(maxsize=8)
def _batch(partition: int) -> pa.RecordBatch:
    generator = random.Random(7)
    columns = [
        pa.array([key(number) for number in range(ROWS)], pa.binary()),
        pa.array([json_value(generator, number) for number in range(ROWS)], pa.binary()),
        pa.array(["bench"] * ROWS, pa.string()),
        pa.array(np.full(ROWS, partition, np.int32)),
        pa.array(np.arange(ROWS, dtype=np.int64)),
        pa.array(np.arange(ROWS, dtype=np.int64) + 1_700_000_000_000_000, pa.timestamp("us", tz="UTC")),
        pa.array(np.zeros(ROWS, np.int32)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema())
