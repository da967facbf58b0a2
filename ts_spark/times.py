"""Which segments a query by record time can leave out, by what their metadata says.

Timestamps need not ascend, and a batch's base timestamp is no minimum, so only what was proved when a segment was
shipped counts: it is left out where its greatest timestamp lies below what is wanted, or its least one above. The least
is known only where each batch has one record, or the broker's time. Where anything in a segment could not be looked
into (damage, compressed messages of magic 0 and 1, a Java uploader's segment), it is read.
"""

from dataclasses import replace
from typing import Final

from ts_common.catalog import SegmentCopy
from ts_common.log_format.framing import NO_TIMESTAMP
from ts_common.plan import ReadRange
from ts_spark.filters import Ranges

# A column of microseconds holds no later time; what comes of such a record is no time that a filter could be held to.
_LATEST_MS: Final = ((1 << 63) - 1) // 1000


def in_time(part: ReadRange, milliseconds: Ranges) -> ReadRange | None:
    """A range with those of its copies that may hold a record of these times; None where none of them does."""
    copies = tuple(copy for copy in part.copies if _may_hold(copy, milliseconds))
    return replace(part, copies=copies) if copies else None


def _may_hold(copy: SegmentCopy, milliseconds: Ranges) -> bool:
    metadata = copy.metadata
    latest = NO_TIMESTAMP if metadata.time_max is None else metadata.time_max
    if metadata.records is None or metadata.corruptions or latest > _LATEST_MS:
        return True
    return any(low <= latest and (metadata.time_min is None or metadata.time_min < high) for low, high in milliseconds)
