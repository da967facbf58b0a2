"""What the log directories hold, by looking: the truth that events only hint at.

A listing is not one instant: the broker renames while it is read. It is therefore taken for a hint of its own where
two must agree (protocol rule 2), and everything it says is checked again on the open file.
"""

import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from awscrt.checksums import crc32c

from ts_common.errors import CorruptData
from ts_common.log_format.checkpoints import parse_offset_checkpoint, parse_partition_metadata
from ts_common.model import TopicPartition
from ts_uploader.events import EpochFile, FileStatus, HighWatermarks, Listing
from ts_uploader.segment_file import open_file, read_all, read_file
from ts_uploader.watch.last_epoch import EpochReader, last_epoch_of

HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
PARTITION_METADATA = "partition.metadata"
_LOG = re.compile(r"([0-9]{20})\.log")
_DELETED_LOG = re.compile(r"([0-9]{20})\.log\.deleted")


def partition_directories(log_dir: Path) -> Iterator[tuple[TopicPartition, Path, bool]]:
    """The live partition directories of a log dir, and whether each is a symbolic link.

    Raises:
        OSError: the log dir cannot be read.
    """
    with os.scandir(log_dir) as entries:
        for entry in entries:
            partition = TopicPartition.parse(entry.name)
            if partition is not None and (entry.is_symlink() or entry.is_dir(follow_symlinks=False)):
                yield partition, Path(entry.path), entry.is_symlink()


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
    partition: TopicPartition, directory: Path, log_dir: Path, epochs: EpochReader | None = None
) -> Listing | None:
    """What a partition's directory holds; None where it is gone.

    Args:
        partition: whose.
        directory: its path.
        log_dir: that it lies in.
        epochs: reads its `leader-epoch-checkpoint`; None: the file is read.

    Raises:
        OSError: it is there and cannot be read.
    """
    taken_at = time.monotonic_ns()
    bases, deleted, swapping = [], [], False
    try:
        status = directory.stat(follow_symlinks=False)
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return None
    for name in names:
        if live := _LOG.fullmatch(name):
            bases.append(int(live[1]))
        elif gone := _DELETED_LOG.fullmatch(name):
            deleted.append(int(gone[1]))
        elif name.endswith(".swap"):
            swapping = True
    topic_id = _topic_id(directory)
    last_epoch = last_epoch_of(directory) if epochs is None else epochs.read(directory)
    checkpoint = _checkpoint_status(log_dir)  # after the epoch: files that replace this one are younger than the epoch
    if last_epoch.file is EpochFile.ABSENT and not _is_still(directory, status):
        return None  # it was renamed or replaced; its checkpoint is not absent, it is elsewhere
    return Listing(
        partition=partition,
        directory=directory,
        identity=(status.st_dev, status.st_ino),
        log_dir=log_dir,
        bases=tuple(sorted(bases)),
        deleted=tuple(sorted(deleted)),
        swapping=swapping,
        topic_id=topic_id,
        taken_at=taken_at,
        last_epoch=last_epoch,
        checkpoint=checkpoint,
    )


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
        return _file_status(os.stat(f"{log_dir}/{HIGH_WATERMARK_CHECKPOINT}", follow_symlinks=False))  # noqa: PTH116
    except OSError:
        return None


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
