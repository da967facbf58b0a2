"""`spark.read.format("kafka_segments")`: what Spark calls, and when.

1. `KafkaSegmentsSource(options)` and `schema()`, at `.load()`: options are checked, the store is not asked.
   With a schema of the user's, which Spark takes unasked, they are checked in step 2. A query that writes or streams is
   told so first.
2. `reader(schema)` and `partitions()`, on the driver, when the query is planned: see `ts_spark.planning`.
3. `read(split)`, in a Python worker of an executor: see `ts_spark.batches`.

Each happens in a Python process of its own, with pickled copies of these objects; Spark loads this module whenever it
looks for data sources, so what is heavy (numba, the store's SDK) is loaded where it is used. There is no `pushFilters`:
Spark calls it only with `spark.sql.python.filterPushdown.enabled=true`, and refuses a source that has one otherwise.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ts_common.errors import QueryError, TieredStorageError
from ts_spark.options import QueryOptions, parse_options
from ts_spark.schema import full_schema, wanted_columns

if TYPE_CHECKING:
    import pyarrow as pa

_READ_ONLY: Final = "kafka_segments is read only"
_BATCH_ONLY: Final = "kafka_segments is read in batches: use spark.read"


class KafkaSegmentsSource(DataSource):
    """Kafka topics from the segments that `ts-uploader` shipped."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kafka_segments"

    def schema(self) -> StructType:
        """All columns."""
        with _message_first():
            query = parse_options(self._options)
        return full_schema(include_headers=query.include_headers, corrupt_column=query.tolerance.column)

    def reader(self, schema: StructType) -> "KafkaSegmentsReader":
        """A reader of the columns in `schema`, which a user may have made narrower."""
        with _message_first():
            query = parse_options(self._options)
            column = query.tolerance.column
            names = wanted_columns(schema, include_headers=query.include_headers, corrupt_column=column)
        return KafkaSegmentsReader(query, names)

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG002  (Spark's signature)
        """Refused."""
        _refuse(_READ_ONLY)

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG002, N802  (as above)
        """Refused."""
        _refuse(_READ_ONLY)

    def streamReader(self, schema: StructType) -> NoReturn:  # noqa: ARG002, N802  (as above)
        """Refused."""
        _refuse(_BATCH_ONLY)

    def simpleStreamReader(self, schema: StructType) -> NoReturn:  # noqa: ARG002, N802  (as above)
        """Refused."""
        _refuse(_BATCH_ONLY)


class KafkaSegmentsReader(DataSourceReader):
    """Plans a query on the driver, and reads its splits in the executors."""

    def __init__(self, query: QueryOptions, names: Sequence[str]) -> None:
        self._query = query
        self._names = tuple(names)

    def partitions(self) -> Sequence[InputPartition]:
        """The splits; Spark reads nothing where there are none."""
        import structlog  # noqa: PLC0415  (heavy parts are loaded where they are used)

        from ts_common.store.factory import open_store  # noqa: PLC0415
        from ts_spark.planning import plan_query  # noqa: PLC0415

        log = structlog.get_logger("ts_spark")
        with _message_first(), open_store(self._query.location) as store:
            plan = plan_query(store, self._query)
        for warning in plan.warnings:
            log.warning(warning)
        log.info(
            "query planned",
            location=self._query.location,
            cluster=self._query.cluster,
            segments=plan.segments,
            of_segments=plan.all_segments,
            bytes=plan.bytes,
            of_bytes=plan.all_bytes,
            splits=len(plan.splits),
        )
        return list(plan.splits)

    def read(self, partition: InputPartition | None) -> "Iterator[pa.RecordBatch]":
        """The rows of a split; Spark passes None where there was none."""
        from ts_spark.batches import settle_process, shared_store  # noqa: PLC0415  (as above)
        from ts_spark.split import Split  # noqa: PLC0415
        from ts_spark.tasks import read_task  # noqa: PLC0415

        if isinstance(partition, Split):
            with _message_first():
                yield from read_task(shared_store(self._query.location), partition, self._names, self._query)
            settle_process()


def _refuse(message: str) -> NoReturn:
    with _message_first():
        raise QueryError(message)


@contextmanager
def _message_first() -> Iterator[None]:
    """Let our errors' text stand where a user looks.

    Spark puts a worker's traceback in front of it, unless this variable of the worker's environment is set; the
    process ends with the error, so nothing else is affected.
    """
    try:
        yield
    except TieredStorageError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
