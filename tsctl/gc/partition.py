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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from ts_common.archive.catalog import StoredLogStart, catalog_of, read_commit, read_log_start
from ts_common.archive.commit import Commit, LogStart, new_writer
from ts_common.archive.copies import describe
from ts_common.archive.object_keys import LOG_SUFFIX, ClusterKeys, PartitionKeys, SegmentName
from ts_common.archive.view import PartitionView, open_view
from ts_common.errors import ObjectNotFound, OutcomeUnknown, PreconditionFailed
from ts_common.store.contract import IfAbsent, IfMatch, ObjectInfo, ObjectStore
from tsctl.gc.due import Due, Limit, due
from tsctl.gc.objects import Locked, removable
from tsctl.gc.report import Report
from tsctl.gc.retention import LeftOut, Retention, Skipped, Why

WRITER: Final = "gc"  # `writtenBy` of runs begins with it
CHANGED: Final = "log.start was written meanwhile, by an agent or another collector"


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
        locked: returns, by key, why the store keeps an object.
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
        due: its objects.
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


def visit(work: Work, keys: PartitionKeys, *, writes: bool = True, is_kept: bool = False) -> Visit:
    """Do what is to be done in a partition, except to hide what is newly due.

    Args:
        writes: whether to do it; a dry run does not.
        is_kept: whether nothing of it is due, whatever the rule of its topic is.

    Raises:
        LeftOut: there is a doubt about the partition, or another process writes it.
        CorruptData, NewerFormat, ObjectFrozen: an object of it is unreadable, which leaves it out too.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed; the next run continues.
    """
    partition = examine(work, keys, is_kept=is_kept)
    if partition is None:
        return Visit()
    step = step_of(work, partition)
    below = {Step.DELETE: partition.start, Step.LEFT: partition.floor}.get(step)
    goes = () if below is None else tuple(partition.removable(below, work.now))
    candidate, fresh = None, tuple[ObjectInfo, ...]()
    if partition.target > partition.start and (step is Step.DELETE or partition.start == partition.floor):
        gone = {info.key for info in partition.removable(partition.start, work.now)}
        fresh = tuple(info for info in partition.removable(partition.target, work.now) if info.key not in gone)
    if fresh:
        candidate = Candidate.of(keys, partition.start, partition.target, partition.found.limit, fresh)
    size, waits = sum(copy.segment.size for copy in partition.view.copies), partition.found.limit is Limit.NEEDED
    if writes and not _do(work, partition, step, goes):
        candidate = None
    hidden = work.now if candidate is not None or step is Step.BEGIN else None
    if step is Step.NOTHING and partition.start > partition.floor and partition.copy is not None:
        hidden = partition.copy.modified
    moves = (partition.start, partition.shown_from) if step is Step.SHOW else None
    return Visit(step, moves, goes, candidate, fresh, size, waits, hidden)


def examine(work: Work, keys: PartitionKeys, *, is_kept: bool = False) -> Partition | None:
    """Return what a partition has that is due; None for a directory without a partition, or without anything to do.

    Raises:
        As `visit`.
    """
    store, topic = work.store, keys.partition.topic
    rule = None if is_kept else work.retention.rule(topic)
    if rule is None and not (work.has_copy(keys) or work.is_first):
        return None
    listed = tuple(store.list(keys.prefix))
    catalog = catalog_of(keys, listed)
    try:
        log_start = read_log_start(store, keys.log_start)
        commit, etag = read_commit(store, keys)
        if (commit is None and not catalog.segments) or (rule is None and log_start is None):
            return None
        commit, log_start = _agreed(keys, commit, log_start)
        is_settled = _is_settled(keys, log_start.content, listed)
        copy = None if is_settled else work.read_copy(keys, log_start)
        view = open_view(store, replace(catalog, commit=commit, commit_etag=etag, stored_log_start=log_start))
        needed = None if rule is None else work.retention.needed(keys)
        floor = _floor(log_start.content, None if copy is None else copy.content, view)
        # A floor that no copy proves is inferred from holes, and these can be repaired.
        proven = floor if copy is not None and copy.content.floor is not None else 0
        view = view.with_hidden(min((each.base for each in (*view.retired, *view.copies)), default=view.start))

        def find(view: PartitionView) -> Due:
            if rule is None:
                return Due(floor, Limit.KEPT)
            return due(view, commit, rule, work.now, None if needed is None else needed.offset, proven)

        compacted = rule is None or rule.compacted
        partition = Partition(keys, listed, log_start, commit, copy, view, floor, find, find(view), compacted)
        if is_settled and (partition.target > partition.start or partition.removable(floor, work.now)):
            copy = work.read_copy(keys, log_start)
            floor = _floor(log_start.content, None if copy is None else copy.content, view)
            partition = replace(partition, copy=copy, floor=floor)
    except ObjectNotFound as error:
        raise LeftOut(f"the partition changed meanwhile: {error}", Why.CHANGED) from error
    if needed is not None and partition.found.limit is Limit.NEEDED:
        why = Why.OVERDUE if needed.overdue else Why.WAITS
        late = ", and has not moved for longest_wait" if needed.overdue else ""
        if needed.reader.startswith("table "):
            late += "; if it may miss them: ignore_tables in the rule, not until_read_by"
        work.report.skip(Skipped(keys.directory, f"{needed.reader} still needs offset {needed.offset}{late}", why))
    try:
        work.retention.check_holds(topic)
    except LeftOut as left:
        return _without_due(work, partition, left)
    return _whole(work, partition)


