"""Answers requests to repair: puts good copies from the broker's files into the store (protocol rule 13).

Nothing is trusted but bytes. Every byte of an object that a request calls damaged is read. Its metadata, and the
indexes that this names, are compared with what the bytes prove. Every byte of an object that would make the repair
unnecessary is compared with the broker's file. Objects are only put where no object is. The commit and `log.start` are
read before and after: if the lineage changed meanwhile, a name may no longer be allowed, so the request gets no answer
and is handled again.
"""

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from ts_common.archive.cache_rewriting import rewrite_cache_objects
from ts_common.archive.catalog import PartitionCatalog, read_catalog
from ts_common.archive.commit import Commit
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.fetch import ResumableReader
from ts_common.archive.gap_records import merged
from ts_common.archive.metadata_check import metadata_differences, named_indexes
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys, SegmentName
from ts_common.archive.plan import Hole, ReadRange, replaced_by, unite
from ts_common.archive.repair_requests import Damage, Outcome, RepairAnswer, answer_key
from ts_common.archive.segment_metadata import SegmentMetadata, decode_metadata
from ts_common.archive.small_objects import read_index
from ts_common.archive.unsealing import unsealed
from ts_common.errors import CorruptData, NewerFormat, ObjectFrozen, ObjectNotFound, PreconditionFailed, SegmentChanged
from ts_common.log_format.index_files import TimeIndex
from ts_common.log_format.scan import scan_segment
from ts_common.store.contract import IfAbsent, ObjectStore
from ts_uploader.committing.gap_recording import describe_readable, still_missing
from ts_uploader.messages.results import FencedLeaderEpoch, Repaired
from ts_uploader.messages.tasks import Repair, Ship
from ts_uploader.process.progress import beat
from ts_uploader.shipping.uploader import PutBack, Uploader

_MILLISECONDS = 1000
_NEAREST = 8  # segments that begin below a range and may reach into it: two leaders' and their variants
_REASONS = 20  # ranges that the reason of an answer names


@dataclass(frozen=True, slots=True)
class _Found:
    """What became of a request.

    Attributes:
        put: names of the objects that were put now.
        others: names of those that were there.
    """

    outcome: Outcome
    reason: str
    put: tuple[SegmentName, ...] = ()
    others: tuple[SegmentName, ...] = ()


@dataclass(frozen=True, slots=True)
class _Lacking:
    """What the store lacks.

    Attributes:
        ranges: offsets `[from, to)`, ascending.
        damaged: the object that has them damaged; None without one.
    """

    ranges: tuple[tuple[int, int], ...]
    damaged: SegmentName | None


@dataclass(frozen=True, slots=True)
class _Ends:
    """Where a damaged object may end.

    Attributes:
        stated: by its metadata; None if that has no end above its base.
        found: the end of its last batch; 0 without one.
    """

    stated: int | None
    found: int


