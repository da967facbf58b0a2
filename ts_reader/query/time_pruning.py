"""Pruning by record time: which segments, and which beginnings of a segment, need no decoding.

Timestamps need not ascend, and a batch's base timestamp is not a minimum. So only the metadata that the agent wrote
when it shipped the segment counts. A segment is left out if its greatest timestamp is below the wanted ones, or its
least one above them. The least one is in the metadata only if each batch has one record, or the broker's time. A
segment is read if the agent could not scan all of it: damage, compressed messages of magic 0 and 1, a Java uploader's
segment.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from ts_common.archive.copies import SegmentCopy
from ts_common.archive.plan import ReadRange
from ts_common.log_format.framing import NO_TIMESTAMP
from ts_common.store.contract import ObjectStore
from ts_reader.query.wanted import Ranges
from ts_reader.reading.time_index import first_that_may_reach

# A column of microseconds cannot hold a later time, so no filter can be applied to such a record's time.
_LATEST_MS: Final = ((1 << 63) - 1) // 1000


def prune_by_time(store: ObjectStore, parts: Iterable[ReadRange], milliseconds: Ranges) -> Iterator[ReadRange]:
    """Yield the ranges that may hold records of these times, with the copies that may.

    Records of these times can begin in a range after one that holds none: there a request for the `.timeindex` pays.

    Args:
        store: of the segments.
        parts: of one partition, in order.
        milliseconds: since 1970.

    Raises:
        StoreUnavailable, AccessDenied: from reading a `.timeindex`.
    """
    begins = bool(milliseconds) and milliseconds[0][0] > NO_TIMESTAMP
    may_begin = begins
    for part in parts:
        if part.before is not None:  # its records can have any time
            yield part
            continue
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
