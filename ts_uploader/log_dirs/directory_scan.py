"""Lists the log directories: the facts that inotify events only hint at.

A listing need not show one instant: a large directory is read in several calls, and the broker renames between them. So
a listing is a hint, and its facts are checked again on the open file. If neighbours or the lowest base have to be exact
(protocol rules 2 and 10), only a whole listing counts. The log cleaner replaces segments by renames, and a `.swap` file
exists from the first to the last of these; so one instant without a `.swap` shows true neighbours.

A listing shows one instant if the directory's mtime and ctime did not change while it was read. Kernels before 6.13 set
these stamps from a clock that ticks every 1 to 10 ms, so a second change in one tick leaves no trace. Hence the stamp
must have been seen `TICK_SECONDS` before the listing began: each later change has a later stamp. The age of the stamp
itself is not used: that would compare the file system's clock with this host's, which can be set. The wait costs
nothing if the directory was listed before and did not change, which is nearly always the case.
"""

import os
import re
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Set
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from awscrt.checksums import crc32c

from ts_common.errors import CorruptData, SegmentChanged
from ts_common.log_format.checkpoints import (
    parse_changed_offsets,
    parse_offset_checkpoint,
    parse_partition_metadata,
)
from ts_common.model import TopicPartition
from ts_uploader.log_dirs.leader_epoch import last_epoch_of
from ts_uploader.log_dirs.segment_file import open_file, read_all, read_file
from ts_uploader.messages.observations import EpochFile, FileStatus, HighWatermarks, Listing

HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
PARTITION_METADATA = "partition.metadata"
_LOG = re.compile(r"([0-9]{20})\.log")
_DELETED_LOG = re.compile(r"([0-9]{20})\.log\.deleted")
# Two ticks of the slowest clock that kernels use for these stamps (CONFIG_HZ=100).
TICK_SECONDS = 0.02
# How long a task tries to list one directory. The cleaner renames for milliseconds and copies between; with tiny
# segments, a moment without a rename may occur only when it rests.
_TIMEOUT_SECONDS = 1.0
_SECOND = 1_000_000_000
_STAT_COSTS = 2  # as much as so many entries of a listing


def directory_names(log_dir: Path) -> Iterator[tuple[str, bool]]:
    """Yield the names of the directories and symbolic links in a log dir, and whether each is a link.

    Raises:
        OSError: the log dir cannot be read.
    """
    with os.scandir(log_dir) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield entry.name, False
            elif entry.is_symlink():
                yield entry.name, True


def partition_directories(log_dir: Path) -> Iterator[tuple[TopicPartition, bool]]:
    """Yield the partitions that have a live directory in a log dir, and whether that is a symbolic link.

    Raises:
        OSError: the log dir cannot be read.
    """
    for name, is_link in directory_names(log_dir):
        partition = TopicPartition.parse(name)
        if partition is not None:
            yield partition, is_link


def holds_partition(log_dir: Path, partition: TopicPartition) -> bool:
    """Return whether a log dir contains a live directory of the partition; as in `partition_directories`, not a link.

    Raises:
        OSError: the log dir does not exist or cannot be read, so the answer is unknown.
    """
    try:
        return stat.S_ISDIR((log_dir / str(partition)).lstat().st_mode)
    except FileNotFoundError:
        log_dir.stat()  # raises if the log dir itself is missing
        return False


