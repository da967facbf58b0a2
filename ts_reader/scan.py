"""`Scan`: a lazy query of an archive, and an Arrow stream each time it is read."""

from collections.abc import Generator, Iterator
from contextlib import closing

import pyarrow as pa

from ts_common.execution.scheduler import Progress
from ts_common.query.query import Query
from ts_reader.dataset import Observer, ScanDataset
from ts_reader.planned_query import Estimate, PlannedQuery
from ts_reader.statistics import PartitionStatistics, statistics_of


class Scan:
    """A scan of topics; `Archive.scan` returns it.

    It is planned when it is first read, and each read runs the same plan: the archive as it was then. `planned_again`
    returns a scan of the archive as it is now. The rows of a partition are in the order of offsets; those of several
    partitions can be interleaved.

    A scan speaks Arrow's C stream protocol: `pyarrow.table(scan)`, `polars.DataFrame(scan)`,
    `pandas.DataFrame.from_arrow(scan)` and `duckdb.sql("... from scan")` read it as it is. They read all its columns
    and rows. `dataset()` accepts columns and filters of the engine.

    Args:
        planned: the query.
    """

    def __init__(self, planned: PlannedQuery) -> None:
        self._planned = planned

    def __repr__(self) -> str:
        subscription = self.query.subscription
        names = subscription.assigned or subscription.topics
        topics = subscription.pattern.pattern if subscription.pattern else ", ".join(names)
        return f"Scan({topics!r}, columns={list(self._planned.names)!r})"

    @property
    def query(self) -> Query:
        """What the scan reads."""
        return self._planned.query

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return self._planned.schema

    def planned_again(self) -> "Scan":
        """Return the same scan of the archive as it is now."""
        return Scan(self._planned.unplanned())

    def estimate(self) -> Estimate:
        """Return what the scan reads; this plans it, and reads no record.

        Raises:
            QueryError: the archive does not have a topic, a partition or offsets of the scan.
            DataLoss: offsets of the scan are lost, and it fails on data loss.
            CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied, BucketMissing: from the store.
        """
        return self._planned.estimate()

    def count_rows(self) -> int:
        """Return the number of rows; raise as `to_batches`.

        It reads no segment whose metadata suffices, and of most others the headers of batches.
        """
        return self._planned.count_rows()

    def statistics(self, *, least_timestamp: bool = True) -> list[PartitionStatistics]:
        """Return number, offsets and timestamps of the rows of each partition with rows, by topic and number.

        It reads no segment whose metadata suffices. The headers of batches suffice for all but the least timestamp: if
        a batch has several records with their producer's time, it is decompressed for it.

        Args:
            least_timestamp: whether it is wanted.

        Raises:
            as `to_batches`.
        """
        return statistics_of(self._planned, least_timestamp=least_timestamp)

    def to_batches(self, done: Progress = lambda _: None) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows as record batches; closing the generator ends the run.

        Args:
            done: called with the number of splits of the plan that were read to their end, for a progress bar.

        Raises:
            as `estimate`; and CorruptData, BatchTooLarge: naming the object and the place.
        """
        return self._planned.run(self._planned.plan.splits, self._planned.names, done)

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

    def dataset(self, observer: Observer | None = None, *, yields_rows: bool = True) -> ScanDataset:
        """Return the scan as a `pyarrow.dataset.Dataset`, to which DuckDB and polars pass columns and filters.

        Args:
            observer: is told what an engine reads, and what error ended a read.
            yields_rows: False to plan only: no row is yielded.
        """
        return ScanDataset(self._planned, observer, yields_rows=yields_rows)
