"""`spark.read.format("kafka_segments")`: what Spark calls, and when.

1. `KafkaSegmentsSource(options)` and `schema()`, at `.load()`: check the options without a request to the store. If the
   user gives a schema, Spark does not call `schema()`, and step 2 checks the options. Step 2 also checks what only a
   batch or only a stream rejects. A query that writes gets its error first.
2. `reader(schema)` and `partitions()`, on the driver, when the query is planned: see `ts_reader.query.plan_query`.
   Of a stream: `streamReader(schema)`, and its methods again and again, see `ts_spark.streaming.driver`.
3. `read(split)`, in a Python worker of an executor: see `ts_reader.query.read_split`.

Each step runs in a Python process of its own, with pickled copies of these objects. Spark imports this module whenever
it searches for data sources, so heavy modules (pyarrow, the store's SDK) are imported where they are used. Between
`reader` and `partitions` Spark pushes filters down, if the session and the query allow it: see
`ts_spark.options.filters`.
"""

import gc
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ts_common.errors import QueryError, TieredStorageError
from ts_common.printable import printable
from ts_reader.query.filters import EVERYTHING
from ts_spark.options.filters import filters_are_handed_over, query_filters
from ts_spark.options.parse import SPARK, QueryKind, SparkQuery, parse_options
from ts_spark.options.schema import full_schema, wanted_columns
from ts_spark.options.spark_versions import (
    Filter,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from ts_spark.streaming.driver import StreamDriver

_READ_ONLY: Final = "kafka_segments is read only"
_TIMESTAMP: Final = "timestamp"


class KafkaSegmentsSource(DataSource):
    """Kafka topics, read from the segments that `ts-uploader` shipped."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "kafka_segments"

    def schema(self) -> StructType:
        """Return all columns."""
        with _message_first():
            query = parse_options(self._options, kind=None)
        return full_schema(**_included(query))

    def reader(self, schema: StructType) -> "KafkaSegmentsReader":
        """Return a reader of the columns in `schema`, which may be narrower than the table."""
        with _message_first():
            query = parse_options(self._options)
            names = wanted_columns(schema, **_included(query))
        takes_filters = query.push_down_predicate and filters_are_handed_over()
        return (_FilteredReader if takes_filters else KafkaSegmentsReader)(query, names)

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG002  (Spark's signature)
        """Reject a query that writes."""
        _refuse(_READ_ONLY)

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG002, N802  (as above)
        """Reject a query that writes."""
        _refuse(_READ_ONLY)

    def streamReader(self, schema: StructType) -> "KafkaSegmentsStreamReader":  # noqa: N802  (Spark's name)
        """Return a stream of the columns in `schema`; its first use checks the options."""
        return KafkaSegmentsStreamReader(self._options, schema)


class KafkaSegmentsReader(DataSourceReader):
    """Plans a query on the driver, and reads its splits in the executors."""

    def __init__(self, query: SparkQuery, names: Sequence[str]) -> None:
        self._query = query.query
        self._ignored = query.ignored
        self._names = tuple(names)
        self._filters = EVERYTHING

    def partitions(self) -> Sequence[InputPartition]:
        """Return the splits; Spark reads nothing if the list is empty."""
        import structlog  # noqa: PLC0415  (heavy parts are loaded where they are used)

        from ts_reader.query.plan_query import plan_everywhere  # noqa: PLC0415

        log = structlog.get_logger("ts_spark")
        with _message_first():
            plan = plan_everywhere(self._query, self._filters)
        for warning in (*([self._ignored] if self._ignored else []), *plan.warnings, *map(str, plan.losses)):
            log.warning("query_warning", message=printable(warning))
        log.info(
            "query_planned",
            location=", ".join(
                [self._query.location, *(endpoint.location for endpoint, _ in self._query.topics_elsewhere)]
            ),
            cluster=self._query.cluster,
            segments=plan.segments,
            of_segments=plan.all_segments,
            bytes=plan.bytes,
            of_bytes=plan.all_bytes,
            splits=len(plan.splits),
        )
        return [InputPartition(split) for split in plan.splits]

    def read(self, partition: InputPartition | None) -> "Iterator[pa.RecordBatch]":
        """Return the rows of a split; Spark passes None if there are no splits."""
        return _read(partition, self._names)


class _FilteredReader(KafkaSegmentsReader):
    """A reader that accepts filters; Spark rejects it if its setting is off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        """Store what the filters leave of the query; Spark applies all of them again."""
        self._filters = query_filters(filters)
        return filters


def _read(partition: InputPartition | None, names: Sequence[str]) -> "Iterator[pa.RecordBatch]":
    import structlog  # noqa: PLC0415  (heavy parts are loaded where they are used)

    from ts_common.store.shared_stores import shared_store  # noqa: PLC0415  (as above)
    from ts_reader.decode.arrow_schema import count_far, far_warning  # noqa: PLC0415  (as above)
    from ts_reader.query.read_split import read_split  # noqa: PLC0415  (as above)

    if partition is not None:
        split, far = partition.value, 0
        with _message_first():
            for rows in read_split(shared_store(split.location, split.connection), split, names):
                far += count_far(rows.column(_TIMESTAMP)) if _TIMESTAMP in names else 0
                yield rows
        if far:
            log = structlog.get_logger("ts_spark")
            log.warning("query_warning", message=far_warning(far, SPARK.exact_times))
        _freeze_gc_once()


def _included(query: SparkQuery) -> dict[str, Any]:
    """Return which of the optional columns a query has."""
    return {
        "include_headers": query.include_headers,
        "include_timestamp_ms": query.include_timestamp_ms,
        "corrupt_column": query.query.tolerance.column,
    }


class KafkaSegmentsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the commits on the driver, and reads each batch's splits in the executors; pickled before its first use.

    Args:
        options: as Spark passes them. The first use checks them, because Spark 4.1 hides the message of an error that a
            constructor raises.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = dict(options)
        self._schema = schema
        self._driver: StreamDriver | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (as above)
        """Return where the first batch starts."""
        with _message_first():
            return self._open().initial_offset()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit = None) -> dict[str, Any]:  # noqa: N802  (as above)
        """Return where the next batch ends.

        Args:
            start: where it starts; None before Spark 4.2.
            limit: from `getDefaultReadLimit`, or no limit if the trigger lifts it.
        """
        with _message_first():
            return self._open().latest_offset(start, unlimited=isinstance(limit, ReadAllAvailable))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  (as above)
        """Return the limit of one batch; Spark 4.2 and later call it."""
        with _message_first():
            most = self._open().most_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  (as above)
        """Store the end of a query with `Trigger.AvailableNow`; Spark 4.2 and later call it."""
        with _message_first():
            self._open().stop_where_it_is()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the splits of a batch."""
        with _message_first():
            return [InputPartition(split) for split in self._open().plan(start, end)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Return the rows of a split, as in a batch query; executors need neither options nor files."""
        return _read(partition, tuple(self._schema.fieldNames()))

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the checkpoint is Spark's, and the store is read only."""

    def stop(self) -> None:
        """Close the stream's connections."""
        if self._driver is not None:
            self._driver.stop()

    def _open(self) -> "StreamDriver":
        from ts_spark.streaming.driver import StreamDriver  # noqa: PLC0415  (heavy parts are loaded where they are used)

        if self._driver is None:
            query = parse_options(self._options, QueryKind.STREAM)
            wanted_columns(self._schema, **_included(query))
            self._driver = StreamDriver(query)
        return self._driver


def _refuse(message: str) -> NoReturn:
    with _message_first():
        raise QueryError(message)


@contextmanager
def _message_first() -> Iterator[None]:
    """Make Spark show the message of an error first.

    Spark shows a worker's traceback before it, unless this variable of the worker's environment is set. The process
    ends with the error, so nothing else is affected.
    """
    try:
        yield
    except TieredStorageError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


@lru_cache(maxsize=1)
def _freeze_gc_once() -> None:
    """Exclude the modules that a worker's first split loaded from garbage collection, once.

    PySpark collects garbage after every task, and would scan the objects of all loaded modules each time.
    """
    gc.freeze()