class Repairer:
    """Repairs ranges; thread-safe.

    Args:
        store_of: returns the store of a topic.
    """

    def __init__(
        self, keys: ClusterKeys, broker: int, store_of: Callable[[str], ObjectStore], uploader: Uploader
    ) -> None:
        self._keys = keys
        self._broker = broker
        self._store_of = store_of
        self._uploader = uploader

    def repair(self, task: Repair) -> Repaired:
        """Repair what a request names as far as this broker can, and write the answer.

        Raises:
            FencedLeaderEpoch: a commit of a later leader epoch exists.
            SegmentChanged: a file, the leadership or the lineage changed meanwhile: repeat it.
            CorruptData: as `Uploader.put_good_copy`.
            StoreUnavailable, OutcomeUnknown, LineageUnsettled, AccessDenied, BucketMissing: the store's.
        """
        store = self._store_of(task.partition.topic)
        keys, request = task.position.keys, task.request
        catalog = _catalog(store, task)
        try:
            found = self._found(store, task, catalog)
        except (ObjectFrozen, NewerFormat) as lasting:  # an operator decides about a thaw, or upgrades the agents
            found = _Found(Outcome.IMPOSSIBLE, str(lasting))
        if found.put or found.others:
            bases = {name.base for name in (*found.put, *found.others, *_damaged(task))}
            rewrite_cache_objects(store, keys, bases)
            if _catalog(store, task).log_start != catalog.log_start:
                raise SegmentChanged(f"{keys.log_start} moved while {keys.partition} was repaired")
        objects = tuple(keys.segment(name) for name in (*found.put, *found.others))
        answer = RepairAnswer(found.outcome, found.reason, objects, self._broker, int(time.time() * _MILLISECONDS))
        with suppress(PreconditionFailed):  # answered by another agent, which led at the same time
            store.put(answer_key(self._keys, request.id), answer.encode(), condition=IfAbsent())
        put = objects[: len(found.put)]
        return Repaired(task.partition, task.generation, task.leadership, request, found.outcome, found.reason, put)

    def _found(self, store: ObjectStore, task: Repair, catalog: PartitionCatalog) -> _Found:
        request, keys, position = task.request, task.position.keys, task.position
        if request.directory != keys.directory:
            return _Found(
                Outcome.IMPOSSIBLE, f"broker {self._broker} has the incarnation {keys.directory}, not that one"
            )
        log_start = catalog.log_start
        if log_start is None:  # below it, retention released the offsets
            raise SegmentChanged(f"{keys.log_start} is missing; the repair waits until this agent wrote it again")
        start, end = max(request.start, log_start), min(request.end, position.next_offset)
        if request.end <= log_start:
            return _Found(Outcome.NOTHING_TO_DO, f"log.start is {log_start}: retention released these offsets")
        if start >= end:
            return _Found(
                Outcome.NOTHING_TO_DO, f"the next offset is {position.next_offset}: the agent ships these offsets"
            )
        lacking = self._lacking(store, task, catalog, start, end)
        if isinstance(lacking, _Found):
            return lacking
        variants_below = max(log_start, position.lineage.highest if position.lineage is not None else 0)
        wanted = [
            replace(each, variants_below=variants_below)
            for each in task.segments
            if any(each.base < high and low < each.next_base for low, high in lacking.ranges)
        ]
        # Readers do not list sealed offsets, so what is put there must be unsealed before (protocol rule 16).
        bases = [*(each.base for each in wanted), *(name.base for name in _damaged(task)), start]
        until = max(end, *(each.next_base for each in wanted), *(base + 1 for base in bases))
        with unsealed(store, keys, f"{request.id}-{self._broker}", min(bases), until):
            return self._put(wanted, lacking, task.lowest)

    def _lacking(
        self, store: ObjectStore, task: Repair, catalog: PartitionCatalog, start: int, end: int
    ) -> _Lacking | _Found:
        """Return what the store lacks of `[start, end)`; a request cannot have more read than is damaged or missing."""
        request, keys = task.request, task.position.keys
        epochs = catalog.commit.epochs if isinstance(catalog.commit, Commit) else task.position.epochs
        name = request.segment_in(keys)
        is_there = name is not None and any(segment.name == name for segment in catalog.segments)
        if request.damage is Damage.DAMAGED and name is None:
            return _Found(Outcome.IMPOSSIBLE, "the request names no segment of this partition")
        if request.damage is Damage.DAMAGED and name is not None and is_there:
            return _lacking_of_damaged(store, catalog, epochs, name, (start, end))
        if request.damage is Damage.MISSING and name is not None and not is_there and start <= name.base < end:
            return _Lacking(((name.base, name.base + 1),), None)
        missing = still_missing(store, catalog, ((start, end),), epochs)
        if not missing:
            return _Found(Outcome.NOTHING_TO_DO, "the store has all of these offsets")
        return _Lacking(missing, None)

    def _put(self, segments: Sequence[Ship], lacking: _Lacking, lowest: int) -> _Found:
        """Put the good copies of segments, as far as the broker has them."""
        stem = lacking.damaged.stem if lacking.damaged else None
        done = [(segment, self._uploader.put_good_copy(segment, stem)) for segment in segments]
        put = tuple(back.name for _, back in done if back.name is not None and back.is_new)
        others = tuple(back.name for _, back in done if back.name is not None and not back.is_new)
        held = merged((segment.base, back.end) for segment, back in done if back.name is not None)
        left = [part for low, high in lacking.ranges for part in _without(low, high, held)]
        if not left:
            return _Found(Outcome.REPAIRED, "the store has the bytes of the leader's files", put, others)
        reasons = [f"offsets [{low}, {high}): {_why(low, high, lowest, done)}" for low, high in left[:_REASONS]]
        outcome = Outcome.IN_PART if held else Outcome.IMPOSSIBLE
        return _Found(outcome, "; ".join(reasons), put, others)


def _lacking_of_damaged(
    store: ObjectStore, catalog: PartitionCatalog, epochs: EpochHistory, name: SegmentName, offsets: tuple[int, int]
) -> _Lacking | _Found:
    """Return what cannot be read of a damaged object's part of `[start, end)`."""
    ends = _read_damaged(store, catalog, name)
    if isinstance(ends, str):
        return _Found(Outcome.NOTHING_TO_DO, ends)
    start, end = offsets
    low, high = max(start, name.base), end if ends.stated is None else min(end, ends.stated)
    if low >= high:
        return _Found(Outcome.NOTHING_TO_DO, "the object has none of these offsets")
    return _Lacking(_unread(store, catalog, epochs, name, (low, high), ends.found), name)


