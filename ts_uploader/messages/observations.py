"""Observations, from the watcher and the leadership source to the tracker. All frozen; no part shares state.

`Listing`, `SeveralDirectories`, `DirectoryGone`, `DirectoryDeleted` and `HighWatermarks` describe the log dirs. `Led`
and `NotLed` describe the leadership of a partition, and `Answered` is the broker's answer in it. `RepairWanted` is a
request from the store. `FormerCovered` is a message of the agent's own live tail.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import NamedTuple

from ts_common.archive.repair_requests import RepairRequest
from ts_common.model import TopicPartition

FileStatus = tuple[int, int, int]
"""Inode, time of modification (ns) and time of change (ns): they distinguish two files that had one name."""


class EpochFile(Enum):
    """The result of reading a directory's `leader-epoch-checkpoint`."""

    ABSENT = auto()  # a log of magic 0 or 1 has none
    UNREADABLE = auto()
    READ = auto()


@dataclass(frozen=True, slots=True)
class LastEpoch:
    """The last entry of a directory's `leader-epoch-checkpoint`.

    Attributes:
        file: whether it was read.
        epoch: of its last entry; None without an entry, and if the file is missing or was not read.
        error: why the file was not read, one line; empty if it was read or is missing.
    """

    file: EpochFile
    epoch: int | None = None
    error: str = ""


NO_EPOCH_FILE = LastEpoch(EpochFile.ABSENT)


class FileState(NamedTuple):
    """The state of a file: equal for a file that has not changed.

    Attributes:
        inode: on that device; reused after an unlink.
        size: bytes, when it was opened.
        changed_ns: its change time. Each write, truncation and rename changes it. The modification time is no
            replacement: the log cleaner sets that of a new file to that of an old one.
    """

    device: int
    inode: int
    size: int
    changed_ns: int


@dataclass(frozen=True, slots=True)
class Listing:
    """The content of one directory of a partition.

    Attributes:
        identity: (device, inode) of the directory: a re-created one differs.
        log_dir: the entry of `log.dirs` that contains it; its high watermark checkpoint is valid for this directory.
            One object for all listings: a path for each of 30,000 directories would need 14 MB.
        bases: base offsets of the live `.log` files, ascending; the last is the active segment.
        deleted: base offsets of `.log.deleted` files, ascending.
        swapping: whether a `.swap` file exists: the cleaner is in the middle of renames.
        topic_id: of `partition.metadata`; None without that file.
        taken_at: nanoseconds of the monotonic clock, before the directory was read.
        last_epoch: the last entry of the directory's `leader-epoch-checkpoint`.
        checkpoint: status of the log dir's high watermark checkpoint, read after `last_epoch`; None if it is missing
            or unreadable.
        whole: whether the names are those of one instant, with no `.swap` among them (`directory_scan`). Only then are
            two consecutive bases neighbours, and is the lowest base the lowest.
        stamp: (mtime, ctime) of the directory in nanoseconds, before it was read.
        stamp_seen: when the directory was first seen with this stamp, seconds of the monotonic clock.
        renamed: name of the directory, if it is not the partition's.
    """

    partition: TopicPartition
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
    renamed: str | None = None

    @property
    def directory(self) -> Path:
        """The path of the directory."""
        return self.log_dir / (self.renamed or str(self.partition))


@dataclass(frozen=True, slots=True)
class SeveralDirectories:
    """Several log dirs have a live directory of the partition: a move was cut short, or a failed disk still lists.

    Attributes:
        listings: of all of them, in the order of the log dirs.
    """

    partition: TopicPartition
    listings: tuple[Listing, ...]


@dataclass(frozen=True, slots=True)
class DirectoryGone:
    """No log dir has the partition any more."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class DirectoryDeleted:
    """The broker renamed a directory to `-delete`: its topic was deleted, or its replica moved. Sent once.

    Attributes:
        checkpointed: its high watermark by `replication-offset-checkpoint`; None if that does not prove it.
    """

    listing: Listing
    checkpointed: int | None

    @property
    def partition(self) -> TopicPartition:
        """The partition of the directory."""
        return self.listing.partition


@dataclass(frozen=True, slots=True)
class HighWatermarks:
    """One reading of a log dir's `replication-offset-checkpoint`.

    Attributes:
        file: status of the file, and CRC-32C of its content; None if it is missing or unreadable.
        offsets: by (topic, partition); a partition without an entry has no known high watermark. None if the file is
            missing or does not parse.
        live: inodes of the live directories that the reading can concern, found after the file was read: the entry of
            each of these is not of a successor. Empty if unknown.
        changed: the entries that differ from those of the reading before, or are in one of the two only; None: any may.
    """

    log_dir: Path
    file: tuple[FileStatus, int] | None
    offsets: Mapping[tuple[str, int], int] | None
    live: frozenset[int] = frozenset()
    changed: frozenset[tuple[str, int]] | None = None


@dataclass(frozen=True, slots=True)
class Leadership:
    """One leadership of this broker over a partition.

    Attributes:
        epoch: leader epoch.
        topic_id: from the leadership source; None if the cluster has no topic ids.
        seen_at: nanoseconds since the epoch, this host's clock, when the leadership was first seen here.
    """

    epoch: int
    topic_id: str | None
    seen_at: int


@dataclass(frozen=True, slots=True)
class Led:
    """This broker leads the partition. Sent repeatedly; only another epoch or topic id is another leadership."""

    partition: TopicPartition
    leadership: Leadership


@dataclass(frozen=True, slots=True)
class NotLed:
    """Another broker leads the partition, or none does. Unknown leadership sends nothing: committed work continues."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class Answered:
    """The broker's answer to ListOffsets, without error and in the leader epoch of the request (protocol rule 1).

    Attributes:
        epoch: that leader epoch.
        identity: of the partition's live directory, as listed before the request.
    """

    partition: TopicPartition
    epoch: int
    identity: tuple[int, int]
    high_watermark: int


@dataclass(frozen=True, slots=True)
class FormerCovered:
    """Own entries reach to where the leadership of an epoch begins, so none of a former one is needed (tail rule 4).

    Attributes:
        start: they begin there or below.
    """

    partition: TopicPartition
    epoch: int
    start: int


@dataclass(frozen=True, slots=True)
class RepairWanted:
    """A request to repair that no agent has answered yet. Sent again every minute until there is an answer."""

    partition: TopicPartition
    request: RepairRequest


@dataclass(frozen=True, slots=True)
class EarlyRequest:
    """Producers write to these partitions, so their positions are read before those of others."""

    partitions: Collection[TopicPartition]


PartitionEvent = Listing | SeveralDirectories | DirectoryGone | Led | NotLed | Answered | FormerCovered | RepairWanted
"""Observations of one partition that its state in the tracker depends on."""

Observation = PartitionEvent | DirectoryDeleted | HighWatermarks
