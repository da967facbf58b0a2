"""How many bytes wait in a partition's directory, by one look at each closed segment.

After an outage of the store a million segments may wait, and whoever asks for metrics asks each half minute. The size
of a closed segment changes only when the broker puts another file in its place, and each rename, creation and deletion
changes the time of the directory: while that stays, what was looked up counts. The active segment grows, so it is
looked at each time.
"""

import time
from array import array
from bisect import bisect_left, bisect_right
from itertools import accumulate

from ts_common.archive.object_keys import LOG_SUFFIX
from ts_common.model import TopicPartition
from ts_uploader.events import Listing

_COARSE_NS = 1_000_000_000  # what changes within so long may not show in the directory's time

_Found = tuple[int, tuple[int, ...], "array[int]"]


class SegmentSizes:
    """Remembers eight bytes for each segment; safe from any thread."""

    def __init__(self) -> None:
        # By partition: the directory's time, the bases, and the bytes of the closed segments from each of them on.
        self._found: dict[TopicPartition, _Found] = {}

    def closed_from(self, listing: Listing, base: int) -> int:
        """Bytes of the closed segments from a base offset on; what is gone meanwhile has none."""
        return self._closed(listing)[bisect_left(listing.bases, base)] if listing.bases else 0

    def behind(self, listing: Listing, base: int) -> int:
        """Bytes of the log behind a closed segment, the active one included."""
        index = bisect_right(listing.bases, base)
        return self._closed(listing)[index] + _size(listing, listing.bases[-1]) if index < len(listing.bases) else 0

    def forget(self, partition: TopicPartition) -> None:
        """Its directory is gone."""
        self._found.pop(partition, None)

    def _closed(self, listing: Listing) -> "array[int]":
        """One for each base, and one more: nothing is closed from the active segment on."""
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
        return 0  # retention took it meanwhile
