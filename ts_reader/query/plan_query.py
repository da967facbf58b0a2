"""The planner: from a query to topics, views, offsets, ranges and splits. It decodes nothing but timestamps.

All offsets of the query that are lost are one `DataLoss`, or warnings if the query allows loss. Offsets that compaction
removed are not lost, nor are offsets that filters exclude.
"""

import gc
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from ts_common.archive.catalog import PartitionCatalog
from ts_common.archive.commit import Commit
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import ReadRange
from ts_common.archive.sealed_ranges import SealedRun, parts_of
from ts_common.archive.tail_logs import TailLogs
from ts_common.archive.view import open_view
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_common.store.shared_stores import shared_store
from ts_reader.find.rules import Found, Window, together
from ts_reader.query.bounds import Loss, check_losses, check_named_partitions, loss_of
from ts_reader.query.cut import NOTHING_HIDDEN, other_catalogs, plan_cut, read_all_ends
from ts_reader.query.filters import EVERYTHING, QueryFilters
from ts_reader.query.frozen import check_thawed
from ts_reader.query.plan_partition import PartitionPlan, plan_partition
from ts_reader.query.query import Edge, Query, View, by_location, lowest_read, settled
from ts_reader.query.splits import PartitionRanges, Split, bytes_of, make_splits, whole_partitions
from ts_reader.query.subscription import find_topics, where
from ts_reader.reading.parallel import in_threads
from ts_reader.reading.topics import Topic, nothing_expected

if TYPE_CHECKING:
    from ts_reader.find.lookup import Indexes

# New objects before a collection of the youngest generation, and collections of it before one of the older generations.
# The SDK's cycles, some kilobytes for each request, are still collected.
_THRESHOLDS: Final = (20_000, 50, 50)


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """What a query reads, with its warnings.

    Attributes:
        splits: by topic, partition and offset.
        warnings: one sentence each.
        losses: offsets that the query lost, and is allowed to lose.
        segments: the number of `.log` objects to read, and of entries of live tails.
        all_segments: the number of committed `.log` objects of the topics, and of the entries of their tails.
        bytes: the number of bytes to read at most.
        all_bytes: the bytes of all of these.
        found: what the indexes of keys had; None for a query without keys.
    """

    splits: tuple[Split, ...]
    warnings: tuple[str, ...]
    losses: tuple[Loss, ...]
    segments: int
    all_segments: int
    bytes: int
    all_bytes: int
    found: Found | None = None


def plan_everywhere(query: Query, filters: QueryFilters = EVERYTHING) -> QueryPlan:
    """Plan a query in each of its locations.

    Raises:
        TieredStorageError: as `plan_query`, of the first location that fails.
    """
    plans = [plan_query(shared_store(part.location, part.connection), part, filters) for part in by_location(query)]
    return QueryPlan(
        splits=tuple(split for plan in plans for split in plan.splits),
        warnings=tuple(warning for plan in plans for warning in plan.warnings),
        losses=tuple(loss for plan in plans for loss in plan.losses),
        segments=sum(plan.segments for plan in plans),
        all_segments=sum(plan.all_segments for plan in plans),
        bytes=sum(plan.bytes for plan in plans),
        all_bytes=sum(plan.all_bytes for plan in plans),
        found=together([plan.found for plan in plans if plan.found is not None]),
    )


def plan_query(store: ObjectStore, query: Query, filters: QueryFilters = EVERYTHING) -> QueryPlan:
    """Plan a query on the store's current objects.

    Raises:
        QueryError: the store does not hold a topic, a partition or offsets of the query.
        DataLoss: offsets of the query are lost, and it fails on data loss.
        CorruptData, NewerFormat: an object is damaged, or a later release wrote it.
        ObjectNotFound: retention deleted an object while the planner read it.
        ObjectFrozen: segments of the query are in an archive class; the message has the command that thaws them.
        StoreUnavailable, AccessDenied, BucketMissing: from the store.
    """
    with collecting_less():
        return _plan(store, settled(store, query), filters)


