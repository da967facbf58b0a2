"""What stands between planning a query and reading it: values that Spark sends from the driver to its workers."""

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from ts_common.archive.plan import ReadRange
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit
from ts_common.store.options import BY_ENVIRONMENT, Connection
from ts_spark.options.modes import STRICT, Tolerance, View


@dataclass(frozen=True)
class Split(InputPartition):
    """One task: ranges of one partition, in the order of their offsets.

    Attributes:
        location: of the store that holds it, a URL.
        ranges: never empty.
        aborted: transactions whose records are not shown.
        tolerance: what is done with corrupt batches.
        view: which records are rows; of `LATEST` a split is a whole partition.
        connection: how S3 is spoken to.
        limit: how much memory one record batch may take.
    """

    location: str
    ranges: tuple[ReadRange, ...]
    aborted: tuple[AbortedTransaction, ...] = ()
    tolerance: Tolerance = STRICT
    view: View = View.LOG
    connection: Connection = BY_ENVIRONMENT
    limit: BatchLimit = DEFAULT_LIMIT


def bytes_of(part: ReadRange) -> int:
    """How much is to be read for a range, by the share of its copies' offsets that it covers."""
    length, total = part.end - part.start, 0
    for copy in part.copies:
        metadata, segment = copy.metadata, copy.segment
        total += segment.size * length // max(metadata.end - segment.name.base, length, 1)
    return total
