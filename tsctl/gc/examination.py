"""What a partition has that is due, and which objects retention can delete. It reads, and writes nothing.

All phases use it: the survey, the plan after `log.start` was moved, and the deletion after the grace. So the deletion
works out again what is due, and a plan cannot delete more (retention rule 2).
"""

from dataclasses import dataclass

from ts_common.archive.catalog import StoredLogStart, read_snapshot
from ts_common.archive.commit import Commit
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.gc_plans import PlannedObject
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.view import open_view
from ts_common.errors import CorruptData, ObjectNotFound
from ts_common.store.contract import ObjectInfo, ObjectStore
from tsctl.gc.due import Due, Limit, Rule, due
from tsctl.gc.removable import removable
from tsctl.gc.retention import UNREADABLE, LeftOut, NeededFrom, Why


@dataclass(frozen=True, slots=True)
class Examined:
    """A partition at one moment.

    Attributes:
        keys: keys of the partition.
        commit: its commit.
        log_start: the object `log.start`.
        found: what is due.
        copies: its committed segments, also those below `log.start`.
        listed: every object in its directory.
    """

    keys: PartitionKeys
    commit: Commit
    log_start: StoredLogStart
    found: Due
    copies: tuple[SegmentCopy, ...]
    listed: tuple[ObjectInfo, ...]

    @property
    def target(self) -> int:
        """Return where `log.start` can move to; it never moves down."""
        return max(self.log_start.content.offset, self.found.start)

    @property
    def bytes(self) -> int:
        """Return the bytes of its committed segments."""
        return sum(copy.segment.size for copy in self.copies)

    def removable(self, below: int, now: int) -> list[PlannedObject]:
        """Return the objects that retention can delete, ascending.

        Args:
            below: `log.start`, or where it will be.
            now: milliseconds since the epoch, the clock of the store.
        """
        return removable(self.keys, self.listed, self.copies, self.commit, min(below, self.found.start), now)


def examine(
    store: ObjectStore, keys: PartitionKeys, rule: Rule, now: int, needed: NeededFrom | None = None
) -> Examined | None:
    """Return what a partition has that is due; None for a directory without a commit and segments.

    Args:
        store: of the partition.
        keys: of the partition.
        rule: of its topic.
        now: milliseconds since the epoch, by the clock of the store.
        needed: what a reader still needs.

    Raises:
        LeftOut: there is a doubt about the partition, it changes at the moment, or a reader holds it for too long.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    listed: list[ObjectInfo] = []
    try:
        catalog = read_snapshot(store, keys, seen=listed.append)
        if catalog.commit is None and not catalog.segments:
            return None
        commit, log_start = catalog.commit, catalog.stored_log_start
        if not isinstance(commit, Commit):
            missing = "has no commit" if commit is None else "has a commit of the Java uploader"
            raise LeftOut(f"the partition {missing}; an agent must ship it first")
        if log_start is None:
            raise LeftOut(f"{keys.log_start} is missing; the leader's agent writes it when it next starts")
        if log_start.content.lineage != commit.lineage:
            raise LeftOut("the commit has another lineage than log.start; the leader's agent writes log.start next")
        if log_start.content.offset > commit.next_offset:
            raise LeftOut(f"{keys.log_start} is above the next offset {commit.next_offset}")
        view = open_view(store, catalog)
    except UNREADABLE as error:
        raise LeftOut(str(error)) from error
    except ObjectNotFound as error:
        raise LeftOut(f"the partition changed meanwhile: {error}", Why.CHANGED) from error
    whole = view.with_hidden(min((copy.base for copy in (*view.retired, *view.copies)), default=view.start))
    try:
        found = due(whole, commit, rule, now, None if needed is None else needed.offset)
    except CorruptData as error:
        raise LeftOut(str(error)) from error
    if needed is not None and needed.overdue and found.limit is Limit.NEEDED:
        raise LeftOut(
            f"{needed.reader} still needs offset {needed.offset}, and has not moved for longest_wait", Why.OVERDUE
        )
    return Examined(keys, commit, log_start, found, whole.copies, tuple(listed))
