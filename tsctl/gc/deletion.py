"""Phase 2 of a run: delete what a plan names, after the grace for readers.

Nothing is deleted by its key alone. What is due is worked out again, and an object is deleted only if the plan names it
with the same size and ETag. Each delete is conditional on that ETag. `.log` objects are deleted ascending, each before
its indexes. A run that is killed is repeated: what is no longer listed counts as missing.
"""

import json
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from ts_common.archive.gc_plans import PlannedObject, PlannedPartition, read_parts, read_plan
from ts_common.archive.gc_runs import (
    RunObjects,
    Use,
    claim_first,
    claim_of,
    mark_done,
    mark_void,
    numbered_key,
    read_claim,
)
from ts_common.archive.object_keys import INDEX_SUFFIXES, LOG_SUFFIX, ClusterKeys, PartitionKeys
from ts_common.errors import CorruptData, PermanentError
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_common.wording import counted
from tsctl.gc.deletion_log import LOG, Outcome, read_log
from tsctl.gc.examination import examine
from tsctl.gc.lines import NumberedLines
from tsctl.gc.over import MARKS, has_before, read_over
from tsctl.gc.retention import LeftOut, Retention, Skipped, Why
from tsctl.gc.showing import show_again
from tsctl.gc.topic_incarnations import find_incarnation
from tsctl.gc.undo import undo

_AT_ONCE: Final = 3000  # objects of a partition, about a thousand segments


@dataclass(slots=True)
class Deleted:
    """What phase 2 of one plan did.

    Attributes:
        run: name of the plan's run.
        objects: number of objects by outcome.
        bytes: of the removed objects.
        skipped: partitions that were left out.
        errors: the first failures, by key.
        undone: whether the plan was undone before.
        is_done: whether the plan is complete. It is not if objects failed for the first time, or if the undo left a
            partition out.
    """

    run: str
    objects: Counter[Outcome] = field(default_factory=Counter)
    bytes: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    undone: bool = False
    is_done: bool = False


class DamagedPlan(PermanentError):
    """A plan, or what it is used for, is damaged; nothing of it was deleted now."""


Locked = Callable[[Sequence[str]], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class _Work:
    """The arguments of `delete_planned`, its result and the log."""

    store: ObjectStore
    cluster: ClusterKeys
    retention: Retention
    now: int
    locked: Locked
    found: Deleted
    log: NumberedLines
    run: RunObjects
    is_first: bool  # nothing of the plan was deleted before, and no other process deletes it


def delete_planned(
    store: ObjectStore,
    cluster: ClusterKeys,
    run: RunObjects,
    retention: Retention,
    now: int,
    *,
    locked: Locked = lambda _: {},
    advance: Callable[[], None] = lambda: None,
    found: Deleted | None = None,
) -> Deleted:
    """Delete what a plan names and is still due, write the log of deletions, and mark the plan as done.

    Args:
        store: of the partitions.
        cluster: their keys.
        run: of the plan; its grace must be over, except if an undo claimed it: then the undo is completed.
        retention: what is due, and what stays.
        now: milliseconds since the epoch, by the clock of the store.
        locked: returns, by key, why the store keeps an object.
        advance: is called after each partition.
        found: an empty one, which has what was deleted also if an error ends the deletion; None for a new one.

    Raises:
        DamagedPlan, NewerFormat: the plan is damaged, or of a later release; nothing was deleted.
        CorruptData: what a reader of the policy wrote is damaged; the next run continues.
        ValueError: the grace is not over.
        OutcomeUnknown, StoreUnavailable, AccessDenied, BucketMissing: the store failed; the next run continues.
    """
    found = Deleted(run.run) if found is None else found
    try:
        use = claim_of(store, cluster, run.run)
        if use is not Use.UNDO:
            plan = read_plan(store, cluster, run.run)
            if now < plan.due:
                raise ValueError(f"the grace of {run.run} is not over")
            for _ in read_parts(store, cluster, plan):  # damage is found before anything is decided
                pass
            is_first = claim_first(store, cluster, run.run, Use.DELETE)
            use = Use.DELETE if is_first else read_claim(store, cluster, run.run)
        if use is Use.UNDO:  # an undo that did not end, or another collector's
            found.undone, found.skipped = True, undo(store, cluster, run, now).skipped
            found.is_done = not found.skipped
            return found
    except CorruptData as error:
        raise DamagedPlan(str(error)) from error
    # Two attempts or hosts can begin in one second, and a key that exists is not written again.
    attempt = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now / 1000))}-{secrets.token_hex(4)}"
    log = NumberedLines(store, lambda number: numbered_key(cluster, run.run, f"{LOG}{attempt}", number))
    work = _Work(store, cluster, retention, now, locked, found, log, run, is_first)
    try:
        for partition, objects in read_parts(store, cluster, plan):
            _delete_partition(work, partition, objects)
            advance()
    finally:
        log.flush()
    # What fails a second time can fail for ever, and no other plan is made meanwhile. The next plan has it again.
    if run.claimed or not found.objects[Outcome.FAILED]:
        _finish(store, run, found, now)
    return found


