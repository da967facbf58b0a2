"""Which high watermark counts, for a leadership and for a deleted directory. Pure: it compares files.

The broker collects the high watermarks of all its log dirs, then writes one file after another. If a disk hangs, the
file of another disk gets high watermarks from before the hang. So the first file that differs can contain values from
before the leadership began. The broker collected those of the second file after it wrote the first (protocol rule 1).

A file differs if its inode, modification time, change time or content does. Several files that the broker wrote between
two readings count as one; that only costs time.

From the rename to `-delete` on a directory's log is final: no election follows, and nothing truncates it. So the last
high watermark that the broker wrote for it stays true. A checkpoint counts if the directory was live after the file was
read: a later file can have the value of a topic that was created again under the same name (protocol rule 14).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ts_uploader.messages.observations import (
    DirectoryDeleted,
    EpochFile,
    FileStatus,
    HighWatermarks,
    Leadership,
    Listing,
)
from ts_uploader.messages.tasks import UNKNOWN_EPOCH, AnyTask, ShipDeleted

OTHER_FILES = 2  # the broker collected the contents of this file, and of later ones, after counting began


class Checkpoints:
    """Counts, for each log dir, the checkpoint files that differ from the one before."""

    def __init__(self) -> None:
        self._files: dict[Path, tuple[FileStatus, int]] = {}
        self._counts: dict[Path, int] = {}
        self._written: dict[Path, int] = {}

    def take(self, reading: HighWatermarks) -> None:
        """Apply one reading; one without a file changes nothing."""
        if reading.file is None:
            return
        before = self._files.get(reading.log_dir)
        if before is None:
            self._counts[reading.log_dir] = 0
        elif before != reading.file:
            self._counts[reading.log_dir] += 1
        self._files[reading.log_dir] = reading.file
        if reading.offsets is not None:
            self._written[reading.log_dir] = reading.file[0][1]

    def written_at(self, log_dir: Path) -> int | None:
        """Return when the broker wrote the file of the last reading with offsets, nanoseconds since the epoch."""
        return self._written.get(log_dir)

    def count(self, log_dir: Path) -> int | None:
        """Return how many other files the log dir had since the first reading; None before that."""
        return self._counts.get(log_dir)

    def counts(self) -> Mapping[Path, int]:
        """Return the current counts of all log dirs that were read."""
        return dict(self._counts)

    def count_at(self, listing: Listing) -> int | None:
        """Return the count of the log dir's file at the time of a listing, or a higher one; None if unknown.

        A file that was not read yet counts as the next one.
        """
        read = self._files.get(listing.log_dir)
        if read is None or listing.checkpoint is None:
            return None
        status, _ = read
        return self._counts[listing.log_dir] + (status != listing.checkpoint)


@dataclass(slots=True)
class Counting:
    """Finds the first checkpoint file whose high watermarks count, for one directory in one leader epoch.

    Attributes:
        key: the directory and the leader epoch that counting is for; None before it begins.
        before: count of the log dir's file when it began; None: that is the file of the next reading.
    """

    key: tuple[object, ...] | None = None
    before: int | None = None

    def begin(self, listing: Listing, leadership: Leadership | None, before: int | None) -> bool:
        """Begin again if the directory or the leader epoch changed.

        Args:
            leadership: by the leadership source; used only if the directory has no leader epoch.
            before: count of the log dir's file at this moment; None: that is the file of the next reading.

        Returns:
            Whether counting began again. Then no earlier high watermark counts.
        """
        key = _key(listing, leadership)
        if key == self.key:
            return False
        self.key = key
        self.before = before
        return True

    def counts(self, log_dir: Path, checkpoints: Checkpoints) -> bool:
        """Apply a reading of the directory's log dir, and return whether its high watermarks count."""
        count = checkpoints.count(log_dir)
        if self.key is None or count is None:
            return False
        if self.before is None:
            self.before = count
        return count >= self.before + OTHER_FILES


def _key(listing: Listing, leadership: Leadership | None) -> tuple[object, ...] | None:
    if listing.last_epoch.file is EpochFile.UNREADABLE:
        return None
    directory = (listing.identity, listing.log_dir, listing.topic_id)
    if listing.last_epoch.file is EpochFile.ABSENT:  # only the leadership source has the epoch
        return None if leadership is None else (*directory, EpochFile.ABSENT, leadership)
    return None if listing.last_epoch.epoch is None else (*directory, listing.last_epoch.epoch)


class Counted(NamedTuple):
    """A high watermark that counts for a directory (protocol rule 1), with any leader.

    Attributes:
        epoch: the last one of its `leader-epoch-checkpoint`; None for a log of magic 0 or 1.
        leadership: of this broker at that time; None while it did not lead.
    """

    identity: tuple[int, int]
    epoch: int | None
    high_watermark: int
    leadership: Leadership | None


def ship_deleted(event: DirectoryDeleted, counted: Counted | None, *, latest: bool) -> list[AnyTask]:
    """Return the task for a `-delete` directory; none without a topic id.

    Args:
        counted: the newest reading of its partition; None without one.
        latest: as in `ReadPosition`.
    """
    listing, epoch = event.listing, event.listing.last_epoch.epoch
    if counted is not None and (counted.identity, counted.epoch) != (listing.identity, epoch):
        counted = None
    led = None if counted is None or counted.leadership is None else counted.leadership.epoch
    if listing.last_epoch.file is EpochFile.ABSENT:  # only the leadership source had the epoch
        epoch = led
    if listing.topic_id is None:
        return []
    epoch = UNKNOWN_EPOCH if epoch is None else epoch
    return [
        ShipDeleted(
            listing.partition,
            -1,
            Leadership(epoch, listing.topic_id, 0),
            listing,
            event.checkpointed if counted is None else counted.high_watermark,
            led=led == epoch,
            latest=latest,
        )
    ]
