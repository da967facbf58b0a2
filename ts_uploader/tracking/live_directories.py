"""Which of several live directories of one partition the broker writes to. Pure.

When a broker moves a partition to another log dir, it renames the new directory to the live name before it renames the
old one away. If a disk fails in between, both remain. If a disk failed earlier and its files can still be listed, it
keeps a directory whose replica the broker has since created on another disk (protocol rule 1).

The broker rewrites the high watermark checkpoint of every log dir that it uses. Each checkpoint names the partitions of
its log dir. The broker uses a directory if both are true:

- since all directories were seen, the checkpoint of its log dir was rewritten twice, and names the partition;
- each other log dir was rewritten twice and does not name it, or is no longer rewritten.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ts_uploader.messages.observations import HighWatermarks, Listing, SeveralDirectories
from ts_uploader.tracking.high_watermarks import OTHER_FILES, Checkpoints

# A log dir is no longer rewritten if it keeps the same file while another log dir gets this many other files. The first
# of these can be older than the first reading. While the broker wrote the other three, it wrote each log dir that it
# uses at least once, in any order.
_ANOTHERS_FILES = 4


@dataclass(slots=True)
class _Place:
    """The checkpoint of one directory's log dir, as read since all directories were seen."""

    before: int | None = None  # count of files at the first of these readings
    count: int = 0
    unchanged: Mapping[Path, int] = field(default_factory=dict)  # all counts at the first reading of the present file
    looked: Mapping[Path, int] = field(default_factory=dict)  # all counts at the last reading
    names: bool | None = None  # whether the newest file has an entry for the partition; None: unknown

    @property
    def is_rewritten(self) -> bool:
        return self.before is not None and self.count >= self.before + OTHER_FILES

    def is_idle_beside(self, other: Path) -> bool:
        """Whether the file stayed the same while the broker kept rewriting that of another log dir."""
        return self.looked.get(other, 0) - self.unchanged.get(other, 0) >= _ANOTHERS_FILES


class Rivals:
    """Several live directories of one partition."""

    def __init__(self, seen: SeveralDirectories) -> None:
        self.listings = seen.listings
        self._partition = seen.partition
        self._identities = _identities(seen)
        self._places = {listing.log_dir: _Place() for listing in seen.listings}

    def take_listings(self, seen: SeveralDirectories) -> bool:
        """Apply newer listings; return False if they are of other directories."""
        if _identities(seen) != self._identities:
            return False
        self.listings = seen.listings
        return True

    def take_reading(self, reading: HighWatermarks, checkpoints: Checkpoints) -> None:
        """Apply a reading that `checkpoints` has already applied."""
        place = self._places.get(reading.log_dir)
        if place is None:
            return
        count, counts = checkpoints.count(reading.log_dir) or 0, checkpoints.counts()
        if place.before is None:
            place.before = place.count = count
            place.unchanged = counts
        elif count != place.count:
            place.count = count
            place.unchanged = counts
        place.looked = counts
        if reading.file is not None:
            offsets, entry = reading.offsets, (self._partition.topic, self._partition.partition)
            place.names = None if offsets is None else entry in offsets

    @property
    def chosen(self) -> Listing | None:
        """The newest listing of the directory that the broker uses; None while that is uncertain."""
        return next((listing for listing in self.listings if self._counts(listing.log_dir)), None)

    def _counts(self, log_dir: Path) -> bool:
        here = self._places[log_dir]
        others = [place for place in self._places.values() if place is not here]
        ruled_out = (place.is_idle_beside(log_dir) or (place.is_rewritten and place.names is False) for place in others)
        return here.is_rewritten and here.names is True and all(ruled_out)


def _identities(seen: SeveralDirectories) -> frozenset[tuple[Path, tuple[int, int]]]:
    return frozenset((listing.log_dir, listing.identity) for listing in seen.listings)