def list_partition(
    partition: TopicPartition,
    log_dir: Path,
    renamed: str | None = None,
    earlier: Listing | None = None,
) -> Listing | None:
    """Return the listing of a partition's directory; None if the directory does not exist.

    Args:
        log_dir: the log dir that contains it.
        renamed: name of the directory, if it is not the partition's.
        earlier: an earlier listing of it. Without one no listing is whole.

    Raises:
        OSError: the directory exists and cannot be read.
    """
    taken_at = time.monotonic_ns()
    directory = f"{log_dir}/{renamed or partition}"
    bases, deleted, swapping = [], [], False
    try:
        status = os.stat(directory, follow_symlinks=False)  # noqa: PTH116  (ten thousand at a time, as below)
        began = time.monotonic()
        names = os.listdir(directory)
        after = os.stat(directory, follow_symlinks=False)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return None
    for name in names:
        if live := _LOG.fullmatch(name):
            bases.append(int(live[1]))
        elif gone := _DELETED_LOG.fullmatch(name):
            deleted.append(int(gone[1]))
        elif name.endswith(".swap"):
            swapping = True
    identity, stamp = (status.st_dev, status.st_ino), _stamp(status)
    found = tuple(sorted(bases)), tuple(sorted(deleted))
    known = earlier is not None and (earlier.identity, earlier.stamp) == (identity, stamp)
    if earlier is not None and known:  # both listings share what is equal
        identity, stamp = earlier.identity, earlier.stamp
        found = found if found != (earlier.bases, earlier.deleted) else (earlier.bases, earlier.deleted)
    stamp_seen = min(earlier.stamp_seen, began) if earlier is not None and known else began
    one_instant = began - stamp_seen >= _tick_seconds(stamp) and stamp == _stamp(after)
    topic_id = _topic_id(directory)
    last_epoch = last_epoch_of(directory)
    checkpoint = _checkpoint_status(log_dir)  # after the epoch: files that replace this one are younger than the epoch
    if last_epoch.file is EpochFile.ABSENT and not _is_still(directory, status):
        return None  # it was renamed or replaced: its checkpoint exists elsewhere
    return Listing(
        partition=partition,
        identity=identity,
        log_dir=log_dir,
        bases=found[0],
        deleted=found[1],
        swapping=swapping,
        topic_id=topic_id,
        taken_at=taken_at,
        last_epoch=last_epoch,
        checkpoint=checkpoint,
        whole=known and one_instant and not swapping,
        stamp=stamp,
        stamp_seen=stamp_seen,
        renamed=renamed,
    )


def whole_listing(seen: Listing) -> Listing:
    """Return a listing of a directory at one instant after this call; for tasks, since it may have to wait 20 ms.

    Args:
        seen: an earlier listing. If the directory did not change since, there is no wait.

    Raises:
        SegmentChanged: the directory was removed or replaced, or renames continued for a second.
        OSError: the directory exists and cannot be read.
    """
    earlier, give_up = seen, time.monotonic() + _TIMEOUT_SECONDS
    while True:
        listing = list_partition(seen.partition, seen.log_dir, seen.renamed, earlier)
        if listing is None or listing.identity != seen.identity:
            raise SegmentChanged(f"{seen.directory} no longer exists, or is another directory now")
        if listing.whole:
            return listing
        now = time.monotonic()
        if now >= give_up:
            raise SegmentChanged(f"{seen.directory}: renames were in progress in every listing for one second")
        # With a `.swap` in the directory the stamp may be old: then the wait is for a change.
        settling = _tick_seconds(listing.stamp) - (now - listing.stamp_seen)
        time.sleep(max(settling, TICK_SECONDS if listing.swapping else 0.0, 0.0))
        earlier = listing


def unchanged_listing(seen: Listing) -> Listing:
    """Return a directory's listing now, for a task that may have waited long.

    Raises:
        SegmentChanged: as `whole_listing`, or the directory begins with another segment than in `seen`.
        OSError: as `whole_listing`.
    """
    now = whole_listing(seen)
    if now.bases[:1] != seen.bases[:1]:
        raise SegmentChanged(f"{now.directory} changed since it was listed")
    return now


def is_unchanged(seen: Listing, path: str) -> bool:
    """Return whether another listing of a live directory would be equal, by one `stat`.

    A whole listing began after each change with its stamp. So any later one leaves another stamp: a file that is added,
    removed or renamed, and each checkpoint and `partition.metadata`, which the broker replaces by a rename. A directory
    that replaced it has another identity or ctime. A file that could not be read, or has no topic id, may be mended in
    its place.
    """
    if not seen.whole or seen.topic_id is None or seen.last_epoch.file is EpochFile.UNREADABLE:
        return False
    try:
        status = os.stat(path, follow_symlinks=False)  # noqa: PTH116  (ten thousand at a time)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == seen.identity and _stamp(status) == seen.stamp


def _stamp(status: os.stat_result) -> tuple[int, int]:
    modified, changed = status.st_mtime_ns, status.st_ctime_ns
    return (modified, modified) if modified == changed else (modified, changed)  # one object: there are ten thousand


