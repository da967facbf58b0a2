"""Record times and what stands beside the records: which segments, and which beginnings of one, need no decoding.

Timestamps need not ascend, and a batch's base timestamp is no minimum, so only what was proved when a segment was
shipped counts. A segment is left out where its greatest timestamp lies below what is wanted, or its least one above;
the least is known only where each batch has one record, or the broker's time. Where anything in a segment could not be
looked into (damage, compressed messages of magic 0 and 1, a Java uploader's segment), it is read.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from ts_common.archive.catalog import SegmentCopy
from ts_common.archive.plan import ReadRange
from ts_common.log_format.framing import NO_TIMESTAMP
from ts_common.reading.time_index import first_that_may_reach
from ts_common.store.contract import ObjectStore
from ts_spark.options.filters import Ranges

# A column of microseconds holds no later time; what comes of such a record is no time that a filter could be held to.
_LATEST_MS: Final = ((1 << 63) - 1) // 1000


def prune_by_time(store: ObjectStore, parts: Iterable[ReadRange], milliseconds: Ranges) -> Iterator[ReadRange]:
    """The ranges that may hold records of these times, of each the copies that may, and of the first the end.

    A range that follows one that may not hold any is where records of these times can begin: there the `.timeindex` is
    worth a request.

    Args:
        store: where they lie.
        parts: of one partition, in order.
        milliseconds: since 1970.

    Raises:
        StoreUnavailable, AccessDenied: from reading a `.timeindex`.
    """
    begins = bool(milliseconds) and milliseconds[0][0] > NO_TIMESTAMP
    may_begin = begins
    for part in parts:
        copies = tuple(copy for copy in part.copies if _may_hold(copy, milliseconds))
        if not copies:
            may_begin = begins
            continue
        start = part.start
        if may_begin:
            start = max(start, min(first_that_may_reach(store, copy, milliseconds[0][0]) for copy in copies))
        if start < part.end:
            may_begin = False
            as_it_was = start == part.start and len(copies) == len(part.copies)
            yield part if as_it_was else replace(part, start=start, copies=copies)


def _may_hold(copy: SegmentCopy, milliseconds: Ranges) -> bool:
    metadata = copy.metadata
    latest = NO_TIMESTAMP if metadata.time_max is None else metadata.time_max
    if metadata.records is None or metadata.corruptions or latest > _LATEST_MS:
        return True
    return any(low <= latest and (metadata.time_min is None or metadata.time_min < high) for low, high in milliseconds)
