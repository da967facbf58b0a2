"""Tasks, from the tracker to the workers, and their results, back to the tracker. All frozen; no part shares state.

Tasks: `ReadPosition`, `Ship`, `WriteCommit`, `PassGap`, `FillGap`, `LookBelow`, `Rescan`. Results: `PositionRead`,
`Shipped`, `Committed`, `LookedBelow`, `Fenced`, `Failed`, `Changed`, `LookDue`.

A task has the `leadership` and the `generation` of the partition's state that it was made for, and its result returns
both. The tracker drops results of an earlier generation.
"""

from dataclasses import dataclass, field

from ts_common.archive.commit import Commit, ForeignCommit
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.lineage import Lineage
from ts_common.archive.object_keys import PartitionKeys
from ts_common.model import TopicPartition
from ts_uploader.events import FileState, Leadership, Listing


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


Result = PositionRead | Shipped | Committed | LookedBelow | Fenced | Failed | Changed | LookDue
