"""What passes between the agent's parts: observations in, tasks out, results back. All frozen; no part shares state.

Observations (from the sources to the tracker): `Listing`, `SeveralDirectories`, `DirectoryGone`, `HighWatermarks`,
`Led`, `NotLed`.
Tasks (from the tracker to the workers): `ReadPosition`, `Ship`, `WriteCommit`, `PassGap`, `FillGap`, `LookBelow`,
`Rescan`. Results (from the workers to the tracker): `PositionRead`, `Shipped`, `Committed`, `LookedBelow`, `Fenced`,
`Failed`, `Changed`, `LookDue`.

A task carries the `leadership` and `generation` it was made for, its result brings them back, and the tracker forgets
results of a generation that has passed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import NamedTuple

from ts_common.archive.commit import Commit, ForeignCommit
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.lineage import Lineage
from ts_common.archive.object_keys import PartitionKeys
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


@dataclass(frozen=True, slots=True)
class Position:
    """How far the archive of a partition came, by the store.

    Attributes:
        keys: where the partition's newest incarnation lies.
        log_start: first offset that readers show.
        next_offset: end of the run: what is shipped next.
        highest_base: of the run's segments; None while there is none.
        epochs: the run's.
        etag: of `offset.wm`; None where it is absent.
        commit: what `offset.wm` says; None where it is absent.
        gaps: ranges `[from, to)` below the next offset that are recorded to exist nowhere, that no living copy in the
            store covers, and that this broker's log may hold some of.
        lineage: of the commit, or of the `log.start` that the first one will follow; None where none went back.
    """

    keys: PartitionKeys
    log_start: int
    next_offset: int
    highest_base: int | None
    epochs: EpochHistory
    etag: str | None
    commit: Commit | ForeignCommit | None
    gaps: tuple[tuple[int, int], ...] = ()
    lineage: Lineage | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """What every task and every result says first.

    Attributes:
        partition: whose.
        generation: of the partition's state in the tracker.
        leadership: in which it was asked for.
    """

    partition: TopicPartition
    generation: int
    leadership: Leadership


@dataclass(frozen=True, slots=True)
class ReadPosition(Task):
    """Find out where to go on; write `log.start` where nothing stands yet.

    Attributes:
        listing: of the directory that is to be shipped.
        first_base: where an archive that does not exist yet begins.
        known: our last commit that this agent knows of; a foreign one does not make it untrue.
        attempt: how many times in a row the partition failed; the worker waits accordingly.
        latest: an archive that does not exist yet begins with the active segment, not with the lowest one.
    """

    listing: Listing
    first_base: int
    known: Commit | None
    attempt: int
    latest: bool = False


@dataclass(frozen=True, slots=True)
class Ship(Task):
    """Ship one closed segment, from its live files or from those that retention renamed to `.deleted`.

    Attributes:
        keys: where to.
        listing: the newest.
        base: its base offset.
        next_base: of the segment behind it; of a segment that hangs, the end of its last batch.
        epochs: the run's.
        next_offset: its end.
        seen: a whole listing of this leadership showed the two bases as live neighbours.
        hangs: the `.deleted` file that hangs on what lives (`hanging`); None for a segment that is, or was seen, live.
        variants_below: a segment with a base below it is shipped under a variant's name only: a deletion that is still
            under way may name the plain one.
        gaps: the recorded gaps that it fills, where it does not reach above the next offset.
    """

    keys: PartitionKeys
    listing: Listing
    base: int
    next_base: int
    epochs: EpochHistory = field(default_factory=EpochHistory)
    next_offset: int = 0
    seen: bool = False
    hangs: FileState | None = None
    variants_below: int = 0
    gaps: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class WriteCommit(Task):
    """Move the commit along the run.

    Attributes:
        position: that the run continues.
        run: the segments that continue it, in order and without a hole.
    """

    position: Position
    run: tuple["Shipped", ...]


@dataclass(frozen=True, slots=True)
class PassGap(Task):
    """Record that the offsets from the next offset on exist nowhere, and move the commit beyond them.

    Attributes:
        position: whose next offset lies below everything that this broker holds.
        listing: the later of the two that agree on that.
        end: the first offset that this broker holds.
    """

    position: Position
    listing: Listing
    end: int


@dataclass(frozen=True, slots=True)
class FillGap(Task):
    """Give the offsets of a recorded gap that stand in the store by now the epochs that they were written in.

    Attributes:
        position: the commit that has passed the gap.
        listing: of the log that holds the offsets.
        gap: as in `Position.gaps`.
        run: the segments that hold them.
    """

    position: Position
    listing: Listing
    gap: tuple[int, int]
    run: tuple["Shipped", ...]


@dataclass(frozen=True, slots=True)
class LookBelow(Task):
    """Find out which `.deleted` files of before this leadership belong to the line that lives.

    Attributes:
        listing: of the directory.
        epochs: the run's.
        next_offset: its end.
        wanted: the lowest offset that is missing in the store.
        seen: base offsets of `.deleted` segments that were seen live in this leadership.
    """

    listing: Listing
    epochs: EpochHistory
    next_offset: int
    wanted: int
    seen: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Rescan:
    """Look at a partition's directories again. The tracker has at most one of each partition pending.

    Attributes:
        partition: whose.
        generation: of the partition's state in the tracker.
        attempt: how many times in a row this was needed.
        after_seconds: how long to wait at least.
        reason: the change of a segment that made it necessary, one line; empty where none did.
    """

    partition: TopicPartition
    generation: int
    attempt: int
    after_seconds: float = 0.0
    reason: str = ""


AnyTask = ReadPosition | Ship | WriteCommit | PassGap | FillGap | LookBelow | Rescan


@dataclass(frozen=True, slots=True)
class Hanging:
    """A `.deleted` file that hangs on what lives.

    Attributes:
        base: the base offset in its name.
        end: the offset after its last batch.
        state: of the file.
    """

    base: int
    end: int
    state: FileState


@dataclass(frozen=True, slots=True)
class LookedBelow(Task):
    """The answer to `LookBelow`.

    Attributes:
        hanging: those that reach above the wanted offset, by base.
        below: base offsets of all `.deleted` files below the lowest live segment.
        wanted: as in the task.
    """

    hanging: tuple[Hanging, ...]
    below: frozenset[int]
    wanted: int


@dataclass(frozen=True, slots=True)
class PositionRead(Task):
    """The answer to `ReadPosition`.

    Attributes:
        position: where to go on.
        lost: offsets `[from, to)` that were committed and that an election lost; None where it lost nothing.
        foreign: a Java uploader's commit stood there. It may have more queued, also where its broker leads no more.
        beside_java: one of ours stood there, and was put over a Java uploader's within the last week, by whomever.
    """

    position: Position
    lost: tuple[int, int] | None = None
    foreign: bool = False
    beside_java: bool = False


@dataclass(frozen=True, slots=True)
class Shipped(Task):
    """A segment is whole in the store.

    Attributes:
        base: its base offset.
        next_base: as in the task.
        end: end of its coverage.
        epochs: (epoch, first offset) wherever the epoch changes; -1 for batches of an old magic.
        last_stable_offset: at `end`, by the producer snapshot there; None without one.
        bytes_sent: to the store; 0 also for a segment without bytes.
        files_sent: likewise: the `.log` and its indexes.
        closed_at: when the broker closed it, seconds since the epoch; None where its files do not say.
        variants_below: as in the task.
        run: the run's epochs, as in the task.
        run_end: the next offset, as in the task.
        stamp: of the listing in the task.
        corruptions: how many places in it are no whole batch.
        tail: (last offset, stored CRC) of its last batch, where its coverage ends with that and it is as written.
        late: it was marked late in its metadata.
        seconds: from taking the task to the end of the upload.
    """

    base: int
    next_base: int
    end: int
    epochs: tuple[tuple[int, int], ...]
    last_stable_offset: int | None
    bytes_sent: int
    corruptions: int
    seconds: float
    tail: tuple[int, int] | None = None
    late: bool = False
    files_sent: int = 0
    closed_at: float | None = None
    variants_below: int = 0
    run: EpochHistory = field(default_factory=EpochHistory)
    run_end: int = 0
    stamp: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Committed(Task):
    """The commit stands in the store.

    Attributes:
        position: that it describes.
        gaps: ranges `[from, to)` that were recorded to exist nowhere, together with it.
        reason: of those gaps.
        by_request: somebody had them deleted (DeleteRecords).
    """

    position: Position
    gaps: tuple[tuple[int, int], ...] = ()
    reason: str = ""
    by_request: bool = False


@dataclass(frozen=True, slots=True)
class Fenced(Task):
    """The store shows a later leader epoch than the one the task was made for: step back until leadership says more."""

    reason: str


@dataclass(frozen=True, slots=True)
class Failed(Task):
    """A task failed in a way that another attempt may mend; the position is to be read again.

    Attributes:
        base: of the segment that a `Ship` was for; None for the other tasks.
        operation: the task's kind, for logs and metrics.
        reason: one line.
    """

    base: int | None
    operation: str
    reason: str


@dataclass(frozen=True, slots=True)
class Changed(Task):
    """A segment was not what the listing said any more: scan again, then decide.

    Attributes:
        base: its base offset.
        reason: one line.
    """

    base: int
    reason: str


@dataclass(frozen=True, slots=True)
class LookDue:
    """The delay of a `Rescan` is over: the listing that the scan takes next releases what it held back.

    Attributes:
        partition: whose.
        generation: as in the task.
    """

    partition: TopicPartition
    generation: int


Observation = Listing | SeveralDirectories | DirectoryGone | HighWatermarks | Led | NotLed
Result = PositionRead | Shipped | Committed | LookedBelow | Fenced | Failed | Changed | LookDue
