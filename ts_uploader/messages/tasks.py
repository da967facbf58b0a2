"""Tasks, from the tracker to the workers. All frozen; no part shares state.

A task has the `leadership` and the `generation` of the partition's state that it was made for, and its result returns
both. The tracker drops results of an earlier generation. `Shipped` is the result of `Ship`, and part of the tasks that
commit it.
"""

from dataclasses import dataclass, field
from typing import Final

from ts_common.archive.catalog import StoredLogStart
from ts_common.archive.commit import Commit, ForeignCommit, Lineage
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.metadata_cache import CacheEntry
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.repair_requests import RepairRequest
from ts_common.model import TopicPartition
from ts_uploader.messages.observations import FileState, Leadership, Listing


@dataclass(frozen=True, slots=True)
class Position:
    """The state of a partition's archive, as read from the store.

    Attributes:
        keys: of the partition's newest incarnation.
        log_start: first offset that readers return.
        next_offset: end of the run: the offset that is shipped next.
        highest_base: of the run's segments; None without segments.
        etag: of `offset.wm`; None if it does not exist.
        commit: content of `offset.wm`; None if it does not exist.
        gaps: ranges `[from, to)` below the next offset that are recorded to exist nowhere, that no live copy in the
            store covers, and that this broker's log may contain in part.
        lineage: of the commit, or of the `log.start` that the first one will follow; None if no commit went back.
        start: the object `log.start` as it was read or written; None if unknown. Only the positions object has it.
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
    start: StoredLogStart | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """The fields of every task and every result.

    Attributes:
        generation: of the partition's state in the tracker.
    """

    partition: TopicPartition
    generation: int
    leadership: Leadership


@dataclass(frozen=True, slots=True)
class ReadPosition(Task):
    """Find out where to continue; write `log.start` if nothing is stored yet.

    Attributes:
        first_base: where an archive that does not exist yet begins.
        known: the last commit that this agent wrote or read; it stays true under a foreign one.
        attempt: how many times in a row the partition failed; the worker waits accordingly.
        latest: an archive that does not exist yet begins with the active segment, not with the lowest one.
        over: the topic id was deleted: a later incarnation can exist.
        made_at: when it was put into its queue, nanoseconds of the monotonic clock; None if unknown.
    """

    listing: Listing
    first_base: int
    known: Commit | None
    attempt: int
    latest: bool = False
    over: bool = False
    made_at: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Ship(Task):
    """Ship one closed segment, from its live files or from those that retention renamed to `.deleted`.

    Attributes:
        listing: the newest.
        base: its base offset.
        next_base: of the next segment; of a segment that hangs, the end of its last batch.
        next_offset: the run's end.
        seen: a whole listing of this leadership showed the two bases as live neighbours.
        hangs: the `.deleted` file that hangs on the live log (`hanging`); None if the segment is, or was seen, live.
        variants_below: a segment with a base below it is shipped under a variant's name only: a deletion in progress
            may name the plain one.
        lineage: of the commit. Below its `highest`, the variant's name depends on it.
        gaps: the recorded gaps that it fills, if it does not reach above the next offset.
        cut: only whole batches below this offset are shipped: the high watermark of a deleted log. None for the whole
            segment.
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
    lineage: Lineage | None = None
    gaps: tuple[tuple[int, int], ...] = ()
    cut: int | None = None


