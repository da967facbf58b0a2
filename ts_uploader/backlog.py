"""What waits to be shipped, and how long Kafka will still keep it.

What the tracker knows is in `Backlog`; ages and sizes are read from the files when somebody asks, since they matter
only then. A file that is gone by then has no time left.
"""

import time
from dataclasses import dataclass

from ts_common.object_keys import LOG_SUFFIX
from ts_uploader.events import Listing
from ts_uploader.local_log import largest_timestamp
from ts_uploader.retention import TopicRetention, fraction_left

_MILLISECONDS = 1000


@dataclass(frozen=True, slots=True)
class Backlog:
    """What of a partition is closed and not yet below the next offset.

    Attributes:
        listing: where its files are.
        base: of the oldest such segment; None where there is none, or the position is not known.
        segments: how many.
        lag: offsets from the next offset to the high watermark.
        next_offset: as last read or committed.
        hole: nothing that this broker holds continues the run: the next offset lies below every segment, or in the
            tail of one that lost it.
        waits_for: what is not known that would have to be, before anything of the partition can go; None for nothing.
    """

    listing: Listing
    base: int | None
    segments: int
    lag: int | None
    next_offset: int | None
    hole: bool
    waits_for: str | None


def age_seconds(listing: Listing, base: int) -> float | None:
    """Seconds since a segment was written last; None where its file is gone."""
    try:
        written = (listing.directory / f"{base:020d}{LOG_SUFFIX}").stat().st_mtime
    except OSError:
        return None
    return max(0.0, time.time() - written)


def bytes_from(listing: Listing, base: int) -> int:
    """Bytes of the log from a base offset on, the active segment included."""
    total = 0
    for other in listing.bases:
        if other >= base:
            try:
                total += (listing.directory / f"{other:020d}{LOG_SUFFIX}").stat().st_size
            except OSError:
                continue  # retention took it meanwhile
    return total


def retention_left(listing: Listing, base: int, retention: TopicRetention) -> float:
    """The share of its retention that a closed segment has left: 1 new, 0 due, or taken already.

    Kafka goes by the segment's largest timestamp, which its time index ends with; without one, by the file's.
    """
    written = age_seconds(listing, base)
    if written is None:
        return 0.0
    stamp = largest_timestamp(listing.directory, base)
    age = written if stamp is None else max(written, time.time() - stamp / _MILLISECONDS)
    behind = 0
    if retention.retention_bytes is not None:
        behind = bytes_from(listing, next((other for other in listing.bases if other > base), base))
    return fraction_left(retention, age, behind)
