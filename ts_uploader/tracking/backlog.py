"""What waits to be shipped, and how long Kafka will still keep it.

What the tracker knows is in `Backlog`; ages and sizes are read from the files when somebody asks, since they matter
only then. A file that is gone by then has no time left.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from ts_common.archive.object_keys import LOG_SUFFIX
from ts_uploader.events import Listing
from ts_uploader.log_dirs.local_log import largest_timestamp
from ts_uploader.log_dirs.segment_sizes import SegmentSizes
from ts_uploader.retention.topic_retention import TopicRetention, fraction_left, seconds_left
from ts_uploader.tracking.blocked import Wait

_MILLISECONDS = 1000


@dataclass(frozen=True, slots=True)
class Backlog:
    """What of a partition is closed and not yet below the next offset.

    Attributes:
        listing: where its files are.
        base: of the oldest such segment; None where there is none. While the next offset is not known, all that is
            closed counts: nothing says that any of it was shipped.
        segments: how many.
        lag: offsets from the next offset to the high watermark.
        next_offset: as last read or committed in this leadership; None before that.
        hole: nothing that this broker holds continues the run: the next offset lies below every segment, or in the
            tail of one that lost it.
        wait: why the commit does not move (`ts_uploader.tracking.reasons`); None where nothing is closed and unshipped,
        and nothing
            else is missing.
        high_watermark: that counts; None while none does, or while the leadership is not one.
        counted_at: nanoseconds since the epoch, when the broker wrote it down.
    """

    listing: Listing
    base: int | None
    segments: int
    lag: int | None
    next_offset: int | None
    hole: bool
    wait: Wait | None
    high_watermark: int | None = None
    counted_at: int | None = None

    @property
    def waits_for(self) -> str | None:
        """The text of `wait`; None for nothing, and for what is ordinary."""
        return None if self.wait is None or self.wait.ordinary else self.wait.text


def age_seconds(listing: Listing, base: int) -> float | None:
    """Seconds since a segment was written last; None where its file is gone."""
    try:
        written = (listing.directory / f"{base:020d}{LOG_SUFFIX}").stat().st_mtime
    except OSError:
        return None
    return max(0.0, time.time() - written)


def retention_left(
    listing: Listing,
    base: int,
    retention: TopicRetention,
    behind: Callable[[Listing, int], int],
) -> float:
    """The share of its retention that a closed segment has left: 1 new, 0 due, or taken already.

    Kafka goes by the segment's largest timestamp, which its time index ends with; without one, by the file's.
    `behind` is asked for the bytes behind it where the topic has a limit by size.
    """
    written = age_seconds(listing, base)
    if written is None:
        return 0.0
    age = _record_age(listing, base, written)
    return fraction_left(retention, age, 0 if retention.retention_bytes is None else behind(listing, base))


@dataclass(frozen=True, slots=True)
class Oldest:
    """The oldest segment of a partition that waits, as its files are now, and what waits with it.

    Attributes:
        age_seconds: since it was written last; 0 where its file is gone.
        retention_left: the share of its retention that it has left, as `retention_left`.
        seconds_left: until its retention is over, as `ts_uploader.retention.topic_retention.seconds_left`.
        unshipped_bytes: of it and all closed segments behind it.
    """

    age_seconds: float
    retention_left: float
    seconds_left: float
    unshipped_bytes: int


def oldest_waiting(waiting: Backlog, retention: TopicRetention, sizes: SegmentSizes) -> Oldest | None:
    """What a partition's oldest waiting segment is like; None where nothing waits."""
    listing, base = waiting.listing, waiting.base
    if base is None:
        return None
    unshipped = sizes.closed_from(listing, base)  # what retention renamed lies below, and has no size here
    written = age_seconds(listing, base)
    if written is None:
        return Oldest(0.0, 0.0, 0.0, unshipped)
    age = _record_age(listing, base, written)
    behind = sizes.behind(listing, base)
    left, seconds = fraction_left(retention, age, behind), seconds_left(retention, age, behind, written)
    return Oldest(written, left, seconds, unshipped)


def _record_age(listing: Listing, base: int, written: float) -> float:
    """Seconds since a segment's largest timestamp, or since its last write, whichever is more."""
    stamp = largest_timestamp(listing.directory, base)
    return written if stamp is None else max(written, time.time() - stamp / _MILLISECONDS)
