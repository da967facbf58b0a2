"""A scan's plan, its runs, and its rows as an Arrow stream: what `Scan`, its dataset and its steps share."""

import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import structlog

from ts_common.model import TopicPartition
from ts_common.printable import printable
from ts_common.store.shared_stores import shared_store
from ts_common.wording import counted
from ts_reader.decode.arrow_schema import count_far, far_warning
from ts_reader.decoding import NOTHING_DECODED, Decoding
from ts_reader.execution.decoded_columns import Columns
from ts_reader.execution.run import run
from ts_reader.execution.scheduler import Progress
from ts_reader.query.bounds import Loss
from ts_reader.query.plan_query import QueryPlan, plan_everywhere
from ts_reader.query.query import Query, of_partition
from ts_reader.query.splits import Split, bytes_of, gets_of
from ts_reader.query.totals import Detail, Totals, known_totals
from ts_reader.reading.parallel import in_threads

_SPLIT_BYTES: Final = 64 << 20  # that reading one split for its totals uses: chunks, and one decompressed batch
_MOST_THREADS: Final = 8
_TIMESTAMP: Final = "timestamp"

log = structlog.get_logger("ts_reader")


@dataclass(frozen=True, slots=True)
class FarTimes:
    """A warning of a read: some rows have a time that does not fit its column.

    Attributes:
        remedy: how the reader gets the time as stored.
    """

    rows: int
    remedy: str

    def __str__(self) -> str:
        return far_warning(self.rows, self.remedy)


Warn = Callable[[str | Loss | FarTimes], None]


