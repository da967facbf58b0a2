"""Rows as an Arrow stream: what a scan and a step of one that is followed have in common."""

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from contextlib import closing

import pyarrow as pa


class ArrowRows(ABC):
    """Rows that can be read any number of times; each read is a run of its own.

    They speak Arrow's C stream protocol: pyarrow, polars, pandas and DuckDB read them as they are.
    """

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The schema of the rows."""

    @abstractmethod
    def to_batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows as record batches; closing the generator ends the run."""

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a new reader of the rows; raise as `to_batches`."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """Return all rows in memory; raise as `to_batches`."""
        with closing(self.to_batches()) as batches:
            return pa.Table.from_batches(batches, self.schema)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.to_batches()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a new run as an Arrow C stream."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Return the schema; without it, DuckDB opens three streams for a query."""
        return self.schema.__arrow_c_schema__()
