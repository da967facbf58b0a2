"""Sums the sizes of a partition's closed segments, with one stat for each segment.

After an outage of the store a million segments may wait, and metrics are scraped every half minute. A closed segment's
size changes only when the broker replaces the file, and each rename, creation and deletion changes the directory's
mtime. While that is unchanged, cached sizes are used. The active segment grows, so its size is read each time.
"""

import time
from array import array
from bisect import bisect_left, bisect_right
from itertools import accumulate

from ts_common.archive.object_keys import LOG_SUFFIX
from ts_common.model import TopicPartition
from ts_uploader.messages.observations import Listing

_COARSE_NS = 1_000_000_000  # changes within this time may leave the directory's mtime unchanged

_Found = tuple[int, tuple[int, ...], "array[int]"]


class SegmentSizes:
    """A cache of eight bytes for each segment; thread-safe."""

    def __init__(self) -> None:
        # By partition: the directory's mtime, the bases, and the bytes of the closed segments from each of them on.
        self._found: dict[TopicPartition, _Found] = {}

    def closed_from(self, listing: Listing, base: int) -> int:
        """Return the bytes of the closed segments from a base offset on; removed ones count 0."""
        return self._closed(listing)[bisect_left(listing.bases, base)] if listing.bases else 0

    def behind(self, listing: Listing, base: int) -> int:
        """Return the bytes of the log after a closed segment, including the active one."""
        index = bisect_right(listing.bases, base)
        return self._closed(listing)[index] + _size(listing, listing.bases[-1]) if index < len(listing.bases) else 0

    def forget(self, partition: TopicPartition) -> None:
        """Drop a partition whose directory no longer exists."""
        self._found.pop(partition, None)

    def _closed(self, listing: Listing) -> "array[int]":
        """Return one sum for each base, and a last 0: from the active segment on no segment is closed."""
        try:
            changed_at = listing.directory.stat().st_mtime_ns
        except OSError:
            return array("q", bytes(8 * (len(listing.bases) + 1)))
        found = self._found.get(listing.partition)
        if found is not None and found[0] == changed_at and found[1] == listing.bases:
            return found[2]
        sizes = (_size(listing, base) for base in reversed(listing.bases[:-1]))
        closed = array("q", accumulate(sizes, initial=0))
        closed.reverse()
        closed.append(0)
        if time.time_ns() - changed_at > _COARSE_NS:
            self._found[listing.partition] = changed_at, listing.bases, closed
        return closed


def _size(listing: Listing, base: int) -> int:
    try:
        return (listing.directory / f"{base:020d}{LOG_SUFFIX}").stat().st_size
    except OSError:
        return 0  # retention removed it meanwhile
