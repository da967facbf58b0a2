"""The survey: what is due in each partition of a store. It writes nothing, and a dry run ends after it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from ts_common.archive.commit import Lineage
from ts_common.archive.gc_plans import PlannedObject, PlannedPartition
from ts_common.archive.object_keys import PartitionKeys
from ts_common.store.contract import ObjectStore
from ts_reader.reading.parallel import stream_in_threads
from tsctl.gc.due import Limit
from tsctl.gc.examination import examine
from tsctl.gc.over import read_over
from tsctl.gc.retention import LeftOut, Retention, Skipped, TopicIncarnation

# Each thread has the listing of one partition in memory.
THREADS: Final = 4


@dataclass(frozen=True, slots=True)
class Candidate:
    """A partition with something to move or to delete.

    Attributes:
        keys: keys of the partition.
        start: its `log.start`.
        target: where `log.start` can move to.
        limit: what keeps the offsets from there on; None if nothing does.
        nonce: of the commit.
        lineage: of the commit and `log.start`.
        objects: number of objects that can then be deleted.
        bytes: of these objects.
        over: whether the incarnation is over, so that everything of it is due.
        former: its `log.start` before earlier runs that deleted nothing of it; None for `start`.
    """

    keys: PartitionKeys
    start: int
    target: int
    limit: Limit | None
    nonce: str
    lineage: Lineage | None
    objects: int
    bytes: int
    over: bool = False
    former: int | None = None

    def move(self, after: int, nonce: str, written_by: str | None) -> PlannedPartition:
        """Return the line of a plan for a move of `log.start` to `after`, with commit and writer that were read last.

        A plan never moves it down. `log.start` of an incarnation that is over can be above the commit's next offset.
        """
        directory, after = self.keys.incarnation, max(self.start, after)
        before = self.start if self.former is None else self.former
        return PlannedPartition(
            self.keys.partition, directory, before, after, nonce, self.lineage, written_by, self.over
        )


@dataclass(slots=True)
class Survey:
    """What a survey found.

    Attributes:
        candidates: the partitions with something to do.
        skipped: what was left out.
        partitions: number of partitions that were examined.
        waiting: number of partitions where a reader needs offsets that are due otherwise.
        objects: number of objects that can be deleted.
        bytes: of these objects.
        whole: bytes of all committed segments.
    """

    candidates: list[Candidate] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    partitions: int = 0
    waiting: int = 0
    objects: int = 0
    bytes: int = 0
    whole: int = 0


@dataclass(frozen=True, slots=True)
class _Result:
    keys: PartitionKeys
    skipped: Skipped | None = None
    candidate: Candidate | None = None
    objects: tuple[PlannedObject, ...] = ()
    whole: int | None = None  # None for a directory without a partition
    waits: bool = False


def survey(
    store: ObjectStore,
    incarnations: Iterable[TopicIncarnation],
    retention: Retention,
    now: int,
    *,
    advance: Callable[[], None] = lambda: None,
    show: Callable[[Candidate, tuple[PlannedObject, ...]], None] | None = None,
) -> Survey:
    """Return what is due in the partitions of incarnations.

    Args:
        store: of the partitions.
        incarnations: incarnations of topics.
        retention: what is due, and what stays.
        now: milliseconds since the epoch, by the clock of the store.
        advance: is called after each partition.
        show: is called with each candidate and its objects, in the order of the partitions; for a dry run.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    found = Survey()
    for result in _results(store, incarnations, retention, now, with_objects=show is not None):
        advance()
        if result.skipped is not None:
            found.skipped.append(result.skipped)
        if result.whole is None:
            continue
        found.partitions += 1
        found.whole += result.whole
        found.waiting += result.waits
        if result.candidate is not None:
            found.candidates.append(result.candidate)
            found.objects += result.candidate.objects
            found.bytes += result.candidate.bytes
            if show is not None:
                show(result.candidate, result.objects)
    return found


def _results(
    store: ObjectStore, incarnations: Iterable[TopicIncarnation], retention: Retention, now: int, *, with_objects: bool
) -> Iterator[_Result]:
    def look(task: tuple[PartitionKeys, bool]) -> _Result:
        keys, is_over = task
        try:
            result = _over(store, keys) if is_over else _due(store, keys, retention, now)
            if result.candidate is not None:
                retention.check_holds(keys.partition.topic)
        except LeftOut as left:
            return _Result(keys, Skipped.of(keys.directory, left))
        return result if with_objects else replace(result, objects=())

    return stream_in_threads(look, _tasks(incarnations, retention), most=THREADS)


def _tasks(incarnations: Iterable[TopicIncarnation], retention: Retention) -> Iterator[tuple[PartitionKeys, bool]]:
    """Yield each partition, and whether its incarnation is over; an earlier one that is not over yet stays."""
    for incarnation in incarnations:
        is_over = retention.is_over(incarnation)
        if is_over or incarnation.over_since is None:
            for keys in incarnation.partitions:
                yield keys, is_over


def _due(store: ObjectStore, keys: PartitionKeys, retention: Retention, now: int) -> _Result:
    rule = retention.rule(keys.partition.topic)
    examined = None if rule is None else examine(store, keys, rule, now, retention.needed(keys))
    if examined is None:
        return _Result(keys)
    waits = examined.found.limit is Limit.NEEDED
    objects = tuple(examined.removable(examined.target, now))
    start, target = examined.log_start.content.offset, examined.target
    if not objects and target == start:
        return _Result(keys, whole=examined.bytes, waits=waits)
    size = sum(each.size for each in objects)
    nonce, lineage = examined.commit.nonce, examined.commit.lineage
    candidate = Candidate(keys, start, target, examined.found.limit, nonce, lineage, len(objects), size)
    return _Result(keys, None, candidate, objects, examined.bytes, waits)


def _over(store: ObjectStore, keys: PartitionKeys) -> _Result:
    found = read_over(store, keys)
    if not found.objects:
        return _Result(keys)
    size = sum(each.size for each in found.objects)
    start = found.start
    end, nonce, lineage = start, "", None
    if found.commit is not None:
        end, nonce, lineage = found.commit.next_offset, found.commit.nonce, found.commit.lineage
    candidate = Candidate(keys, start, end, None, nonce, lineage, len(found.objects), size, over=True)
    return _Result(keys, None, candidate, found.objects, size)