@contextmanager
def collecting_less() -> Iterator[None]:
    """Exclude existing objects from collection and collect new ones rarely; restore both settings at the end.

    A plan of 100,000 segments has a few million objects, and none of them is garbage. Python's collector scans them
    again and again, with all loaded modules (pyarrow, PySpark). That is a quarter of the time of planning.
    """
    _COLLECTOR.begin()
    try:
        yield
    finally:
        _COLLECTOR.end()


class _Collector:
    """Python's collector, whose settings the first plan of a process changes, and the last one at work restores."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the rest
        self._plans = 0
        self._thresholds = (0, 0, 0)
        # Whether a host application froze objects. Counting them costs milliseconds, so it happens once.
        self._others_froze = False

    def begin(self) -> None:
        """Change the settings, unless another plan is at work."""
        with self._lock:
            self._plans += 1
            if self._plans == 1:
                self._thresholds = gc.get_threshold()
                self._others_froze = self._others_froze or gc.get_freeze_count() > 0
                if not self._others_froze:
                    gc.freeze()
                gc.set_threshold(*_THRESHOLDS)

    def end(self) -> None:
        """Restore the settings, unless another plan is at work."""
        with self._lock:
            self._plans -= 1
            if self._plans == 0:
                gc.set_threshold(*self._thresholds)
                if not self._others_froze:
                    gc.unfreeze()


_COLLECTOR: Final = _Collector()


def _plan(store: ObjectStore, query: Query, filters: QueryFilters) -> QueryPlan:
    ends = () if query.cut is None else read_all_ends(store, query)
    if filters.keys is not None:
        keys = filters.keys if query.key_equals is None else filters.keys & query.key_equals
        query = replace(query, key_equals=keys)
    indexes = None if query.key_equals is None else _indexes_of(store)
    expected = nothing_expected if indexes is None or not _has_all_offsets(query) else indexes.expected_commits
    # A tolerant query reads every copy, and a cut looks for the times of shipping in each.
    topics = find_topics(store, query, seals=query.tolerance.fails and query.cut is None, expected=expected)
    check_named_partitions(query, topics)
    if query.view is View.LATEST:  # filters of records apply after the newest record of each key is found
        filters = filters.of_partitions
    found = [catalog for topic in topics for catalog in topic.partitions]
    damaged: list[str] | None = None if query.tolerance.fails else []
    tails = tails_of(store, query)  # the commits were read before

    def opened(catalogs: Sequence[PartitionCatalog]) -> list[PartitionView]:
        return in_threads(
            lambda catalog: open_view(store, _needed(catalog, query), damaged=damaged, tails=tails),
            catalogs,
            step="metadata of segments",
        )

    wanted = [catalog for catalog in found if filters.has(catalog.keys.partition)]
    lookup = None
    if query.key_equals is not None:
        from ts_reader.find.lookup import KeyLookup  # noqa: PLC0415  (pyarrow, only for keys)

        parts = (part for catalog in wanted for part in (catalog, *(place.catalog for place in catalog.former)))
        lookup = KeyLookup(store, [part.keys for part in parts], query.key_equals, indexes)
        if _has_all_offsets(query):
            wanted = lookup.not_left_out(wanted, tails=query.tail)
    views = opened(wanted)
    cut, beside = NOTHING_HIDDEN, list[PartitionView]()
    if query.cut is not None:
        others, more = other_catalogs(store, query, query.cut, {view.partition for view in views})
        beside = opened(more)
        cut = plan_cut(store, query, query.cut, (*topics, *others), [*views, *beside], ends, filters)
    found_keys, windows = None, dict[TopicPartition, tuple[Window, ...]]()
    if lookup is not None:
        found_keys, windows = lookup.windows(views)

    def plan_of(view: PartitionView) -> PartitionPlan:
        hidden = cut.hidden.get(view.partition, ())
        return plan_partition(store, view, query, filters, hidden, windows.get(view.partition))

    plans = in_threads(
        plan_of,
        views,
        step="offsets",
    )
    # Without the commit of another partition, the transactions of the cut are unknown.
    losses = [*chain.from_iterable(plan.losses for plan in plans), *filter(None, map(loss_of, beside))]
    check_losses(losses, query)
    has_end = query.end is not Edge.LATEST or query.cut is not None
    splits = splits_of(store, [plan.read for plan in plans], query, ends_at_damage=not has_end)
    warnings = (*_warnings(query, topics, views), *sorted(damaged or ()), *cut.warnings)
    return replace(_total(plans, splits, warnings, losses, found), found=found_keys)


def _indexes_of(store: ObjectStore) -> "Indexes":
    from ts_reader.find.lookup import Indexes  # noqa: PLC0415  (pyarrow, only for keys)

    return Indexes(store)


def _needed(catalog: PartitionCatalog, query: Query) -> PartitionCatalog:
    """Return a snapshot without the segments, if the query begins in the live tail: there only entries count."""
    lowest, commit = lowest_read(query, catalog.keys.partition), catalog.commit
    if not query.tail or lowest is None or not isinstance(commit, Commit) or commit.live is None:
        return catalog
    if lowest < commit.next_offset or catalog.log_start is None:
        return catalog
    return replace(catalog, segments=(), cache_objects=(), sealed=())


def _has_all_offsets(query: Query) -> bool:
    """Return whether a query has no bound or cut to check in each partition, and reports no damage."""
    is_whole = query.start is Edge.EARLIEST and query.end is Edge.LATEST
    return is_whole and query.tolerance.fails and query.cut is None


def tails_of(store: ObjectStore, query: Query, known: TailLogs | None = None) -> TailLogs | None:
    """Return the live tails that a query reads, to be made after it has read its commits; None if it reads none.

    Args:
        known: as of `TailLogs`.
    """
    return TailLogs(store, query.keys, known) if query.tail else None


def _warnings(query: Query, topics: Sequence[Topic], views: Sequence[PartitionView]) -> Iterator[str]:
    if not topics:
        pattern, option = query.subscription.pattern, query.wording.sign("pattern")
        yield f"{option}{'' if pattern is None else pattern.pattern}: no topic of {where(query)} matches"
    yield from (view.warning for view in views if view.warning and not view.state.is_loss)


def _total(
    plans: Sequence[PartitionPlan],
    splits: tuple[Split, ...],
    warnings: tuple[str, ...],
    losses: Sequence[Loss],
    found: Sequence[PartitionCatalog],
) -> QueryPlan:
    parts = [part for plan in plans for part in parts_of(plan.read.ranges)]
    runs = [part for part in parts if isinstance(part, SealedRun)]
    totals = [catalog.totals for catalog in found]
    copies = {copy.key for part in parts if isinstance(part, ReadRange) for copy in part.copies}
    tails = [copy.segment for plan in plans for part in plan.view.tail for copy in part.copies]
    return QueryPlan(
        splits,
        warnings,
        tuple(losses),
        segments=len(copies) + sum(map(len, runs)),
        all_segments=sum(segments for segments, _ in totals) + len(tails),
        bytes=sum(sum(part.sizes) if isinstance(part, SealedRun) else bytes_of(part) for part in parts),
        all_bytes=sum(size for _, size in totals) + sum(segment.size for segment in tails),
    )


def splits_of(
    store: ObjectStore, partitions: Sequence[PartitionRanges], query: Query, *, ends_at_damage: bool = False
) -> tuple[Split, ...]:
    """Return the splits of a query.

    Args:
        ends_at_damage: as of `Split`.

    Raises:
        ObjectFrozen: segments must be thawed first; as `plan_query`.
        StoreUnavailable, AccessDenied: from reading indexes of segments that are cut.
    """
    parts = (part for partition in partitions for part in parts_of(partition.ranges))
    check_thawed(store, [part for part in parts if isinstance(part, ReadRange)], query.incarnation)
    if query.view is View.LATEST:
        splits = whole_partitions(store, partitions, query.tolerance)
    else:
        splits = make_splits(store, partitions, query.limits, query.tolerance)
    way_out = query.wording.despite_corruption
    until = None if query.cut is None else query.cut.milliseconds
    scan = token_hex(4)
    return tuple(
        replace(
            split,
            connection=query.connection,
            limit=query.limit,
            way_out=way_out,
            until=until,
            scan=scan,
            ends_at_damage=ends_at_damage,
            key_equals=query.key_equals,
        )
        for split in splits
    )