def _whole(work: Work, partition: Partition) -> Partition:
    """Return a partition without anything due if compaction removed records of what is due, and report that."""
    for copy in partition.view.copies if not partition.compacted else ():
        records, length = copy.metadata.records, copy.end - copy.base
        if copy.end <= partition.target and records is not None and records < length:
            doubt = LeftOut(
                f"{copy.key} has {records} of {length} records: the topic was compacted, so a record that is due "
                "can be the only one of its key; add compacted: true to the rule if it may be deleted"
            )
            return _without_due(work, partition, doubt)
    return partition


def _without_due(work: Work, partition: Partition, left: LeftOut) -> Partition:
    if left.why is not Why.HELD or partition.target > partition.floor:
        work.report.skip(Skipped.of(partition.keys.directory, left))
    found = Due(partition.floor, Limit.HELD if left.why is Why.HELD else Limit.KEPT)
    return replace(partition, find=lambda _: found, found=found)


def _agreed(keys: PartitionKeys, commit: object, log_start: StoredLogStart | None) -> tuple[Commit, StoredLogStart]:
    if not isinstance(commit, Commit):
        missing = "has no commit" if commit is None else "has a commit of the Java uploader"
        raise LeftOut(f"the partition {missing}; an agent must ship it first")
    if log_start is None:
        raise LeftOut(f"{keys.log_start} is missing; the leader's agent writes it when it next starts")
    if log_start.content.lineage != commit.lineage:
        raise LeftOut("the commit has another lineage than log.start; the leader's agent writes log.start next")
    if log_start.content.offset > commit.next_offset:
        raise LeftOut(f"{keys.log_start} is above the next offset {commit.next_offset}")
    return commit, log_start


def _is_settled(keys: PartitionKeys, log_start: LogStart, listed: Iterable[ObjectInfo]) -> bool:
    """Return whether the copy matters only if something is due: a run wrote `log.start`, and nothing is below it.

    Then no step shows or deletes anything, and a lineage that an agent began has no `writtenBy` of a run. An agent can
    forge this, and gains only that the floor of the copy, or its lineage, is written later.
    """
    if log_start.floor != log_start.offset or not (log_start.written_by or "").startswith(f"{WRITER}-"):
        return False
    names = (SegmentName.parse(info.key.removeprefix(keys.prefix)) for info in listed)
    lowest = next((parsed[0].base for parsed in names if parsed is not None), None)  # a listing ascends
    return lowest is not None and lowest >= log_start.offset


def _floor(log_start: LogStart, copy: LogStart | None, view: PartitionView) -> int:
    """Return the floor that counts: the least of `log.start`, its copy and the start (retention rule 2)."""
    known = min(log_start.offset, log_start.offset if log_start.floor is None else log_start.floor)
    if copy is not None and copy.floor is not None:
        return min(known, copy.floor)
    return min(known, view.lowest_whole(log_start.offset))


def step_of(work: Work, partition: Partition) -> Step:
    """Return what a run does with a partition: the table of this module."""
    start, floor, log_start, copy = partition.start, partition.floor, partition.log_start, partition.copy
    if copy is None and work.has_copy(partition.keys):
        return Step.NOTHING
    if start > floor:
        if partition.target < start:
            return Step.SHOW
        since = log_start.content.since
        if copy is None or since is None or (copy.content.offset, copy.content.since) != (start, since):
            return Step.BEGIN
        return Step.DELETE if work.is_over(copy) else Step.NOTHING
    left = bool(partition.removable(floor, work.now))
    if copy is None or copy.content.lineage != partition.commit.lineage:
        is_known = left or copy is not None or log_start.content.floor is not None
        return Step.COPY if is_known and partition.target <= start else Step.NOTHING
    is_over = work.is_over(log_start) and work.is_over(copy)
    return Step.LEFT if left and partition.is_proven and is_over else Step.NOTHING


