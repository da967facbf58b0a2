"""One partition in one run: reads what it has and what is due, and does the step that `partition.py` decides."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ts_common.archive.catalog import StoredLogStart, catalog_of, read_commit, read_log_start
from ts_common.archive.commit import Commit, LogStart
from ts_common.archive.copies import describe
from ts_common.archive.object_keys import PartitionKeys, SegmentName
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.view import open_view
from ts_common.errors import ObjectNotFound
from ts_common.store.contract import ObjectInfo
from tsctl.gc.due import Due, Limit, Rule, due
from tsctl.gc.partition import WRITER, Candidate, Partition, Step, Visit, Work, step_of
from tsctl.gc.retention import LeftOut, Skipped, Why
from tsctl.gc.writes import delete, hide, put_copy, release, show


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
    fresh = _newly_due(work, partition) if step is Step.DELETE or partition.start == partition.floor else ()
    limit, candidate = partition.found.limit, None
    if fresh:
        candidate = Candidate.of(keys, partition.start, partition.target, limit, fresh)
    size = sum(copy.segment.size for copy in partition.view.copies)
    if writes and not _do(work, partition, step, goes):
        candidate = None
    hidden = work.now if candidate is not None or step is Step.BEGIN else None
    if step is Step.NOTHING and partition.start > partition.floor and partition.copy is not None:
        hidden = partition.copy.modified
    moves = (partition.start, partition.shown_from) if step is Step.SHOW else None
    return Visit(step, moves, goes, candidate, fresh, size, limit is Limit.NEEDED, hidden)


def _newly_due(work: Work, partition: Partition) -> tuple[ObjectInfo, ...]:
    """Return the objects that can be deleted only once the start has moved to the target."""
    if partition.target <= partition.start:
        return ()
    gone = {info.key for info in partition.removable(partition.start, work.now)}
    return tuple(info for info in partition.removable(partition.target, work.now) if info.key not in gone)


def examine(work: Work, keys: PartitionKeys, *, is_kept: bool = False) -> Partition | None:
    """Return what a partition has that is due; None for a directory without a partition, or without anything to do.

    Raises:
        As `visit`.
    """
    rule = None if is_kept else work.retention.rule(keys.partition.topic)
    if rule is None and not (work.has_copy(keys) or work.is_first):
        return None
    try:
        partition = _read(work, keys, rule)
    except ObjectNotFound as error:
        raise LeftOut(f"the partition changed meanwhile: {error}", Why.CHANGED) from error
    if partition is None:
        return None
    if (needed := partition.needed) is not None and partition.found.limit is Limit.NEEDED:
        why = Why.OVERDUE if needed.overdue else Why.WAITS
        late = ", and has not moved for longest_wait" if needed.overdue else ""
        if needed.reader.startswith("table "):
            late += "; if it may miss them: ignore_tables in the rule, not until_read_by"
        work.report.skip(Skipped(keys.directory, f"{needed.reader} still needs offset {needed.offset}{late}", why))
    try:
        work.retention.check_holds(keys.partition.topic)
    except LeftOut as left:
        return _without_due(work, partition, left)
    return _whole(work, partition)


def _read(work: Work, keys: PartitionKeys, rule: Rule | None) -> Partition | None:
    """Return a partition with what a rule makes due, whatever holds keep of it; None as `examine`."""
    store = work.store
    listed = tuple(store.list(keys.prefix))
    catalog = catalog_of(keys, listed)
    log_start = read_log_start(store, keys.log_start)
    commit, etag = read_commit(store, keys)
    if (commit is None and not catalog.segments) or (rule is None and log_start is None):
        return None
    commit, log_start = _agreed(keys, commit, log_start)
    is_settled = _is_settled(keys, log_start.content, listed)
    copy = None if is_settled else work.read_copy(keys, log_start)
    view = open_view(
        store, replace(catalog, commit=commit, commit_etag=etag, stored_log_start=log_start), shows_records=False
    )
    needed = None if rule is None else work.retention.needed(keys)
    floor = _floor(log_start, copy, view)
    # A floor that no copy proves is inferred from holes, and these can be repaired.
    proven = floor if copy is not None and copy.content.floor is not None else 0
    view = view.with_hidden(min((each.base for each in (*view.retired, *view.copies)), default=view.start))

    def find(view: PartitionView) -> Due:
        if rule is None:
            return Due(floor, Limit.KEPT)
        return due(view, commit, rule, work.now, None if needed is None else needed.offset, proven)

    compacted = rule is None or rule.compacted
    partition = Partition(keys, listed, log_start, commit, copy, view, floor, find, find(view), compacted, needed)
    if is_settled and (partition.target > partition.start or partition.removable(floor, work.now)):
        copy = work.read_copy(keys, log_start)
        partition = replace(partition, copy=copy, floor=_floor(log_start, copy, view))
    return partition


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


def _floor(log_start: StoredLogStart, copy: StoredLogStart | None, view: PartitionView) -> int:
    """Return the floor that counts: the least of `log.start`, its copy and the start (retention rule 2)."""
    start, written = log_start.content.offset, log_start.content.floor
    proven = None if copy is None else copy.content.floor
    return min(start, start if written is None else written, view.lowest_whole(start) if proven is None else proven)


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
            put_copy(work, partition, content)
        case Step.DELETE | Step.LEFT:
            below = start if step is Step.DELETE else partition.floor
            expected = min(below, partition.target)  # of leftovers the target may pass only a part
            partition = _verified(work, partition, goes)
            if partition.target < expected:
                work.report.skip(
                    Skipped(keys.directory, "a cache object names other times or ends than its segments do")
                )
            if step is Step.LEFT:
                return delete(work, partition, below)
            if partition.target < start:
                show(work, partition)
                return False
            return delete(work, release(work, partition), below)
    return step in {Step.COPY, Step.NOTHING}


def _verified(work: Work, partition: Partition, goes: Iterable[ObjectInfo]) -> Partition:
    """Return a partition by the metadata of each `.log` to be deleted: agents write the cache objects of all."""
    names = {info.key for info in goes}
    segments = [copy.segment for copy in partition.view.copies if copy.key in names]
    own = describe(work.store, partition.keys, segments, damaged=[], removed=[])
    copies = (*own, *(copy for copy in partition.view.copies if copy.key not in names))
    view = replace(partition.view, copies=tuple(sorted(copies, key=lambda copy: copy.base)))
    return _whole(work, replace(partition, view=view, found=partition.find(view)))
