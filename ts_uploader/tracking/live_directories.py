"""Which of several live directories of one partition the broker writes to. Pure: listings and readings in.

A broker that moves a partition to another log dir renames the new directory to the live name before it renames the old
one away. A disk that fails in between leaves both. A disk that failed before, and still lists, keeps the directory of a
replica that the broker has created on another disk since (protocol rule 1).

The broker rewrites the high watermark checkpoint of every log dir that it uses, and each names the partitions that the
log dir holds. A directory counts where the checkpoint of its log dir was rewritten twice since all were seen and names
the partition, if each other log dir either was rewritten twice and does not name it, or is not rewritten any more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ts_uploader.events import HighWatermarks, Listing, SeveralDirectories
from ts_uploader.tracking.high_watermarks import OTHER_FILES, Checkpoints

# One log dir is not rewritten any more if two readings, between which another was seen with so many other files, show
# the same file. The first of those may be older than the first reading. Between the other three the broker wrote each
# log dir that it uses at least once, in whatever order.
_ANOTHERS_FILES = 4


@dataclass(slots=True)
class _Place:
    """What was seen of the checkpoint of one directory's log dir, since all directories were seen."""

    before: int | None = None  # count of files at the first reading since
    count: int = 0
    unchanged: Mapping[Path, int] = field(default_factory=dict)  # all counts at the first reading of the present file
    looked: Mapping[Path, int] = field(default_factory=dict)  # all counts at the last reading
    names: bool | None = None  # whether the newest file has an entry for the partition; None: not known

    @property
    def is_rewritten(self) -> bool:
        return self.before is not None and self.count >= self.before + OTHER_FILES

    def is_idle_beside(self, other: Path) -> bool:
        """Whether it stayed the same file while another log dir's was rewritten again and again."""
        return self.looked.get(other, 0) - self.unchanged.get(other, 0) >= _ANOTHERS_FILES


class Rivals:
    """Several live directories of one partition.

    Args:
        seen: them.
    """

    def __init__(self, seen: SeveralDirectories) -> None:
        self.listings = seen.listings
        self._partition = seen.partition
        self._identities = _identities(seen)
        self._places = {listing.log_dir: _Place() for listing in seen.listings}

    def take_listings(self, seen: SeveralDirectories) -> bool:
        """Take a new look; False where the directories are others than before."""
        if _identities(seen) != self._identities:
            return False
        self.listings = seen.listings
        return True

    def take_reading(self, reading: HighWatermarks, checkpoints: Checkpoints) -> None:
        """Take a reading, which `checkpoints` has taken already."""
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
        """The newest listing of the one that counts; None while that is not sure."""
        return next((listing for listing in self.listings if self._counts(listing.log_dir)), None)

    def _counts(self, log_dir: Path) -> bool:
        here = self._places[log_dir]
        others = [place for place in self._places.values() if place is not here]
        ruled_out = (place.is_idle_beside(log_dir) or (place.is_rewritten and place.names is False) for place in others)
        return here.is_rewritten and here.names is True and all(ruled_out)


def _identities(seen: SeveralDirectories) -> frozenset[tuple[Path, tuple[int, int]]]:
    return frozenset((listing.log_dir, listing.identity) for listing in seen.listings)
