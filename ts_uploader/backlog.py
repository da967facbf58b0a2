"""What waits to be shipped, and how long Kafka will still keep it.

What the tracker knows is in `Backlog`; ages and sizes are read from the files when somebody asks, since they matter
only then. A file that is gone by then has no time left.
"""

import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

from ts_common.model import TopicPartition
from ts_common.object_keys import LOG_SUFFIX
from ts_uploader.events import Listing
from ts_uploader.local_log import largest_timestamp
from ts_uploader.retention import TopicRetention, fraction_left, seconds_left
from ts_uploader.waiting import Wait

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
        next_offset: as last read or committed in this reign; None before that.
        hole: nothing that this broker holds continues the run: the next offset lies below every segment, or in the
            tail of one that lost it.
        wait: what is not known that would have to be, before anything of the partition can go, or what of that was
            asked for in vain, or that there is a hole; None for nothing.
    """

    listing: Listing
    base: int | None
    segments: int
    lag: int | None
    next_offset: int | None
    hole: bool
    wait: Wait | None

    @property
    def waits_for(self) -> str | None:
        """The text of `wait`; None for nothing."""
        return None if self.wait is None else self.wait.text


def age_seconds(listing: Listing, base: int) -> float | None:
    """Seconds since a segment was written last; None where its file is gone."""
    try:
        written = (listing.directory / f"{base:020d}{LOG_SUFFIX}").stat().st_mtime
    except OSError:
        return None
    return max(0.0, time.time() - written)


def bytes_from(listing: Listing, base: int) -> int:
    """Bytes of the log from a base offset on, the active segment included."""
    return sum(_size(listing, other) for other in listing.bases if other >= base)


def bytes_behind(listing: Listing, base: int) -> int:
    """Bytes of the log behind a closed segment, the active segment included."""
    return bytes_from(listing, base + 1)


class BytesBehind:
    """`bytes_behind`, by one look at the files for each listing; the property of one thread.

    A partition that is ten thousand segments behind is asked of for each of them, and each look takes as many `stat`.
    """

    def __init__(self) -> None:
        # By partition: when the listing was taken, and the bytes from each of its bases on.
        self._looked: dict[TopicPartition, tuple[int, array[int]]] = {}

    def __call__(self, listing: Listing, base: int) -> int:
        """As `bytes_behind`."""
        index = bisect_right(listing.bases, base)
        return self._bytes_from_each(listing)[index] if index < len(listing.bases) else 0

    def forget(self, partition: TopicPartition) -> None:
        """Its directory is gone."""
        self._looked.pop(partition, None)

    def _bytes_from_each(self, listing: Listing) -> "array[int]":
        taken_at, behind = self._looked.get(listing.partition, (None, array("q")))
        if taken_at != listing.taken_at:
            behind = array("q", accumulate(_size(listing, base) for base in reversed(listing.bases)))
            behind.reverse()
            self._looked[listing.partition] = listing.taken_at, behind
        return behind


def retention_left(
    listing: Listing,
    base: int,
    retention: TopicRetention,
    behind: Callable[[Listing, int], int] = bytes_behind,
) -> float:
    """The share of its retention that a closed segment has left: 1 new, 0 due, or taken already.

    Kafka goes by the segment's largest timestamp, which its time index ends with; without one, by the file's.
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
        seconds_left: until its retention is over, as `ts_uploader.retention.seconds_left`.
        unshipped_bytes: of it and all closed segments behind it.
    """

    age_seconds: float
    retention_left: float
    seconds_left: float
    unshipped_bytes: int


def oldest_waiting(waiting: Backlog, retention: TopicRetention) -> Oldest | None:
    """What a partition's oldest waiting segment is like; None where nothing waits."""
    listing, base = waiting.listing, waiting.base
    if base is None:
        return None
    # Segments that retention renamed lie below the live ones, and have no size here.
    sizes = [_size(listing, other) for other in listing.bases[bisect_left(listing.bases, base) :]]
    unshipped = sum(sizes[:-1])
    written = age_seconds(listing, base)
    if written is None:
        return Oldest(0.0, 0.0, 0.0, unshipped)
    age = _record_age(listing, base, written)
    behind = sum(sizes[1:])
    left, seconds = fraction_left(retention, age, behind), seconds_left(retention, age, behind, written)
    return Oldest(written, left, seconds, unshipped)


def _record_age(listing: Listing, base: int, written: float) -> float:
    """Seconds since a segment's largest timestamp, or since its last write, whichever is more."""
    stamp = largest_timestamp(listing.directory, base)
    return written if stamp is None else max(written, time.time() - stamp / _MILLISECONDS)


def _size(listing: Listing, base: int) -> int:
    try:
        return (listing.directory / f"{base:020d}{LOG_SUFFIX}").stat().st_size
    except OSError:
        return 0  # retention took it meanwhile