def _do(work: Work, partition: Partition, step: Step, goes: Sequence[ObjectInfo]) -> bool:
    """Do a step; return whether what is newly due can be hidden afterwards."""
    keys, start = partition.keys, partition.start
    match step:
        case Step.SHOW:
            show(work, partition)
        case Step.BEGIN:
            hide(work, partition, start)
        case Step.COPY:
            erased = partition.log_start.content.erased
            content = LogStart(start, partition.commit.lineage, floor=partition.known_floor, erased=erased)
            _put_copy(work, partition, content)
        case Step.DELETE | Step.LEFT:
            below = start if step is Step.DELETE else partition.floor
            expected = min(below, partition.target)  # of leftovers the target may pass only a part
            partition = _verified(work, partition, goes)
            if partition.target < expected:
                work.report.skip(
                    Skipped(keys.directory, "a cache object names other times or ends than its segments do")
                )
            if step is Step.LEFT:
                return _delete(work, partition, below)
            if partition.target < start:
                show(work, partition)
                return False
            return _delete(work, _release(work, partition), below)
    return step in {Step.COPY, Step.NOTHING}


def _verified(work: Work, partition: Partition, goes: Iterable[ObjectInfo]) -> Partition:
    """Return a partition by the metadata of each `.log` to be deleted: agents write the cache objects of all."""
    names = {info.key for info in goes}
    segments = [copy.segment for copy in partition.view.copies if copy.key in names]
    own = describe(work.store, partition.keys, segments, damaged=[], removed=[])
    copies = (*own, *(copy for copy in partition.view.copies if copy.key not in names))
    view = replace(partition.view, copies=tuple(sorted(copies, key=lambda copy: copy.base)))
    return _whole(work, replace(partition, view=view, found=partition.find(view)))


def hide(work: Work, partition: Partition, target: int) -> None:
    """Raise the start: `log.start` first, then its copy.

    Raises:
        LeftOut: another process wrote one of them.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    content = _next(work, partition, target, partition.known_floor)
    content = replace(content, since=content.written_by)
    put(work, partition.keys.log_start, content, partition.log_start)
    _put_copy(work, partition, content)
    work.report.add(partition.keys, "hidden", start=partition.start, to=target, limit=str(partition.found.limit))


def show(work: Work, partition: Partition) -> None:
    """Lower the start to the target, but not below the floor: the copy loses `since` before, and is written after.

    Raises:
        As `hide`.
    """
    target = partition.shown_from
    if partition.copy is not None:
        before = replace(partition.copy.content, since=None, written_by=work.writer())
        partition = replace(partition, copy=_put_copy(work, partition, before))
    content = _next(work, partition, target, partition.known_floor)
    put(work, partition.keys.log_start, content, partition.log_start)
    _put_copy(work, partition, content)
    work.report.add(partition.keys, "shown", start=target, to=partition.start, limit=str(partition.found.limit))


def _release(work: Work, partition: Partition) -> Partition:
    """Raise the floor to the start, in the copy first; from then on nothing below shows again."""
    start = partition.start
    _look(work, partition)
    content = _next(work, partition, start, start)
    kept = None if partition.copy is None else partition.copy.content.since
    copy = _put_copy(work, partition, replace(content, since=kept))
    log_start = put(work, partition.keys.log_start, content, partition.log_start)
    return replace(partition, copy=copy, log_start=log_start, floor=start)


def _delete(work: Work, partition: Partition, below: int) -> bool:
    """Delete what the listing showed below an offset; return whether all of it is removed."""
    objects = partition.removable(below, work.now)
    return work.report.deleting(
        work.store, partition.keys, objects, locked=work.locked, look=lambda: _look(work, partition)
    )


def _look(work: Work, partition: Partition) -> None:
    """Raise `LeftOut` if a hold was set, or `log.start` was written, since it was read."""
    work.retention.check_holds(partition.keys.partition.topic)
    if read_log_start(work.store, partition.keys.log_start) != partition.log_start:
        raise LeftOut(CHANGED, Why.CHANGED)


def _next(work: Work, partition: Partition, start: int, floor: int | None) -> LogStart:
    """Return the next content of `log.start`, with all fields that are not the collector's."""
    former = partition.log_start.content
    since = former.since if floor != start and partition.floor < start <= former.offset else None
    return replace(former, offset=start, floor=floor, since=since, written_by=work.writer())


def _put_copy(work: Work, partition: Partition, content: LogStart) -> StoredLogStart:
    content = replace(content, written_by=content.written_by or work.writer())
    return put(work, work.cluster.log_start_copy(partition.keys), content, partition.copy)


def put(work: Work, key: str, content: LogStart, former: StoredLogStart | None) -> StoredLogStart:
    """Write `log.start` or its copy, on the ETag of the former one.

    Raises:
        LeftOut: another process wrote it.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    try:
        etag = work.store.put(key, content.encode(), condition=IfMatch(former.etag) if former else IfAbsent()).etag
    except PreconditionFailed as error:
        raise LeftOut(CHANGED, Why.CHANGED) from error
    except OutcomeUnknown as error:
        found = read_log_start(work.store, key)
        if found is None or found.content != content:
            raise LeftOut(CHANGED, Why.CHANGED) from error
        etag = found.etag
    if key.startswith(work.cluster.log_start_copies):
        work.copies.add(key)
    return StoredLogStart(content, etag)