def _log_warning(warning: str | Loss | FarTimes) -> None:
    log.warning("query_warning", message=printable(str(warning)))


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a scan reads, by its plan.

    Attributes:
        segments: the number of `.log` objects, and of entries of live tails.
        bytes: to fetch, at most.
        all_segments: the number of all of them of the topics.
        all_bytes: of these.
        partitions: the number of partitions with something to read.
        offsets: the number of offsets; records are fewer where compaction or filters removed some.
        gets: by storage class, None for the store's default: the number of GETs, about, and their bytes.
    """

    segments: int
    bytes: int
    all_segments: int
    all_bytes: int
    partitions: int
    offsets: int
    gets: Mapping[str | None, tuple[int, int]] = field(default_factory=dict)

    def __str__(self) -> str:
        return (
            f"{self.segments:,} of {counted(self.all_segments, 'segment')}, "
            f"{self.bytes:,} of {counted(self.all_bytes, 'byte')}, "
            f"{counted(self.offsets, 'offset')} of {counted(self.partitions, 'partition')}"
        )


_all: "weakref.WeakSet[PlannedQuery]" = weakref.WeakSet()


def _renew_locks() -> None:
    for planned in list(_all):
        planned.renew_lock()


os.register_at_fork(after_in_child=_renew_locks)


class PlannedQuery:
    """A query that is planned when it is first needed, and run any number of times by that plan. It can be pickled.

    Attributes:
        warn: is called with each warning and each loss of a plan, and once in a read with times that do not fit.

    Args:
        memory_limit: see `ts_reader.Archive.scan`.
        workers: see `ts_reader.Archive`.
        locate: returns the query with the locations of its topics, when it is planned; None if it has them.
        warn: is called with each warning and each loss of the plan; None: they are logged.
    """

    def __init__(
        self,
        query: Query,
        names: tuple[str, ...],
        *,
        memory_limit: int,
        workers: int | None,
        locate: Callable[[Query], Query] | None = None,
        decoding: Decoding = NOTHING_DECODED,
        warn: Warn | None = None,
    ) -> None:
        self.query = query
        self.names = names
        self._memory_limit = memory_limit
        self._workers = workers
        self._locate = locate
        self._decoding = decoding
        self.warn = warn or _log_warning
        self._columns: Columns | None = None
        self._plan: QueryPlan | None = None
        self.renew_lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_planning"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.renew_lock()

    def renew_lock(self) -> None:
        """Replace the lock: of a copy, or in a forked process, where a thread of its parent may have held it."""
        self._planning = threading.Lock()
        _all.add(self)

    @property
    def is_located_later(self) -> bool:
        """Whether the topics are searched in several locations when the query is planned."""
        return self._locate is not None

    @property
    def plan(self) -> QueryPlan:
        """The plan, made when it is first needed.

        Raises:
            QueryError: the archive does not have a topic, a partition or offsets of the query.
            DataLoss: offsets of the query are lost, and it fails on data loss.
            CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied, BucketMissing: from the store.
        """
        with self._planning:
            if self._plan is None:
                plan = plan_everywhere(self.query if self._locate is None else self._locate(self.query))
                told: tuple[str | Loss, ...] = (*plan.warnings, *plan.losses)
                for warning in told:
                    self.warn(warning)
                self._plan = plan
            return self._plan

    @property
    def columns(self) -> Columns:
        """The columns; codecs are opened when they are first needed.

        Raises:
            ConfigurationError, CorruptData, StoreUnavailable, AccessDenied: as `ts_reader.decoding.Decoding.columns`.
        """
        with self._planning:
            if self._columns is None:
                self._columns = self._decoding.columns(
                    self.names, self.query.tolerance.column, self.query.wording.despite_undecoded
                )
            return self._columns

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows; raise as `columns`."""
        return self.columns.schema

    def of_partition(self, partition: TopicPartition, splits: tuple[Split, ...]) -> "PlannedQuery":
        """Return the query of one partition, with the splits of this plan."""
        part = self.unplanned()
        part.query = of_partition(self.query, partition, splits[0].location, splits[0].connection)
        part._locate = None
        losses = tuple(loss for loss in self.plan.losses if loss.partition == partition)
        part._plan, part._columns = replace(self.plan, splits=splits, losses=losses), self.columns
        return part

    def unplanned(self) -> "PlannedQuery":
        """Return the same query without its plan."""
        return PlannedQuery(
            self.query,
            self.names,
            memory_limit=self._memory_limit,
            workers=self._workers,
            locate=self._locate,
            decoding=self._decoding,
            warn=self.warn,
        )

    def run(
        self, splits: Sequence[Split], names: Sequence[str], done: Progress = lambda _: None
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows of some splits of the plan; closing the generator ends the run.

        Args:
            splits: of the plan, or parts of them.
            names: of the query's columns.
            done: called with the number of splits that were read to their end.

        Raises:
            CorruptData, BatchTooLarge: naming the object and the place.
            ObjectNotFound: retention deleted an object since the query was planned.
            StoreUnavailable, AccessDenied: from the store, or the source of schemas.
        """
        columns = self.columns.choose(names)
        rows = run(splits, columns, memory_limit=self._memory_limit, workers=self._workers, done=done)
        return self._warning(rows) if _TIMESTAMP in columns.names else rows

    def _warning(self, batches: Generator[pa.RecordBatch, None, None]) -> Generator[pa.RecordBatch, None, None]:
        """Yield rows, and warn once of those whose time does not fit its column."""
        far = 0
        try:
            with closing(batches):
                for rows in batches:
                    far += count_far(rows.column(_TIMESTAMP))
                    yield rows
        finally:
            if far:
                self.warn(FarTimes(far, self.query.wording.exact_times))

    def totals(self, detail: Detail) -> dict[TopicPartition, Totals]:
        """Return number, offsets and timestamps of the rows of each partition of the plan; raise as `run`."""
        totals, unread = known_totals(self.plan.splits, detail)
        column = self.query.tolerance.column if self.query.tolerance.column in self.names else None
        if unread:
            from ts_reader.query.read_split import summarize_split  # noqa: PLC0415  (what decodes)

            def read(split: Split) -> Totals:
                return summarize_split(shared_store(split.location, split.connection), split, detail, column)

            threads = max(1, min(_MOST_THREADS, self._memory_limit // _SPLIT_BYTES))
            for split, found in zip(unread, in_threads(read, unread, most=threads, at_once=True), strict=True):
                totals.setdefault(split.ranges[0].copies[0].keys.partition, Totals()).add(found)
        return totals

    def count_rows(self) -> int:
        """Return the number of rows; raise as `run`."""
        return sum(found.rows for found in self.totals(Detail.ROWS).values())

    def estimate(self, splits: Sequence[Split] | None = None) -> Estimate:
        """Return what some splits of the plan read; None for all; raise as `plan`."""
        plan = self.plan
        parts = [part for split in (plan.splits if splits is None else splits) for part in split.ranges]
        copies = {copy.key: copy for part in parts for copy in part.copies}
        return Estimate(
            segments=len(copies),
            bytes=sum(bytes_of(part) for part in parts),
            all_segments=plan.all_segments,
            all_bytes=plan.all_bytes,
            partitions=len({copy.keys.partition for copy in copies.values()}),
            offsets=sum(part.end - part.start for part in parts),
            gets=gets_of(parts),
        )


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