def _delete_partition(work: _Work, partition: PlannedPartition, objects: Sequence[PlannedObject]) -> None:
    keys, found = partition.keys(work.cluster), work.found
    try:
        work.retention.check_holds(keys.partition.topic)
        if work.run.shows(keys.directory):
            raise LeftOut("a hold showed it again: the plan is void for this partition", Why.CHANGED)
        due = _over_still(work, partition, keys) if partition.over else _still_due(work, partition, objects, keys)
    except LeftOut as left:
        if left.why is Why.HELD:
            left = _shown_again(work, partition, objects, left)
        found.skipped.append(Skipped.of(keys.directory, left))
        found.objects[Outcome.LEFT] += len(objects)
        work.log.add(json.dumps({"partition": keys.directory, "outcome": Outcome.LEFT, "reason": left.reason}))
        return
    work.log.add(json.dumps({"partition": keys.directory}))
    rest = set(due.listed)
    groups = [[each for each in objects if each.name not in MARKS]]
    groups += [[each for each in objects if each.name == mark] for mark in MARKS]
    for group in groups:
        remaining = iter(group)
        while batch := list(islice(remaining, _AT_ONCE)):
            if has_before(batch[0].name, rest):
                due = _Due(frozenset(), due.listed)
            for each, outcome in _delete_batch(work, keys, batch, due):
                found.objects[outcome] += 1
                found.bytes += each.size if outcome is Outcome.REMOVED else 0
                work.log.add(json.dumps([each.name, each.size, each.etag, outcome]))
                if outcome is Outcome.REMOVED:
                    rest.discard(each.name)


def _shown_again(work: _Work, partition: PlannedPartition, objects: Sequence[PlannedObject], left: LeftOut) -> LeftOut:
    """Show a held partition again, if no deletion of the plan can have begun there; return what is reported."""
    if not (work.is_first or work.run.shows(partition.keys(work.cluster).directory)):
        return left
    try:
        is_shown = show_again(work.store, work.cluster, work.run, partition, objects)
    except LeftOut as error:  # each run tries it again
        return error
    return LeftOut(f"{left.reason}; log.start is back at what it was before the plan", left.why) if is_shown else left


@dataclass(frozen=True, slots=True)
class _Due:
    """What can be deleted, and the names of all objects that are listed."""

    objects: frozenset[PlannedObject]
    listed: frozenset[str]


def _still_due(work: _Work, partition: PlannedPartition, objects: Iterable[PlannedObject], keys: PartitionKeys) -> _Due:
    """Return what is still due of a partition.

    Raises:
        LeftOut: the partition is void in this plan.
    """
    rule = work.retention.rule(keys.partition.topic)
    if rule is None:
        raise LeftOut("the policy has no rule for this topic any more", Why.CHANGED)
    examined = examine(work.store, keys, rule, work.now, work.retention.needed(keys))
    if examined is None:
        raise LeftOut("the partition has no objects any more", Why.CHANGED)
    content = examined.log_start.content
    if content.lineage != partition.lineage:
        raise LeftOut("the commit went back since: the plan is void for this partition", Why.CHANGED)
    if content.offset < partition.after:
        raise LeftOut(f"log.start is {content.offset}, below {partition.after} in the plan", Why.CHANGED)
    if content.written_by != partition.written_by:
        raise LeftOut("log.start was written since the plan", Why.CHANGED)
    listed = {info.key.removeprefix(keys.prefix): info for info in examined.listed}
    due = {*examined.removable(content.offset, work.now), *_left_behind(objects, listed)}
    return _Due(frozenset(due), frozenset(listed))


def _left_behind(objects: Iterable[PlannedObject], listed: Mapping[str, ObjectInfo]) -> Iterator[PlannedObject]:
    """Yield the planned indexes whose `.log` an earlier, incomplete deletion of the plan removed."""
    planned = {each.name: each for each in objects}
    for each in planned.values():
        log = each.name.rpartition(".")[0] + LOG_SUFFIX
        info = listed.get(each.name)
        is_index = each.name.endswith(INDEX_SUFFIXES) and log in planned and log not in listed
        if is_index and info is not None and (info.size, info.etag) == (each.size, each.etag):
            yield each


