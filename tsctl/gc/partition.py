"""One partition in one run: the table of retention. Each step is one conditional write of `log.start` and its copy.

S is the start, F the floor that counts, both by `log.start` and its copy; the target is where the policy of this run
lets the view begin.

======  ==============================================  ================================================
state   condition                                       step
======  ==============================================  ================================================
S > F   target < S: a hold, a reader, a rule            SHOW: S := max(F, target); nothing is deleted
S > F   the copy is of the write that hid, and older    DELETE: F := S; then what the listing showed below
        than the grace
S > F   the copy is of another write, or none exists    BEGIN: the grace begins, by a write of `log.start`
S = F   target > S, and objects end at or below it      HIDE: S := target; the grace begins
S = F   objects below F, and both objects are older     LEFT: delete what a killed run left
        than the grace
S = F   no copy of this lineage                         COPY
======  ==============================================  ================================================

`log.start` is written by agents. So nothing is deleted but what the target of this run passes too, by the metadata of
each `.log` itself, and the grace counts from the store's time of the copy, which agents may not write.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from ts_common.archive.catalog import StoredLogStart, read_log_start
from ts_common.archive.commit import Commit, new_writer
from ts_common.archive.object_keys import LOG_SUFFIX, ClusterKeys, PartitionKeys
from ts_common.archive.partition_view import PartitionView
from ts_common.store.contract import ObjectInfo, ObjectStore
from tsctl.gc.due import Due, Limit
from tsctl.gc.objects import Locked, removable
from tsctl.gc.report import Report
from tsctl.gc.retention import NeededFrom, Retention

WRITER: Final = "gc"  # `writtenBy` of runs begins with it


class Step(Enum):
    """What a run does with a partition."""

    SHOW = auto()
    DELETE = auto()
    BEGIN = auto()
    HIDE = auto()
    LEFT = auto()
    COPY = auto()
    NOTHING = auto()


@dataclass(frozen=True, slots=True)
class Work:
    """A run in one store.

    Attributes:
        now: milliseconds since the epoch, by the clock of the store.
        grace: milliseconds between the hiding and the deletion.
        copies: keys of the copies of `log.start`, by one listing, and of those that the run wrote.
        locked: returns, by key, the lock of each object that the store keeps.
        is_first: whether an older collector ran before: it can have hidden records of any partition.
    """

    store: ObjectStore
    cluster: ClusterKeys
    retention: Retention
    now: int
    grace: int
    copies: set[str]
    locked: Locked
    report: Report
    is_first: bool = False

    def has_copy(self, keys: PartitionKeys) -> bool:
        """Return whether the store has a copy of the `log.start` of a partition."""
        return self.cluster.log_start_copy(keys) in self.copies

    def read_copy(self, keys: PartitionKeys, stored: StoredLogStart | None) -> StoredLogStart | None:
        """Return the copy; None without one. It raises as `read_log_start`."""
        # The listing of the copies is as old as the run. Meanwhile another run can have hidden, and released.
        was_written = stored is not None and (stored.content.floor, stored.content.since) != (None, None)
        if not (was_written or self.has_copy(keys)):
            return None
        return read_log_start(self.store, self.cluster.log_start_copy(keys))

    def writer(self) -> str:
        """Return a new `writtenBy` of this run."""
        return new_writer(WRITER, self.now / 1000)

    def is_over(self, stored: StoredLogStart) -> bool:
        """Return whether an object is older than the grace, by the store's time."""
        return self.now - stored.modified >= self.grace


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition at one moment.

    Attributes:
        listed: every object in its directory; the listing is older than all that follows.
        commit: its commit, of the same lineage.
        copy: the copy of `log.start`; None without one, or if nothing needs its content.
        view: from the lowest stored segment on.
        floor: the floor that counts.
        find: returns what is due in a view of the partition.
        found: what is due.
        compacted: whether records of a compacted topic can be due.
        needed: what a reader still needs; None if no reader needs anything.
    """

    keys: PartitionKeys
    listed: tuple[ObjectInfo, ...]
    log_start: StoredLogStart
    commit: Commit
    copy: StoredLogStart | None
    view: PartitionView
    floor: int
    find: Callable[[PartitionView], Due]
    found: Due
    compacted: bool
    needed: NeededFrom | None

    @property
    def start(self) -> int:
        """The first offset that readers return."""
        return self.log_start.content.offset

    @property
    def target(self) -> int:
        """Where the policy lets the view begin."""
        return self.found.start

    @property
    def shown_from(self) -> int:
        """Where the view begins if hidden records show again."""
        return max(self.floor, self.target)

    @property
    def is_proven(self) -> bool:
        """Whether the copy has a floor. Without it the floor is inferred, from what agents write."""
        return self.copy is not None and self.copy.content.floor is not None

    @property
    def known_floor(self) -> int | None:
        """The floor to write. An inferred one with segments below it stays unknown, so that they can show again."""
        return self.floor if self.is_proven or all(each.base >= self.floor for each in self.view.copies) else None

    def removable(self, below: int, now: int) -> list[ObjectInfo]:
        """Return what can be deleted below an offset and below the target, in the order of the deletion."""
        if self.found.limit in {Limit.HELD, Limit.KEPT}:  # no rule names anything
            return []
        below, is_released = min(below, self.target), self.start == self.floor
        released = self.copy.modified / 1000 if self.copy is not None and is_released else 0.0
        return removable(self.keys, self.listed, self.view.copies, self.commit, below, now, released)


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is newly due in a partition.

    Attributes:
        target: where it can move to.
        limit: what keeps the offsets from there on; None if the incarnation is over.
        objects: number of objects that can be deleted then.
        bytes: of these objects.
        logs: how many of them are `.log`.
    """

    keys: PartitionKeys
    start: int
    target: int
    limit: Limit | None
    objects: int
    bytes: int
    logs: int
    over: bool = False

    @classmethod
    def of(
        cls, keys: PartitionKeys, start: int, target: int, limit: Limit | None, due: Sequence[ObjectInfo]
    ) -> "Candidate":
        """Return the candidate with these objects; without a limit the incarnation is over."""
        size, logs = sum(info.size for info in due), sum(info.key.endswith(LOG_SUFFIX) for info in due)
        return cls(keys, start, target, limit, len(due), size, logs, limit is None)


