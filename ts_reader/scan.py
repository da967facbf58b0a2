"""`Scan`: a lazy query of an archive, and an Arrow stream each time it is read."""

import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ts_common.model import TopicPartition
from ts_reader.execution.scheduler import Progress
from ts_reader.find.rules import Found
from ts_reader.planned_query import ArrowRows, Estimate, PlannedQuery
from ts_reader.query.query import Query
from ts_reader.query.splits import Split
from ts_reader.query.totals import Detail, Totals

if TYPE_CHECKING:
    from ts_reader.dataset import Observer, ScanDataset
    from ts_reader.steps import PositionArgument, Step

POLL_SECONDS: Final = 5.0
# About a gigabyte of ordinary records. A smaller step is planned as often as it is read.
MAX_OFFSETS: Final = 5_000_000


@dataclass(frozen=True, slots=True)
class PartitionStatistics:
    """The rows that a scan returns of a partition; there is at least one.

    Attributes:
        first_offset: the least offset.
        last_offset: the greatest offset.
        least_timestamp: ms since 1970, as stored; None if it is not wanted, or if no row has a timestamp.
        greatest_timestamp: ms since 1970; None if no row has a timestamp.
    """

    topic: str
    partition: int
    rows: int
    first_offset: int
    last_offset: int
    least_timestamp: int | None
    greatest_timestamp: int | None


def statistics_of(planned: PlannedQuery, *, least_timestamp: bool) -> list[PartitionStatistics]:
    """Return the statistics of each partition with rows, by topic and number; raise as `PlannedQuery.run`."""
    totals = planned.totals(Detail.ALL if least_timestamp else Detail.HEADERS)
    with_rows = sorted(partition for partition, found in totals.items() if found.rows)
    return [_shown(partition, totals[partition], least_timestamp) for partition in with_rows]


def _shown(partition: TopicPartition, totals: Totals, least_timestamp: bool) -> PartitionStatistics:
    has_time = totals.greatest >= totals.least
    return PartitionStatistics(
        partition.topic,
        partition.partition,
        totals.rows,
        totals.first,
        totals.last,
        totals.least if has_time and least_timestamp else None,
        totals.greatest if has_time else None,
    )


class Scan(ArrowRows):
    """A scan of topics; `Archive.scan` returns it.

    It is planned when it is first read, and each read runs the same plan: the archive as it was then. `planned_again`
    returns a scan of the archive as it is now. The rows of a partition are in the order of offsets; those of several
    partitions can be interleaved.

    A scan speaks Arrow's C stream protocol: `pyarrow.table(scan)`, `polars.DataFrame(scan)`,
    `pandas.DataFrame.from_arrow(scan)` and `duckdb.sql("... from scan")` read it as it is. They read all its columns
    and rows. `dataset()` accepts columns and filters of the engine.
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

    def by_partition(self) -> "Iterator[tuple[TopicPartition, Scan]]":
        """Yield a scan of each partition that has something to read, by topic and number; they share this plan.

        Raises:
            as `estimate`.
        """
        by_partition: dict[TopicPartition, list[Split]] = {}
        for split in self._planned.plan.splits:
            by_partition.setdefault(split.ranges[0].copies[0].keys.partition, []).append(split)
        for partition, splits in sorted(by_partition.items()):
            yield partition, Scan(self._planned.of_partition(partition, tuple(splits)))

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

    @property
    def found(self) -> Found | None:
        """What indexes cover of a scan of keys; None for another scan. This plans it, and raises as `estimate`."""
        return self._planned.plan.found

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the plan warns of, one sentence each; this plans the scan, and raises as `estimate`."""
        plan = self._planned.plan
        return (*plan.warnings, *map(str, plan.losses))

    def count_rows(self) -> int:
        """Return the number of rows; raise as `to_batches`.

        It reads no segment whose metadata suffices, and of most others the headers of batches.
        """
        return self._planned.count_rows()

    def statistics(self, *, least_timestamp: bool = True) -> list[PartitionStatistics]:
        """Return number, offsets and timestamps of the rows of each partition with rows, by topic and number.

        It reads no segment whose metadata suffices. The headers of batches suffice for all but the least timestamp: if
        a batch has several records with their producer's time, it is decompressed for it.

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

    def follow(
        self,
        *,
        position: "PositionArgument" = None,
        poll_seconds: float = POLL_SECONDS,
        max_offsets: int | None = MAX_OFFSETS,
        stop: threading.Event | None = None,
    ) -> "Generator[Step, None, None]":
        """Yield the rows in steps, and continue as commits move.

        A step is an Arrow stream of its rows, with the position after it. Each row of a partition is in one step. If a
        program saves the position with the results of its step, and continues from it, it misses and repeats no row. A
        next step that is requested does not end the one before.

        Closing the generator ends the reads of its steps too. Losses of data are those of Spark's streams
        (docs/spark.md, "What ends a stream"); with `fail_on_data_loss=False` they are logged, and the rest is returned.

        Args:
            position: of a former step, as JSON values: the first step begins there, and the scan's start has no effect.
                "latest": the first step has no rows, and its position is the archive's end. None: the scan's start.
            poll_seconds: between two checks of the commits, which cost a GET for each partition. With live tails
                commits are checked each five seconds at most, and between them the newest packs of the logs. After a
                step of `max_offsets` the next check follows at once.
            max_offsets: of one step, in proportion to what each partition has left; None for all.
            stop: ends the steps when it is set: no further one is returned, and a wait ends at once.

        Raises:
            ConfigurationError: with every problem of the arguments; or the scan has an end, several locations, another
                view or incarnation.
            DataLoss: offsets are lost, and the scan fails on data loss.
            Others: as `estimate`, from the generator.
        """
        from ts_reader.steps import follow  # noqa: PLC0415  (what plans streams)

        return follow(self._planned, position=position, poll_seconds=poll_seconds, max_offsets=max_offsets, stop=stop)

    def dataset(self, observer: "Observer | None" = None, *, yields_rows: bool = True) -> "ScanDataset":
        """Return the scan as a `pyarrow.dataset.Dataset`; DuckDB and polars pass columns and filters to it.

        Args:
            observer: receives what an engine reads, and the error that ended a read.
            yields_rows: False to plan only: no row is yielded.
        """
        from ts_reader.dataset import ScanDataset  # noqa: PLC0415  (pyarrow.dataset, only for engines)

        return ScanDataset(self._planned, observer, yields_rows=yields_rows)
