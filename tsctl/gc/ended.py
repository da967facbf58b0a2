"""A partition in an incarnation that is over: everything of it is due, with `offset.wm`, `log.start` and the copy last.

An incarnation is over once a later one of the topic was seen, or once the running cluster has not had the topic in any
run for a time. A topic that moved to another endpoint leaves its old place like one. The table is that of `partition`
with the end as target. The list of incarnations stays.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ts_common.archive.catalog import StoredLogStart, read_commit, read_log_start
from ts_common.archive.commit import Commit, LogStart, epoch_of
from ts_common.archive.erased_list import greatest_listed
from ts_common.archive.object_keys import PartitionKeys
from ts_common.store.contract import ObjectInfo
from tsctl.gc.objects import of_agents
from tsctl.gc.partition import Candidate, Step, Visit, Work
from tsctl.gc.retention import LeftOut, Why
from tsctl.gc.visits import visit
from tsctl.gc.writes import CHANGED, put


@dataclass(frozen=True, slots=True)
class Ended:
    """A partition at one moment.

    Attributes:
        groups: its objects under names that agents write, in the order of their deletion.
        commit: its commit, and the ETag; None without one.
        end: where the start moves to: nothing is above it.
    """

    keys: PartitionKeys
    groups: tuple[list[ObjectInfo], ...]
    log_start: StoredLogStart | None
    commit: tuple[Commit | None, str | None]
    copy: StoredLogStart | None
    end: LogStart

    @property
    def start(self) -> int:
        """The first offset that readers return."""
        return 0 if self.log_start is None else self.log_start.content.offset

    @property
    def floor(self) -> int | None:
        """The floor that counts; None if it is unknown, because the copy, which agents may not write, has none."""
        floors = [None if each is None else each.content.floor for each in (self.log_start, self.copy)]
        known = [each for each in floors if each is not None]
        return min(known) if len(known) == len(floors) else None

    @property
    def is_released(self) -> bool:
        """Whether nothing of it shows again."""
        return self.log_start is None or (self.floor is not None and self.floor >= self.end.offset)


def visit_ended(work: Work, keys: PartitionKeys, *, writes: bool = True, hides: bool = False) -> Visit:
    """Do what is to be done, as `partition.visit`; a hold shows again what is hidden.

    Args:
        writes: whether to do it; a dry run does not.
        hides: whether to hide what is newly due too.

    Raises:
        As `partition.visit`.
    """
    try:
        work.retention.check_holds(keys.partition.topic)
    except LeftOut as left:
        if left.why is not Why.HELD or not work.has_copy(keys):
            raise
        return visit(work, keys, writes=writes, is_kept=True)
    ended = _read(work, keys)
    objects = tuple(info for group in ended.groups for info in group)
    if not objects and ended.copy is None:
        return Visit()
    step, size = _step_of(work, ended), sum(info.size for info in objects)
    if hides if step is Step.HIDE else writes:
        _do(work, ended, step)
    match step:
        case Step.HIDE:
            candidate = Candidate.of(keys, ended.start, ended.end.offset, None, objects)
            return Visit(step, candidate=candidate, due=objects, bytes=size)
        case Step.DELETE:
            return Visit(step, removed=objects, bytes=size)
    hidden = ended.copy.modified if step is Step.NOTHING and ended.copy is not None else work.now
    return Visit(step, bytes=size, hidden=hidden)


def _step_of(work: Work, ended: Ended) -> Step:
    """Return what a run does with it: `HIDE`, `BEGIN` of the grace, `DELETE`, or `NOTHING` during the grace."""
    stored, copy, end = ended.log_start, ended.copy, ended.end
    is_hidden = stored is not None and (stored.content.offset, stored.content.lineage) == (end.offset, end.lineage)
    if any(ended.groups) and not is_hidden:
        return Step.HIDE
    is_released = ended.is_released
    if copy is None or (not is_released and (copy.content.offset, copy.content.since) != (end.offset, end.since)):
        return Step.BEGIN
    is_over = work.is_over(copy) and (not is_released or stored is None or work.is_over(stored))
    return Step.DELETE if is_over else Step.NOTHING


def _do(work: Work, ended: Ended, step: Step) -> None:
    match step:
        case Step.HIDE | Step.BEGIN:
            _hide(work, ended)
        case Step.DELETE:
            _delete(work, ended if ended.is_released else _release(work, ended))


def _read(work: Work, keys: PartitionKeys) -> Ended:
    groups = of_agents(keys, work.store.list(keys.prefix))
    stored = read_log_start(work.store, keys.log_start)
    commit, etag = read_commit(work.store, keys)
    copy = work.read_copy(keys, stored)
    if commit is not None and not isinstance(commit, Commit):
        raise LeftOut(
            f"{keys.commit} is of the Java uploader, which ships a later topic of that name to the same keys: if none "
            "does, delete the partition by hand"
        )
    former = _lost(keys, groups[-1], copy) if stored is None else stored.content
    end = former
    # If `log.start` has the later lineage, readers fail already, and it stays.
    if commit is not None and epoch_of(former.lineage) <= epoch_of(commit.lineage):
        end = replace(former, offset=max(former.shown_from(commit.lineage), commit.next_offset), lineage=commit.lineage)
    return Ended(keys, groups, stored, (commit, etag), copy, end)


def _lost(keys: PartitionKeys, erased: Sequence[ObjectInfo], copy: StoredLogStart | None) -> LogStart:
    """Return the content of a `log.start` that is missing: readers of any release keep to the lists (erase rule 3)."""
    listed, copied = greatest_listed(keys, erased), None if copy is None else copy.content.erased
    return LogStart(0, erased=max(0 if listed is None else listed.number, copied or 0) or None)


def _hide(work: Work, ended: Ended) -> None:
    """Move the start to the end, so that no reader reads the incarnation while it is deleted; the grace begins.

    The last agent may have ended between a commit that went back and its `log.start`. So it gets the commit's lineage.
    """
    writer = work.writer()
    floor = None if ended.floor is None else min(ended.floor, ended.end.offset)
    content = replace(ended.end, floor=floor, since=writer, written_by=writer)
    if ended.log_start is not None or any(ended.groups):
        put(work, ended.keys.log_start, content, ended.log_start)
    put(work, work.cluster.log_start_copy(ended.keys), content, ended.copy)
    work.report.add(ended.keys, "hidden", start=ended.start, to=content.offset, limit="it is over")


def _release(work: Work, ended: Ended) -> Ended:
    """Raise the floor to the end, in the copy first."""
    content = replace(ended.end, floor=ended.end.offset, written_by=work.writer())
    copy = put(work, work.cluster.log_start_copy(ended.keys), content, ended.copy)
    stored = put(work, ended.keys.log_start, replace(content, since=None), ended.log_start)
    return replace(ended, copy=copy, log_start=stored)


def _delete(work: Work, ended: Ended) -> None:
    """Delete group after group, as long as each is removed, and the copy before lists of erased offsets."""
    keys, key = ended.keys, work.cluster.log_start_copy(ended.keys)

    def look() -> None:
        work.retention.check_holds(keys.partition.topic)
        found, (_, etag) = read_log_start(work.store, keys.log_start), read_commit(work.store, keys)
        if found not in {None, ended.log_start} or etag not in {None, ended.commit[1]}:
            raise LeftOut(CHANGED, Why.CHANGED)

    # `log.start` was written since the listing.
    etags = {} if ended.log_start is None else {keys.log_start: ended.log_start.etag}
    *groups, erased = ended.groups
    groups = [[replace(info, etag=etags.get(info.key, info.etag)) for info in group] for group in groups]
    copy = [] if ended.copy is None else [ObjectInfo(key, 0, ended.copy.etag, 0.0)]
    for group in (*groups, copy, erased):
        if not work.report.deleting(work.store, keys, group, locked=work.locked, look=look):
            return
