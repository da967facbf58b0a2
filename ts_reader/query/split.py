"""A split: the part of a query that one task reads. The planner makes it; it can be pickled."""

from dataclasses import dataclass, field

from ts_common.archive.plan import ReadRange
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit
from ts_common.store.options import BY_ENVIRONMENT, Connection
from ts_reader.query.policies import STRICT, Tolerance, View


@dataclass(frozen=True, slots=True)
class Split:
    """Ranges of one partition in the order of offsets, for one task.

    Attributes:
        location: of the store, a URL.
        ranges: never empty.
        aborted: transactions whose records are left out.
        tolerance: what corrupt batches do.
        view: which records are rows; with `LATEST` a split is a whole partition.
        connection: of the location.
        limit: of the memory that one record batch may use.
        way_out: a sentence for the error of a corrupt object: how to read the rest.
        until: milliseconds since 1970: records with a later timestamp are left out; None for all.
        scan: identifies the query, whose tasks log some events once.
    """

    location: str
    ranges: tuple[ReadRange, ...]
    aborted: tuple[AbortedTransaction, ...] = ()
    tolerance: Tolerance = STRICT
    view: View = View.LOG
    connection: Connection = BY_ENVIRONMENT
    limit: BatchLimit = DEFAULT_LIMIT
    way_out: str = ""
    until: int | None = None
    scan: str = field(default="", compare=False)


def bytes_of(part: ReadRange) -> int:
    """Estimate the bytes of a range by its share of the offsets of its copies."""
    length, total = part.end - part.start, 0
    for copy in part.copies:
        metadata, segment = copy.metadata, copy.segment
        total += segment.size * length // max(metadata.end - segment.name.base, length, 1)
    return total
