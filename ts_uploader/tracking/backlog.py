"""What waits to be shipped, and how long Kafka will still keep it.

The tracker fills `Backlog` from its state. Ages and sizes are read from the files when a page or a metric needs them. A
file that no longer exists has no time left.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from ts_common.archive.object_keys import LOG_SUFFIX
from ts_uploader.log_dirs.local_log import largest_timestamp
from ts_uploader.log_dirs.segment_sizes import SegmentSizes
from ts_uploader.messages.observations import Listing
from ts_uploader.messages.tasks import Position
from ts_uploader.retention.topic_retention import TopicRetention, fraction_left, seconds_left
from ts_uploader.tracking.blocked import Wait

_MILLISECONDS = 1000


@dataclass(frozen=True, slots=True)
class Backlog:
    """The closed segments of a partition that reach above the next offset.

    Attributes:
        base: of the oldest such segment; None without one. While the next offset is unknown, every closed segment
            counts, because any of them may be unshipped.
        segments: how many.
        lag: offsets from the next offset to the high watermark.
        next_offset: as last read or committed in this leadership; None before that.
        hole: no segment on this broker continues the run. The next offset is below every segment, or in a tail that
            its segment lost.
        wait: why the commit does not move (`ts_uploader.tracking.reasons`); None if nothing is missing and no closed
            segment is unshipped.
        high_watermark: the one that counts; None without one, and while this broker does not lead.
        counted_at: when the broker wrote that high watermark, or an equal one later, nanoseconds since the epoch.
        position: as last read or written; None while it has to be read.
        is_deferred: the next offset is that of a row of the positions object, and the position is read later.
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
    position: Position | None = None
    is_deferred: bool = False

    @property
    def waits_for(self) -> str | None:
        """The text of `wait`; None without one, and for an ordinary one."""
        return None if self.wait is None or self.wait.ordinary else self.wait.text


def age_seconds(listing: Listing, base: int) -> float | None:
    """Return the seconds since a segment was last written; None if its file no longer exists."""
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
    """Return the fraction of its retention that a closed segment has left: 1 if new, 0 if due or already deleted.

    Kafka uses the segment's largest timestamp, the last entry of its time index; without one, the file's time. Only if
    the topic has a limit by size, `behind` is called for the bytes above the segment.
    """
    written = age_seconds(listing, base)
    if written is None:
        return 0.0
    age = _record_age(listing, base, written)
    return fraction_left(retention, age, 0 if retention.retention_bytes is None else behind(listing, base))


@dataclass(frozen=True, slots=True)
class Oldest:
    """The oldest unshipped segment of a partition, from its files as they are now.

    Attributes:
        age_seconds: since it was last written; 0 if its file no longer exists.
        retention_left: the fraction of its retention that it has left, as `retention_left`.
        seconds_left: until its retention ends, as `ts_uploader.retention.topic_retention.seconds_left`.
        unshipped_bytes: of this segment and all closed segments above it.
    """

    age_seconds: float
    retention_left: float
    seconds_left: float
    unshipped_bytes: int


def oldest_waiting(waiting: Backlog, retention: TopicRetention, sizes: SegmentSizes) -> Oldest | None:
    """Return the oldest unshipped segment of a partition; None without one."""
    listing, base = waiting.listing, waiting.base
    if base is None:
        return None
    unshipped = sizes.closed_from(listing, base)  # without segments that retention renamed
    written = age_seconds(listing, base)
    if written is None:
        return Oldest(0.0, 0.0, 0.0, unshipped)
    age = _record_age(listing, base, written)
    behind = sizes.behind(listing, base)
    left, seconds = fraction_left(retention, age, behind), seconds_left(retention, age, behind, written)
    return Oldest(written, left, seconds, unshipped)


def _record_age(listing: Listing, base: int, written: float) -> float:
    """Return the seconds since a segment's largest timestamp or since its last write, whichever is more."""
    stamp = largest_timestamp(listing.directory, base)
    return written if stamp is None else max(written, time.time() - stamp / _MILLISECONDS)
