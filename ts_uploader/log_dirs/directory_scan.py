"""What the log directories hold, by looking: the truth that events only hint at.

A listing need not be one instant: a large directory is read in several calls, and the broker renames between them. So
a listing is a hint, and what it says is checked again on the open file. Where neighbours or the lowest base must be
true (protocol rules 2 and 10), only a whole listing counts. The log cleaner replaces segments by renames, and from the
first to the last of these a `.swap` file exists; so one instant without a `.swap` shows true neighbours.

A listing is one instant if the directory's mtime and ctime did not change while it was read. Kernels before 6.13 take
these stamps from a clock that ticks every 1 to 10 ms, so a second change in one tick leaves no trace. Hence the stamp
must have been seen `TICK_SECONDS` before the listing began: each change from then on bears a later one. How old the
stamp itself is does not count: that would compare the clock of a file system with this host's, which can be set. The
wait costs nothing where the directory was listed before and did not change, which is nearly always.
"""

import os
import re
import stat
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from awscrt.checksums import crc32c

from ts_common.errors import CorruptData, SegmentChanged
from ts_common.model import TopicPartition
from ts_uploader.events import EpochFile, FileStatus, HighWatermarks, Listing
from ts_uploader.log_dirs.checkpoints import parse_offset_checkpoint, parse_partition_metadata
from ts_uploader.log_dirs.last_epoch import EpochReader, last_epoch_of
from ts_uploader.log_dirs.segment_file import open_file, read_all, read_file

HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
PARTITION_METADATA = "partition.metadata"
_LOG = re.compile(r"([0-9]{20})\.log")
_DELETED_LOG = re.compile(r"([0-9]{20})\.log\.deleted")
# Two ticks of the slowest clock that kernels stamp files by (CONFIG_HZ=100).
TICK_SECONDS = 0.02
# How long a task looks at one directory. The cleaner renames for milliseconds and copies between; where segments are
# tiny, a moment without a rename may come only when it rests.
_PATIENCE_SECONDS = 1.0
_SECOND = 1_000_000_000


def partition_directories(log_dir: Path) -> Iterator[tuple[TopicPartition, bool]]:
    """The partitions that have a live directory in a log dir, and whether that is a symbolic link.

    Raises:
        OSError: the log dir cannot be read.
    """
    with os.scandir(log_dir) as entries:
        for entry in entries:
            partition = TopicPartition.parse(entry.name)
            if partition is not None and (entry.is_symlink() or entry.is_dir(follow_symlinks=False)):
                yield partition, entry.is_symlink()


def holds_partition(log_dir: Path, partition: TopicPartition) -> bool:
    """Whether a log dir holds a live directory of the partition; as `partition_directories`, no link to one.

    Raises:
        OSError: the log dir is not there or cannot be read, so that nothing is known.
    """
    try:
        return stat.S_ISDIR((log_dir / str(partition)).lstat().st_mode)
    except FileNotFoundError:
        log_dir.stat()  # it is not the log dir that is gone
        return False


def list_partition(
    partition: TopicPartition,
    directory: Path,
    log_dir: Path,
    epochs: EpochReader | None = None,
    earlier: Listing | None = None,
) -> Listing | None:
    """What a partition's directory holds; None where it is gone.

    Args:
        partition: whose.
        directory: its path.
        log_dir: that it lies in.
        epochs: reads its `leader-epoch-checkpoint`; None: the file is read.
        earlier: an earlier listing of it. Without one no listing is whole.

    Raises:
        OSError: it is there and cannot be read.
    """
    taken_at = time.monotonic_ns()
    bases, deleted, swapping = [], [], False
    try:
        status = directory.stat(follow_symlinks=False)
        began = time.monotonic()
        names = os.listdir(directory)
        after = directory.stat(follow_symlinks=False)
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
    known = earlier is not None and (earlier.identity, earlier.stamp) == (identity, stamp)
    stamp_seen = min(earlier.stamp_seen, began) if earlier is not None and known else began
    one_instant = began - stamp_seen >= _tick_seconds(stamp) and stamp == _stamp(after)
    topic_id = _topic_id(directory)
    last_epoch = last_epoch_of(directory) if epochs is None else epochs.read(directory)
    checkpoint = _checkpoint_status(log_dir)  # after the epoch: files that replace this one are younger than the epoch
    if last_epoch.file is EpochFile.ABSENT and not _is_still(directory, status):
        return None  # it was renamed or replaced; its checkpoint is not absent, it is elsewhere
    return Listing(
        partition=partition,
        directory=directory,
        identity=identity,
        log_dir=log_dir,
        bases=tuple(sorted(bases)),
        deleted=tuple(sorted(deleted)),
        swapping=swapping,
        topic_id=topic_id,
        taken_at=taken_at,
        last_epoch=last_epoch,
        checkpoint=checkpoint,
        whole=known and one_instant and not swapping,
        stamp=stamp,
        stamp_seen=stamp_seen,
    )


