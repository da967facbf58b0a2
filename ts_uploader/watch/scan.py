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

from ts_common.errors import CorruptData
from ts_common.log_format.checkpoints import parse_offset_checkpoint, parse_partition_metadata
from ts_common.model import TopicPartition
from ts_uploader.events import HighWatermarks, Listing
from ts_uploader.segment_file import open_file, read_all, read_file

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


def list_partition(partition: TopicPartition, directory: Path, log_dir: Path) -> Listing | None:
    """What a partition's directory holds; None where it is gone.

    Raises:
        OSError: it is there and cannot be read.
    """
    taken_at = time.time_ns()
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
    return Listing(
        partition=partition,
        directory=directory,
        identity=(status.st_dev, status.st_ino),
        log_dir=log_dir,
        bases=tuple(sorted(bases)),
        deleted=tuple(sorted(deleted)),
        swapping=swapping,
        topic_id=_topic_id(directory),
        taken_at=taken_at,
    )


def read_high_watermarks(log_dir: Path) -> HighWatermarks | None:
    """The log dir's checkpoint; None where there is none, or none that can be read (the broker will write another)."""
    try:
        with open_file(log_dir / HIGH_WATERMARK_CHECKPOINT) as checkpoint:
            # Of the open file: the broker replaces it by a rename, and time and content must be of one.
            written_at = os.fstat(checkpoint).st_mtime_ns
            return HighWatermarks(log_dir, written_at, parse_offset_checkpoint(read_all(checkpoint)))
    except (FileNotFoundError, CorruptData):
        return None


def _topic_id(directory: Path) -> str | None:
    try:
        return parse_partition_metadata(read_file(directory / PARTITION_METADATA))
    except (FileNotFoundError, CorruptData):
        return None
