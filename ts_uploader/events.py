"""Observations, from the watcher and the leadership source to the tracker. All frozen; no part shares state.

`Listing`, `SeveralDirectories`, `DirectoryGone` and `HighWatermarks` describe the log dirs. `Led` and `NotLed` describe
the leadership of a partition.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import NamedTuple

from ts_common.model import TopicPartition

FileStatus = tuple[int, int, int]
"""Inode, time of modification (ns) and time of change (ns): what tells one file of a name from the one before it."""


class EpochFile(Enum):
    """What became of reading a directory's `leader-epoch-checkpoint`."""

    ABSENT = auto()  # a log of magic 0 or 1 has none
    UNREADABLE = auto()
    READ = auto()


@dataclass(frozen=True, slots=True)
class LastEpoch:
    """What a directory's `leader-epoch-checkpoint` ends with.

    Attributes:
        file: whether it was read.
        epoch: of its last entry; None without an entry, and where the file is absent or was not read.
        error: why the file was not read, one line; empty where it was read or is absent.
    """

    file: EpochFile
    epoch: int | None = None
    error: str = ""


NO_EPOCH_FILE = LastEpoch(EpochFile.ABSENT)


class FileState(NamedTuple):
    """A file that has not changed bears the same.

    Attributes:
        device: that holds it.
        inode: on that device, used again after an unlink.
        size: bytes, when it was opened.
        changed_ns: its change time. Whatever writes, cuts or renames moves that; the modification time would not do,
            because the log cleaner sets that of a new file to that of an old one.
    """

    device: int
    inode: int
    size: int
    changed_ns: int


@dataclass(frozen=True, slots=True)
class Listing:
    """What one directory of a partition held.

    Attributes:
        partition: whose it is.
        directory: its path.
        identity: (device, inode) of the directory: a re-created one is another.
        log_dir: the entry of `log.dirs` that holds it; its checkpoint speaks for this directory.
        bases: base offsets of the live `.log` files, ascending; the last is the active segment.
        deleted: base offsets of `.log.deleted` files, ascending.
        swapping: whether a `.swap` file stands there: the cleaner is in the middle of renames.
        topic_id: by `partition.metadata`; None where that is absent.
        taken_at: nanoseconds of the monotonic clock, before the directory was read.
        last_epoch: what the directory's `leader-epoch-checkpoint` ends with.
        checkpoint: status of the log dir's high watermark checkpoint, looked at after `last_epoch`; None where it has
            none, or none that can be seen.
        whole: whether the names are those of one instant, with no `.swap` among them (`watch.scan`). Only then are two
            bases that follow each other neighbours, and is the lowest the lowest.
        stamp: (mtime, ctime) of the directory in nanoseconds, before it was read.
        stamp_seen: when the directory was first seen with this stamp, seconds of the monotonic clock.
    """

    partition: TopicPartition
    directory: Path
    identity: tuple[int, int]
    log_dir: Path
    bases: tuple[int, ...]
    deleted: tuple[int, ...]
    swapping: bool
    topic_id: str | None
    taken_at: int
    last_epoch: LastEpoch = NO_EPOCH_FILE
    checkpoint: FileStatus | None = None
    whole: bool = False
    stamp: tuple[int, int] = (0, 0)
    stamp_seen: float = 0.0


@dataclass(frozen=True, slots=True)
class SeveralDirectories:
    """More than one log dir holds a live directory of the partition: a move cut short, or a failed disk still lists.

    Attributes:
        partition: whose they are.
        listings: of all of them, in the order of the log dirs.
    """

    partition: TopicPartition
    listings: tuple[Listing, ...]


@dataclass(frozen=True, slots=True)
class DirectoryGone:
    """No log dir holds the partition any more."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class HighWatermarks:
    """One reading of a log dir's `replication-offset-checkpoint`.

    Attributes:
        log_dir: which one.
        file: status of the file, and CRC-32C of its content; None where there is no file, or none that can be read.
        offsets: by (topic, partition); a partition without an entry has no known high watermark. None where there is no
            file, or none that can be parsed.
    """

    log_dir: Path
    file: tuple[FileStatus, int] | None
    offsets: Mapping[tuple[str, int], int] | None


@dataclass(frozen=True, slots=True)
class Leadership:
    """One leadership of this broker over a partition.

    Attributes:
        epoch: leader epoch.
        topic_id: as the leadership source names it; None where the cluster knows no topic ids.
        seen_at: nanoseconds since the epoch, this host's clock, when the leadership was first seen here.
    """

    epoch: int
    topic_id: str | None
    seen_at: int


@dataclass(frozen=True, slots=True)
class Led:
    """This broker leads the partition. Sent again and again; only another epoch or topic id is another leadership."""

    partition: TopicPartition
    leadership: Leadership


@dataclass(frozen=True, slots=True)
class NotLed:
    """Another broker leads the partition, or nobody. (Not knowing is not said at all: committed work continues.)"""

    partition: TopicPartition


Observation = Listing | SeveralDirectories | DirectoryGone | HighWatermarks | Led | NotLed