def whole_listing(seen: Listing) -> Listing:
    """What a listed directory holds at one instant from now on; for tasks, as it may have to wait some 20 ms.

    Args:
        seen: an earlier listing. Where the directory did not change since, there is nothing to wait for.

    Raises:
        SegmentChanged: it is gone, or another one, or renames went on for a second.
        OSError: it is there and cannot be read.
    """
    earlier, give_up = seen, time.monotonic() + _PATIENCE_SECONDS
    while True:
        listing = list_partition(seen.partition, seen.directory, seen.log_dir, earlier=earlier)
        if listing is None or listing.identity != seen.identity:
            raise SegmentChanged(f"{seen.directory} is gone, or another directory now")
        if listing.whole:
            return listing
        now = time.monotonic()
        if now >= give_up:
            raise SegmentChanged(f"{seen.directory}: the log cleaner is at work: each look of a second met renames")
        # With a `.swap` in it the stamp may be old: what is waited for then is a change.
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


def _stamp(status: os.stat_result) -> tuple[int, int]:
    return status.st_mtime_ns, status.st_ctime_ns


def _tick_seconds(stamp: tuple[int, int]) -> float:
    """How far apart two changes may be and leave the same stamp; some file systems count whole seconds."""
    return TICK_SECONDS if stamp[1] % _SECOND else TICK_SECONDS + 1.0


def read_high_watermarks(log_dir: Path) -> HighWatermarks:
    """One reading of the log dir's checkpoint; also where there is none, or none that can be parsed.

    Raises:
        OSError: it is there and cannot be read.
    """
    try:
        with open_file(log_dir / HIGH_WATERMARK_CHECKPOINT) as checkpoint:
            # Of the open file: the broker replaces it by a rename, and status and content must be of one.
            status, data = os.fstat(checkpoint), read_all(checkpoint)
    except FileNotFoundError:
        return HighWatermarks(log_dir, None, None)
    try:
        offsets = parse_offset_checkpoint(data)
    except CorruptData:  # the broker will write another
        offsets = None
    return HighWatermarks(log_dir, (_file_status(status), crc32c(data)), offsets)


def _checkpoint_status(log_dir: Path) -> FileStatus | None:
    try:
        return _shared(_file_status(os.stat(f"{log_dir}/{HIGH_WATERMARK_CHECKPOINT}", follow_symlinks=False)))  # noqa: PTH116
    except OSError:
        return None


@lru_cache(maxsize=32)
def _shared(status: FileStatus) -> FileStatus:
    """A status as the object that bore it first: all partitions of a log dir keep the same one."""
    return status


def _file_status(status: os.stat_result) -> FileStatus:
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def _is_still(directory: Path, before: os.stat_result) -> bool:
    """Whether a path leads to the directory that it led to before."""
    try:
        now = directory.stat(follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return (now.st_dev, now.st_ino) == (before.st_dev, before.st_ino)


def _topic_id(directory: Path) -> str | None:
    try:
        return parse_partition_metadata(read_file(directory / PARTITION_METADATA))
    except (FileNotFoundError, CorruptData):
        return None
