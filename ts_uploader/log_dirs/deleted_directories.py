"""Finds the directories that a broker renamed to `-delete`, and the high watermark that their files prove.

A broker renames the directory of a deleted topic to `<topic>-<partition>.<32 hex digits>-delete`, and removes it after
`file.delete.delay.ms` (Kafka's `LogManager.asyncDelete`, `UnifiedLog.logDeleteDirName`). From the rename on nothing is
appended, truncated, compacted or retained. A replica that moved to another broker or disk gets such a name too.

A name of 255 characters can lack the end of the topic's name, so no topic is read from it. Such a directory is
recognised by its inode if it was listed live. A file system uses an inode again, but no two directories have one name.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog

from ts_common.archive.high_watermarks import End
from ts_common.model import TopicPartition
from ts_uploader.log_dirs.directory_scan import holds_partition, list_partition, read_high_watermarks
from ts_uploader.log_dirs.local_log import LEADER_EPOCHS
from ts_uploader.messages.observations import DirectoryDeleted, Listing

log = structlog.get_logger()

_SUFFIX: Final = "-delete"  # found before the pattern: a log dir has ten thousand other names
_NAME: Final = re.compile(r"(?P<partition>.+-[0-9]{1,10})\.[0-9a-f]{32}-delete")
_LONGEST_NAME: Final = 255
_CHECKPOINTS: Final = 2  # as protocol rule 1: the first one can have a value from before
_NANOSECONDS: Final = 1_000_000_000
_NANOSECONDS_EACH: Final = 1_000_000  # of a millisecond


class DeletedDirectories:
    """Reports each `-delete` directory once. Used by the watcher's thread.

    Args:
        wanted: returns whether a topic is shipped.
        emit: receives each directory.
        checkpoint_seconds: the interval of the broker's high watermark checkpoints.
        unnamed: called for each directory whose partition or topic id is unknown.
    """

    def __init__(
        self,
        log_dirs: Sequence[Path],
        wanted: Callable[[str], bool],
        emit: Callable[[DirectoryDeleted], None],
        checkpoint_seconds: float,
        unnamed: Callable[[], None] = lambda: None,
    ) -> None:
        self._log_dirs = log_dirs
        self._wanted = wanted
        self._emit = emit
        self._checkpoint_seconds = checkpoint_seconds
        self._unnamed = unnamed
        self._reported: dict[Path, set[Path]] = {}  # by log dir

    def report(self, live: Mapping[str, Sequence[Listing]]) -> None:
        """Report the directories that are new.

        Args:
            live: the last listings of each partition, by the name of its directory.
        """
        partitions: dict[tuple[int, int], TopicPartition] | None = None
        for log_dir in self._log_dirs:
            try:
                directories = list(_renamed(log_dir))
            except OSError:  # each scan reports a log dir that cannot be read
                continue
            reported = self._reported[log_dir] = self._reported.get(log_dir, set()) & set(directories)
            for directory in directories:
                if directory in reported:
                    continue
                try:
                    status = directory.stat(follow_symlinks=False)
                    if partitions is None:
                        listed = (listing for listings in live.values() for listing in listings)
                        partitions = {listing.identity: listing.partition for listing in listed}
                    self._report(directory, partitions.get((status.st_dev, status.st_ino)))
                    reported.add(directory)
                except FileNotFoundError:  # the broker removed it meanwhile
                    continue
                except OSError as error:  # the next scan tries it again
                    log.error("deleted_directory_unreadable", directory=str(directory), error=str(error))

    def _report(self, directory: Path, partition: TopicPartition | None) -> None:
        """Report one directory.

        Args:
            partition: by the listing under its live name; None if it was not listed there.

        Raises:
            OSError: it cannot be read.
        """
        partition = _named_partition(directory) or partition
        if partition is not None and not self._wanted(partition.topic):
            return
        listing = None
        if partition is not None:
            listing = list_partition(partition, directory.parent, directory.name)
            if listing is None:
                return
        if partition is None or listing is None or listing.topic_id is None:
            message = "not shipped: it names no topic id, or its name can lack a part of the topic's"
            log.error("deleted_directory_unnamed", message=message, directory=str(directory))
            self._unnamed()
            return
        checkpointed = checkpointed_end(directory, partition, self._checkpoint_seconds)
        self._emit(DirectoryDeleted(listing, checkpointed))


def _renamed(log_dir: Path) -> Iterator[Path]:
    """Yield the directories of a log dir with the suffix `-delete`.

    Raises:
        OSError: the log dir cannot be read.
    """
    with os.scandir(log_dir) as entries:
        for entry in entries:
            name = entry.name
            if name.endswith(_SUFFIX) and _NAME.fullmatch(name) and entry.is_dir(follow_symlinks=False):
                yield log_dir / name


def _named_partition(directory: Path) -> TopicPartition | None:
    """Return the partition in the name of a `-delete` directory; None if the name can lack a part of the topic's."""
    match = _NAME.fullmatch(directory.name)
    if match is None or len(directory.name) >= _LONGEST_NAME:
        return None
    return TopicPartition.parse(match["partition"])


def checkpointed_end(directory: Path, partition: TopicPartition, checkpoint_seconds: float) -> int | None:
    """Return the high watermark of a `-delete` directory by the checkpoint of its log dir; None if that is uncertain.

    The entry counts on two conditions. No other directory of the log dir has that name, live or `-delete`: the entry
    could be of that one. The broker wrote the file two checkpoint intervals after the directory's last leader epoch
    began: then it collected the value in that epoch. One kernel stamps both files.

    Args:
        directory: renamed.
        partition: the name of the entry.
        checkpoint_seconds: the interval of the broker's checkpoints.

    Raises:
        OSError: a file exists and cannot be read.
    """
    log_dir = directory.parent
    reading = read_high_watermarks(log_dir)
    if reading.file is None or reading.offsets is None or holds_partition(log_dir, partition):
        return None
    if sum(_named_partition(other) in {None, partition} for other in _renamed(log_dir)) > 1:
        return None
    try:
        begun = (directory / LEADER_EPOCHS).stat(follow_symlinks=False).st_mtime_ns
    except FileNotFoundError:
        return None
    (_, written, _), _ = reading.file
    if written <= begun + _CHECKPOINTS * int(checkpoint_seconds * _NANOSECONDS):
        return None
    return reading.offsets.get((partition.topic, partition.partition))


def reported_end(directory: Path, end: End | None, checkpoint_seconds: float) -> int | None:
    """Return the high watermark of a `-delete` directory by its agent's `ends/` object; None if that is uncertain.

    It counts if the broker wrote the checkpoint two intervals after the directory's last leader epoch began, and before
    it renamed the directory: then it is of that epoch, and not of a later topic. The rename changes the directory's
    ctime alone. Once its two times are equal, the broker has begun to remove files. One kernel stamps all.

    Args:
        directory: renamed.
        end: of its partition, by an earlier process of this broker's agent; None without one.
        checkpoint_seconds: the interval of the broker's checkpoints.

    Raises:
        OSError: the directory cannot be read.
    """
    try:
        begun = (directory / LEADER_EPOCHS).stat(follow_symlinks=False).st_mtime_ns
        status = directory.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    if end is None or status.st_mtime_ns == status.st_ctime_ns:
        return None
    written = end.time * _NANOSECONDS_EACH  # rounded down
    since = begun + _CHECKPOINTS * int(checkpoint_seconds * _NANOSECONDS)
    return end.high_watermark if since < written <= status.st_ctime_ns else None
