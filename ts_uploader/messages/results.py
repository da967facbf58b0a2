"""Results of tasks, from the workers back to the tracker. All frozen; no part shares state."""

from dataclasses import dataclass

from ts_common.archive.repair_requests import Outcome, RepairRequest
from ts_common.errors import TieredStorageError
from ts_common.model import TopicPartition
from ts_uploader.messages.observations import FileState
from ts_uploader.messages.tasks import Position, ShipDeleted, Shipped, Task


@dataclass(frozen=True, slots=True)
class Hanging:
    """A `.deleted` file that hangs on the live log.

    Attributes:
        base: the base offset in its name.
        end: the offset after its last batch.
    """

    base: int
    end: int
    state: FileState


@dataclass(frozen=True, slots=True)
class LookedBelow(Task):
    """The result of `LookBelow`.

    Attributes:
        hanging: files that hang and reach above the wanted offset, by base.
        below: base offsets of all `.deleted` files below the lowest live segment.
    """

    hanging: tuple[Hanging, ...]
    below: frozenset[int]
    wanted: int


@dataclass(frozen=True, slots=True)
class PositionRead(Task):
    """The result of `ReadPosition`.

    Attributes:
        lost: offsets `[from, to)` that were committed and that an election lost; None without a loss.
        foreign: the commit was a Java uploader's. It may have more segments queued, even if its broker lost leadership.
        beside_java: an agent's commit replaced a Java uploader's within the last week.
    """

    position: Position
    lost: tuple[int, int] | None = None
    foreign: bool = False
    beside_java: bool = False


@dataclass(frozen=True, slots=True)
class Committed(Task):
    """The commit is in the store.

    Attributes:
        position: that the commit describes.
        gaps: ranges `[from, to)` that were recorded with it, to exist nowhere.
        reason: of those gaps.
        by_request: the records were deleted on request (DeleteRecords).
    """

    position: Position
    gaps: tuple[tuple[int, int], ...] = ()
    reason: str = ""
    by_request: bool = False
    with_topic: bool = False


@dataclass(frozen=True, slots=True)
class Repaired(Task):
    """The result of `Repair`: the request has an answer.

    Attributes:
        reason: of the outcome, one line.
        objects: keys of the `.log` objects that were put.
    """

    request: RepairRequest
    outcome: Outcome
    reason: str
    objects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeletedShipped(Task):
    """The result of `ShipDeleted`: nothing is left to do.

    Attributes:
        reason: why, one line.
        next_offset: the archive's end; None if the agent did not read it.
        lost: records may be lost without a gap record.
    """

    reason: str
    next_offset: int | None = None
    lost: bool = False


@dataclass(frozen=True, slots=True)
class DeletedPending(Task):
    """The result of `ShipDeleted` that has to be repeated.

    Attributes:
        reason: one line.
    """

    task: ShipDeleted
    reason: str


@dataclass(frozen=True, slots=True)
class Fenced(Task):
    """The store has a later leader epoch than the task's: the partition waits for new leadership."""

    reason: str


class FencedLeaderEpoch(TieredStorageError):
    """The store or a segment shows a later leader epoch than the agent's, or the store a later incarnation."""


@dataclass(frozen=True, slots=True)
class Failed(Task):
    """A task failed and may succeed when retried; the position has to be read again.

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
    """A segment no longer matched its listing: scan again, then decide.

    Attributes:
        base: its base offset.
        reason: one line.
    """

    base: int
    reason: str


@dataclass(frozen=True, slots=True)
class LookDue:
    """The delay of a `Rescan` is over: the next listing releases the waiting work."""

    partition: TopicPartition
    generation: int


Result = (
    PositionRead
    | Shipped
    | Committed
    | LookedBelow
    | Repaired
    | DeletedShipped
    | DeletedPending
    | Fenced
    | Failed
    | Changed
    | LookDue
)
