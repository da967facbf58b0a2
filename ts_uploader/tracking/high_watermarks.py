"""Which high watermark counts for a leadership. Pure: readings in, figures out; files are told apart, never clocks.

The broker collects the figures of all its log dirs and then writes one file after another, so a disk that hangs leaves
another disk's file with figures of before the hang. The first file that differs may therefore hold what was true before
the leadership began. The broker collected the second one after it had written the first (protocol rule 1).

"Other" is a file with another inode, time of modification, time of change or content. Files that the broker wrote
between two readings count as one, which costs time only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ts_uploader.events import EpochFile, FileStatus, HighWatermarks, Leadership, Listing

OTHER_FILES = 2  # from this one on a file's figures were collected after counting began


class Checkpoints:
    """Counts, for each log dir, the checkpoint files that differ from the one before."""

    def __init__(self) -> None:
        self._files: dict[Path, tuple[FileStatus, int]] = {}
        self._counts: dict[Path, int] = {}

    def take(self, reading: HighWatermarks) -> None:
        """Take one reading; one without a file changes nothing."""
        if reading.file is None:
            return
        before = self._files.get(reading.log_dir)
        if before is None:
            self._counts[reading.log_dir] = 0
        elif before != reading.file:
            self._counts[reading.log_dir] += 1
        self._files[reading.log_dir] = reading.file

    def count(self, log_dir: Path) -> int | None:
        """How many other files the log dir had since the first reading; None before that."""
        return self._counts.get(log_dir)

    def counts(self) -> Mapping[Path, int]:
        """The same of all log dirs that were read, as of now."""
        return dict(self._counts)

    def count_at(self, listing: Listing) -> int | None:
        """The count of the file that the log dir had when a directory was listed, or a higher one; None if not known.

        A file that was not read yet is at least the next one.
        """
        read = self._files.get(listing.log_dir)
        if read is None or listing.checkpoint is None:
            return None
        status, _ = read
        return self._counts[listing.log_dir] + (status != listing.checkpoint)


@dataclass(slots=True)
class Counting:
    """From which checkpoint file on a partition counts: of one directory, in one leader epoch.

    Attributes:
        key: the directory and the leader epoch that counting is for; None: it has not begun.
        before: count of the file that the log dir had when it began; None: the next reading is that file.
    """

    key: tuple[object, ...] | None = None
    before: int | None = None

    def begin(self, listing: Listing, leadership: Leadership | None, before: int | None) -> bool:
        """Begin where directory or leader epoch are others than before.

        Args:
            listing: of the directory.
            leadership: by the leadership source; it matters only where the directory names no epoch.
            before: count of the file that the log dir has at this moment; None: the next reading is that file.

        Returns:
            Whether they are, so that no figure counts that was taken before.
        """
        key = _key(listing, leadership)
        if key == self.key:
            return False
        self.key = key
        self.before = before
        return True

    def counts(self, log_dir: Path, checkpoints: Checkpoints) -> bool:
        """Take a reading of the directory's log dir; whether its figures count."""
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
    if listing.last_epoch.file is EpochFile.ABSENT:  # only the leadership source names the epoch
        return None if leadership is None else (*directory, EpochFile.ABSENT, leadership)
    return None if listing.last_epoch.epoch is None else (*directory, listing.last_epoch.epoch)