def _catalog(store: ObjectStore, task: Repair) -> PartitionCatalog:
    """Return a snapshot whose commit is of this leadership and of the position's lineage."""
    catalog = read_catalog(store, task.position.keys)
    commit = catalog.commit
    if catalog.damage is not None:
        raise CorruptData(catalog.damage)
    if not isinstance(commit, Commit):
        raise SegmentChanged(f"{task.position.keys.commit} is missing, or a Java uploader's")
    if commit.epoch > task.leadership.epoch:
        raise FencedLeaderEpoch(f"{task.position.keys.commit} has leader epoch {commit.epoch}")
    if commit.lineage != task.position.lineage:
        raise SegmentChanged(f"{task.position.keys.commit} has the lineage {commit.lineage}")
    return catalog


def _damaged(task: Repair) -> list[SegmentName]:
    name = task.request.segment_in(task.position.keys)
    return [] if name is None else [name]


def _read_damaged(store: ObjectStore, catalog: PartitionCatalog, name: SegmentName) -> _Ends | str:
    """Read an object that a request calls damaged; return why it needs no repair, else where it may end.

    It needs one if its metadata is not that of its bytes: readers skip records by timestamps and epochs, and by the
    indexes that the metadata names. If its epochs begin elsewhere, it can be another segment's. It also needs one if it
    was corrupt on the disk of its broker: another broker may have it whole.
    """
    key = catalog.keys.segment(name)
    metadata = scan = None
    indexes: dict[str, bytes] = {}
    with suppress(ObjectNotFound, CorruptData, SegmentChanged):
        info = store.head(key)
        metadata = decode_metadata(info.metadata, key)
        indexes = {} if metadata is None else _indexes(store, catalog.keys, name, metadata)
        times = indexes.get(".timeindex")
        with ResumableReader(store, key) as reader:
            scan = scan_segment(_Filling(reader), info.size, None if times is None else TimeIndex(name.base, times))
    found = 0 if scan is None or scan.end_offset is None else scan.end_offset
    if metadata is not None and scan is not None:
        is_whole = scan.crc32c == metadata.crc32c and not scan.corrupt_batches and not metadata.corruptions
        begin = (metadata.epochs or ((0, name.base),))[0][1]
        if is_whole and begin == name.base and not metadata_differences(scan, metadata, indexes):
            return "the object has the bytes that were shipped, and their metadata"
    stated = 0 if metadata is None else max(metadata.end, found)
    return _Ends(stated if stated > name.base else None, found)


def _indexes(store: ObjectStore, keys: PartitionKeys, name: SegmentName, metadata: SegmentMetadata) -> dict[str, bytes]:
    """Return the indexes that a segment's metadata names, by suffix, as far as they can be read."""
    read = {suffix: read_index(store, keys, name, suffix) for suffix in named_indexes(metadata)}
    return {suffix: data for suffix, data in read.items() if data is not None}


def _unread(
    store: ObjectStore,
    catalog: PartitionCatalog,
    epochs: EpochHistory,
    name: SegmentName,
    offsets: tuple[int, int],
    found: int,
) -> tuple[tuple[int, int], ...]:
    """Return which of `[low, high)` readers may have in a damaged object alone; at least the first offset.

    Its stated end may be the damage, and one far too great must not have each segment above put again. So the object
    counts up to the end of its last batch, and up to the next base of a living copy. Copies of other leaders can begin
    inside the object and end before it does: above that base, what no living copy covers is included.
    """
    low, high = offsets
    first = bisect_right(catalog.segments, low, key=lambda segment: segment.name.base)
    last = bisect_left(catalog.segments, high, key=lambda segment: segment.name.base)
    near = catalog.segments[max(0, first - _NEAREST) : last]
    copies = describe_readable(store, catalog, near)
    replaced = replaced_by(copies) | {name.stem}
    living = [copy for copy in copies if copy.segment.name.stem not in replaced]
    steps = unite(living, epochs, low, high)
    bases = (copy.base for step in steps if isinstance(step, ReadRange) for copy in step.copies)
    bound = min(high, max(found, min((base for base in bases if base > low), default=high)))
    holes = ((step.start, step.end) for step in steps if isinstance(step, Hole))
    return merged(((low, bound), *(hole for hole in holes if hole[1] > bound)))


class _Filling:
    """An object's reader for the scan; each piece is progress of the worker."""

    def __init__(self, reader: ResumableReader) -> None:
        self._reader = reader

    def readinto(self, buffer: memoryview, /) -> int:
        beat()
        return self._reader.readinto(buffer)


def _without(start: int, end: int, held: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the parts of `[start, end)` that no range contains; the ranges ascend and are disjoint."""
    lacking = []
    for low, high in held:
        if low >= end:
            break
        if low > start:
            lacking.append((start, low))
        start = max(start, high)
    if start < end:
        lacking.append((start, end))
    return lacking


def _why(low: int, high: int, lowest: int, done: Sequence[tuple[Ship, PutBack]]) -> str:
    if any(back.name is None and segment.base < high and low < back.end for segment, back in done):
        return "the leader's file is damaged too; let a replica lead whose file is not"
    if high <= lowest:
        return f"below the leader's log start ({lowest}), so no broker has them and nothing can be done"
    return "the leader's log does not have them, so nothing can be done"