def _tick_seconds(stamp: tuple[int, int]) -> float:
    """Return how far apart two changes with the same stamp can be; some file systems count whole seconds."""
    return TICK_SECONDS if stamp[1] % _SECOND else TICK_SECONDS + 1.0


class CheckpointReader:
    """Reads the high watermark checkpoint of a log dir, again and again; parses the lines that changed."""

    def __init__(self, log_dir: Path) -> None:
        self._log_dir = log_dir
        self._data = b""
        self._offsets: dict[tuple[str, int], int] | None = None  # of `_data`, the last reading; None: it had none

    def read(self, unsettled: Set[tuple[str, int]] = frozenset()) -> HighWatermarks:
        """Read the file; without offsets if it is missing or does not parse.

        Args:
            unsettled: partitions that the file can change with equal entries.

        Raises:
            OSError: it exists and cannot be read.
        """
        before, self._offsets = self._offsets, None
        try:
            with open_file(self._log_dir / HIGH_WATERMARK_CHECKPOINT) as checkpoint:
                # From the open file: the broker replaces it by a rename, and status and content must be of one file.
                status, data = os.fstat(checkpoint), read_all(checkpoint)
        except FileNotFoundError:
            return HighWatermarks(self._log_dir, None, None)
        changed: frozenset[tuple[str, int]] | None = None
        try:
            if before is None:
                offsets = parse_offset_checkpoint(data)
            elif data == self._data:
                offsets, changed = before, frozenset()
            else:
                offsets, changed = parse_changed_offsets(data, self._data, before)
        except CorruptData:  # the broker writes another one soon
            offsets = None
        self._data, self._offsets = data, offsets
        file = (_file_status(status), crc32c(data))
        asked = None if offsets is None or changed is None else changed | unsettled
        if asked is None or len(asked) * _STAT_COSTS > len(offsets or ()):
            live = _live_inodes(self._log_dir)
        else:
            live = frozenset(_inodes_of(self._log_dir, asked))
        return HighWatermarks(self._log_dir, file, offsets, live, changed)


def read_high_watermarks(log_dir: Path) -> HighWatermarks:
    """Read the log dir's high watermark checkpoint once, as `CheckpointReader.read`."""
    return CheckpointReader(log_dir).read()


def _live_inodes(log_dir: Path) -> frozenset[int]:
    """Return the inodes of the live directories of a log dir: one listing, without a `stat` of each."""
    with os.scandir(log_dir) as entries:
        return frozenset(entry.inode() for entry in entries if TopicPartition.is_directory_name(entry.name))


def _inodes_of(log_dir: Path, partitions: Iterable[tuple[str, int]]) -> Iterator[int]:
    """Yield the inodes of the live directories that some partitions have in a log dir."""
    for topic, partition in partitions:
        with suppress(OSError):
            yield os.stat(f"{log_dir}/{topic}-{partition}", follow_symlinks=False).st_ino  # noqa: PTH116


def _checkpoint_status(log_dir: Path) -> FileStatus | None:
    try:
        return _shared(_file_status(os.stat(f"{log_dir}/{HIGH_WATERMARK_CHECKPOINT}", follow_symlinks=False)))  # noqa: PTH116
    except OSError:
        return None


@lru_cache(maxsize=32)
def _shared(status: FileStatus) -> FileStatus:
    """Return the first object of an equal status: all partitions of a log dir then share one."""
    return status


def _file_status(status: os.stat_result) -> FileStatus:
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def _is_still(directory: str, before: os.stat_result) -> bool:
    """Return whether a path still leads to the same directory."""
    try:
        now = os.stat(directory, follow_symlinks=False)  # noqa: PTH116  (ten thousand at a time)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return (now.st_dev, now.st_ino) == (before.st_dev, before.st_ino)


def _topic_id(directory: str) -> str | None:
    try:
        topic_id = parse_partition_metadata(read_file(f"{directory}/{PARTITION_METADATA}"))
    except (FileNotFoundError, CorruptData):
        return None
    return topic_id and sys.intern(topic_id)  # a topic has many partitions