@dataclass(frozen=True, slots=True)
class Visit:
    """What a run found in a partition.

    Attributes:
        step: what it did; a dry run did nothing.
        moves: the start before and after the step, if it shows records again.
        removed: the objects that the step deletes.
        candidate: what is newly due; None if nothing is.
        bytes: of its committed segments; None for a directory without a partition.
        waits: whether a reader keeps offsets that are due otherwise.
        hidden: when what stays hidden was hidden, ms since the epoch; None if nothing does.
    """

    step: Step = Step.NOTHING
    moves: tuple[int, int] | None = None
    removed: tuple[ObjectInfo, ...] = ()
    candidate: Candidate | None = None
    due: tuple[ObjectInfo, ...] = ()
    bytes: int | None = None
    waits: bool = False
    hidden: int | None = None


def step_of(work: Work, partition: Partition) -> Step:
    """Return what a run does with a partition: the table of this module."""
    if partition.copy is None and work.has_copy(partition.keys):
        return Step.NOTHING
    return _step_of_hidden(work, partition) if partition.start > partition.floor else _step_of_shown(work, partition)


def _step_of_hidden(work: Work, partition: Partition) -> Step:
    start, since, copy = partition.start, partition.log_start.content.since, partition.copy
    if partition.target < start:
        return Step.SHOW
    if copy is None or since is None or (copy.content.offset, copy.content.since) != (start, since):
        return Step.BEGIN
    return Step.DELETE if work.is_over(copy) else Step.NOTHING


def _step_of_shown(work: Work, partition: Partition) -> Step:
    log_start, copy = partition.log_start, partition.copy
    left = bool(partition.removable(partition.floor, work.now))
    if copy is None or copy.content.lineage != partition.commit.lineage:
        is_known = left or copy is not None or log_start.content.floor is not None
        return Step.COPY if is_known and partition.target <= partition.start else Step.NOTHING
    is_over = work.is_over(log_start) and work.is_over(copy)
    return Step.LEFT if left and partition.is_proven and is_over else Step.NOTHING