@dataclass(frozen=True, slots=True)
class Shipped(Task):
    """A segment is complete in the store.

    Attributes:
        base: its base offset.
        end: end of its coverage.
        epochs: (epoch, first offset) wherever the epoch changes; -1 for batches of an old magic.
        last_stable_offset: at `end`, by the producer snapshot there; None without one.
        bytes_sent: to the store; 0 also for a segment without bytes.
        files_sent: to the store: the `.log` and its indexes; 0 if the store had them.
        closed_at: when the broker closed it, seconds since the epoch; None if its files do not show it.
        lineage: as in the task.
        run: the run's epochs, as in the task.
        run_end: the next offset, as in the task.
        corruptions: number of places in it without a whole batch.
        tail: (last offset, stored CRC) of its last batch, if its coverage ends with that and it is as written.
        late: it was marked late in its metadata.
        stored: its entry in a cache object, by the response to the put; None if it was not put now.
        seconds: from the start of the task to the end of the upload.
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
    lineage: Lineage | None = None
    run: EpochHistory = field(default_factory=EpochHistory)
    run_end: int = 0
    stamp: tuple[int, int] = (0, 0)
    stored: CacheEntry | None = None


@dataclass(frozen=True, slots=True)
class WriteCommit(Task):
    """Move the commit along the run.

    Attributes:
        position: that the run continues from.
        run: the segments that continue it, in order and without a hole.
    """

    position: Position
    run: tuple["Shipped", ...]


@dataclass(frozen=True, slots=True)
class PassGap(Task):
    """Record that the offsets from the next offset on exist nowhere, and move the commit beyond them.

    Attributes:
        position: with a next offset below all offsets of this broker.
        listing: the later of the two that agree on that.
        end: the first offset of this broker.
    """

    position: Position
    listing: Listing
    end: int


@dataclass(frozen=True, slots=True)
class FillGap(Task):
    """Correct the epochs of a recorded gap whose offsets the store has by now.

    Attributes:
        position: the commit that has passed the gap.
        listing: of the log that has the offsets.
        gap: as in `Position.gaps`.
    """

    position: Position
    listing: Listing
    gap: tuple[int, int]
    run: tuple["Shipped", ...]


@dataclass(frozen=True, slots=True)
class ForgetFormer(Task):
    """Write a commit that names no former leadership: own entries cover what they shipped (tail rule 4)."""

    position: Position


@dataclass(frozen=True, slots=True)
class LookBelow(Task):
    """Find the `.deleted` files from before this leadership that belong to the live log.

    Attributes:
        next_offset: the run's end.
        wanted: the lowest offset that the store lacks.
        seen: base offsets of `.deleted` segments that were seen live in this leadership.
    """

    listing: Listing
    epochs: EpochHistory
    next_offset: int
    wanted: int
    seen: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Repair(Task):
    """Put the good copy of a range into the store, and answer the request for it.

    Attributes:
        request: what is missing or damaged.
        position: of the partition, whose run contains the range.
        segments: the closed segments of this broker with offsets of the range, in order.
        lowest: the lowest offset at or above the begin of the range that this broker holds.
    """

    request: RepairRequest
    position: Position
    listing: Listing
    segments: tuple[Ship, ...]
    lowest: int


UNKNOWN_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class ShipDeleted(Task):
    """Ship what the archive lacks of a directory whose topic was deleted, and record the rest as a gap.

    The leader epoch of its `leadership` is the last one of the directory, or `UNKNOWN_EPOCH`. The generation has no
    meaning.

    Attributes:
        high_watermark: its last one that is known; None without one.
        led: whether this agent saw its broker lead in that epoch.
        latest: as in `ReadPosition`.
        attempt: how many times in a row the task failed.
        after_seconds: shortest time to wait.
        patient: it waited for the agent of the last leader.
        log: the end and the epochs of the log; None until they were read.
    """

    listing: Listing
    high_watermark: int | None
    led: bool
    latest: bool
    attempt: int = 0
    after_seconds: float = 0.0
    confirmed: bool = False
    patient: bool = False
    log: tuple[int, EpochHistory] | None = None


@dataclass(frozen=True, slots=True)
class Rescan:
    """List a partition's directories again. The tracker has at most one such task of each partition pending.

    Attributes:
        generation: of the partition's state in the tracker.
        attempt: how many times in a row this was needed.
        after_seconds: shortest time to wait.
        reason: the change of a segment that made it necessary, one line; empty without one.
    """

    partition: TopicPartition
    generation: int
    attempt: int
    after_seconds: float = 0.0
    reason: str = ""


AnyTask = (
    ReadPosition | Ship | WriteCommit | PassGap | FillGap | ForgetFormer | LookBelow | Repair | ShipDeleted | Rescan
)
