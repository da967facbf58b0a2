"""A query of Spark's: what to read, and what only Spark's source has."""

from dataclasses import dataclass
from enum import Enum

from ts_reader.query.query import Query
from ts_spark.options.batch_limits import Rates


class Kind(Enum):
    """Whether a query ends."""

    BATCH = "batch"
    STREAM = "stream"


@dataclass(frozen=True, slots=True)
class SparkQuery:
    """The validated options of `kafka_segments`.

    Attributes:
        query: what to read.
        include_headers: whether the table has a column `headers`.
        include_timestamp_ms: whether it has a column `timestampMs`.
        push_down_predicate: whether filters may leave out records; see `ts_spark.options.filters`.
        rates: the size of a stream's batches.
        ignored: one sentence on given options without effect; None without such options.
    """

    query: Query
    include_headers: bool
    include_timestamp_ms: bool
    push_down_predicate: bool
    rates: Rates
    ignored: str | None = None