def _over_still(work: _Work, partition: PlannedPartition, keys: PartitionKeys) -> _Due:
    """Return what is still there of a partition in an incarnation that is over.

    Raises:
        LeftOut: the incarnation is not over any more, or an agent wrote its commit.
    """
    incarnation = find_incarnation(work.store, work.cluster, keys.partition.topic, partition.directory)
    if incarnation is None or not work.retention.is_over(incarnation):
        raise LeftOut("the incarnation of the topic is not over any more", Why.CHANGED)
    over = read_over(work.store, keys)
    if over.commit is not None and over.commit.nonce != partition.nonce:
        raise LeftOut("an agent wrote the commit since the plan", Why.CHANGED)
    if over.log_start is not None and over.log_start.offset < partition.after:
        raise LeftOut(f"log.start is {over.log_start.offset}, below {partition.after} in the plan", Why.CHANGED)
    if over.log_start is not None and over.log_start.written_by != partition.written_by:
        raise LeftOut("log.start was written since the plan", Why.CHANGED)
    return _Due(frozenset(over.objects), frozenset(each.name for each in over.objects))


def _delete_batch(
    work: _Work, keys: PartitionKeys, batch: Sequence[PlannedObject], due: _Due
) -> Iterator[tuple[PlannedObject, Outcome]]:
    chosen = [each for each in batch if each in due.objects]
    held = work.locked([keys.prefix + each.name for each in chosen]) if chosen else {}
    chosen = [each for each in chosen if keys.prefix + each.name not in held]
    deleted: set[str] = set()
    for group in (_logs(chosen, are_logs=True), _logs(chosen, are_logs=False)):
        outcomes = _delete(work.store, keys, group, work.found)
        yield from ((each, outcomes[each.name]) for each in group if each.name in outcomes)  # the next group can fail
        deleted |= outcomes.keys()
    for each in batch:
        if keys.prefix + each.name in held:
            yield each, Outcome.LOCKED
        elif each.name not in deleted:
            yield each, Outcome.LEFT if each.name in due.listed else Outcome.MISSING


def _logs(objects: Iterable[PlannedObject], *, are_logs: bool) -> list[PlannedObject]:
    return [each for each in objects if each.name.endswith(LOG_SUFFIX) is are_logs]


def _delete(
    store: ObjectStore, keys: PartitionKeys, objects: Sequence[PlannedObject], found: Deleted
) -> dict[str, Outcome]:
    if not objects:
        return {}
    etags = {keys.prefix + each.name: each.etag for each in objects}
    outcome = store.delete_matching(etags)
    found.errors += [f"{key}: {error}" for key, error in outcome.failed.items()][: max(0, 10 - len(found.errors))]
    by_key = {
        **dict.fromkeys(outcome.removed, Outcome.REMOVED),
        **dict.fromkeys(outcome.kept, Outcome.KEPT),
        **dict.fromkeys(outcome.failed, Outcome.FAILED),
    }
    return {key.removeprefix(keys.prefix): each for key, each in by_key.items()}


def void_plan(store: ObjectStore, cluster: ClusterKeys, run: RunObjects, now: int, reason: str) -> str:
    """Discard a damaged plan, and return what became of its objects; the next plan includes those that are left.

    If no deletion of it began, it can still be undone: its moves are objects of their own.

    Raises:
        OutcomeUnknown, StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    mark_void(store, run, now, reason)
    try:
        use = claim_of(store, cluster, run.run)
    except CorruptData:
        use = Use.DELETE  # it can have been
    if use is None:
        return "nothing of it was deleted, and tsctl gc undo shows again what it hid"
    found = Deleted(run.run)
    try:
        for line in read_log(store, run):
            if line["outcome"] == Outcome.REMOVED:
                found.objects[Outcome.REMOVED] += 1
                found.bytes += line["bytes"]
    except CorruptData as error:
        _finish(store, run, found, now)
        return f"its deletion had begun, and its log is damaged: {error}"
    _finish(store, run, found, now)
    removed = counted(found.objects[Outcome.REMOVED], "object")
    return f"its deletion had begun: by its log {removed} had been deleted, and the rest was not"


def _finish(store: ObjectStore, run: RunObjects, found: Deleted, now: int) -> None:
    counts = {str(outcome): count for outcome, count in found.objects.items()}
    mark_done(store, run, now, undone=found.undone, objects=counts, size=found.bytes)
    found.is_done = True
