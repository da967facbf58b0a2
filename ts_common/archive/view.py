"""The view of one partition (reading rule 1): the offsets from `log.start` to below the next offset.

A foreign commit has no list of epochs. The copies then give one: epochs never fall as offsets rise (reading rule 2).

Copies that end at or below the view's start are left out, and retention can remove them during a query. Only its
metadata shows the end of a copy, because leaders roll at different offsets. If the segment metadata cache lacks a copy,
its metadata is read from the object, which can be missing by then.

A live tail continues the view from the next offset on, if the caller of `open_view` reads it.

The view of a partition without a commit is empty, because the end of its run is unknown. `PartitionView.state` is what
readers do about it (`ts_common.archive.commit_state`). The view of a commit without segments is a hole.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ts_common.archive.catalog import FormerPlace, PartitionCatalog, StoredSegment, read_catalog
from ts_common.archive.commit import Commit, ForeignCommit
from ts_common.archive.commit_state import CommitState
from ts_common.archive.copies import NOTHING_KNOWN, SegmentCopy, describe
from ts_common.archive.epoch_history import NO_EPOCH, EpochHistory
from ts_common.archive.erased_offsets import NOTHING_ERASED, ErasedOffsets, ErasedRun
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.partition_view import PartitionView, ViewPart
from ts_common.archive.plan import Hole, ReadRange, replaced_by, unite
from ts_common.archive.sealed_ranges import Copies, ending_above
from ts_common.archive.tail_chain import Chain
from ts_common.archive.tail_logs import TailLogs, tail_ranges
from ts_common.errors import CorruptData, ObjectNotFound
from ts_common.json_objects import MAX_INT64
from ts_common.store.contract import ObjectStore
from ts_common.wording import counted

_WAY_BACK: Final = "readers return none of its records; see '{}' in docs/repair.md"
_MISSING: Final = _WAY_BACK.format("A missing commit") + ": restart the leader's agent, which writes it again"
_GONE: Final = "{}: {} no longer exists; the view lacks its records below {}"
_DAMAGED: Final = _WAY_BACK.format("Putting an object back")


def open_view(
    store: ObjectStore,
    catalog: PartitionCatalog,
    known: Mapping[StoredSegment, SegmentCopy] = NOTHING_KNOWN,
    damaged: list[str] | None = None,
    tails: TailLogs | None = None,
    *,
    shows_records: bool = True,
) -> PartitionView:
    """Return the view of a snapshot; read the metadata of its segments, except of those in `known`.

    Args:
        known: as in `describe`.
        damaged: as in `describe`.
        tails: of the cluster, where the commit names a live tail; None to end the view at the next offset.
        shows_records: whether the caller returns records. Otherwise the view has no erased offsets, and a damaged list
            of them changes nothing.

    Raises:
        CorruptData: a segment's metadata is damaged, or it does not begin with a batch.
        NewerFormat: a later release wrote the list of erased offsets.
        ObjectNotFound: retention removed a segment of the view since the snapshot.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    if tails is not None and isinstance(catalog.commit, Commit) and catalog.commit.live is not None:
        catalog, chain, why = _chain_of(store, catalog, tails)
        view = open_view(store, catalog, known, damaged, shows_records=shows_records)
        if view.state.is_loss:
            return view
        if chain is not None:
            view = continued(view, chain)
        return view if why is None else replace(view, warning="; ".join(filter(None, (view.warning, why))))
    try:
        erased = catalog.read_erased(store) if shows_records else NOTHING_ERASED
        formerly = [place.catalog.read_erased(store) if shows_records else erased for place in catalog.former]
    except CorruptData as error:  # no record can be shown then
        return _open_own(store, replace(catalog, commit=None, damage=str(error)), known, damaged)
    view = _open_own(store, catalog, known, damaged)
    if catalog.sealed and view.shows_doubt:
        found = catalog.commit, catalog.commit_etag
        catalog = replace(read_catalog(store, catalog.keys, found), former=catalog.former)
        view = _open_own(store, catalog, known, damaged)
    if erased or any(formerly):
        view = replace(view, erased=_joined(catalog.former, formerly, erased), lists=tuple(_lists(catalog)))
    if not catalog.former or view.state.is_loss:
        return view
    if view.sealed:
        view = view.with_hidden(view.start)
    parts: list[ViewPart] = []
    copies: list[SegmentCopy] = []
    for place in catalog.former:
        if place.start == place.end:
            gone = _GONE.format(catalog.keys.partition, place.catalog.keys.prefix, place.end)
            view = replace(view, warning=gone)
            continue
        part, described = _open_former(store, place, known, damaged)
        parts.append(part)
        copies += described
    start = parts[0].start if parts else view.start
    return replace(view, start=start, copies=(*copies, *view.copies), former=tuple(parts))


def _joined(places: Iterable[FormerPlace], formerly: Iterable[ErasedOffsets], own: ErasedOffsets) -> ErasedOffsets:
    """Return the erased offsets of a view: those of each directory between the places before and behind it."""
    runs, start = list[ErasedRun](), 0
    for place, erased in zip(places, formerly, strict=True):
        runs += erased.between(start, place.end)
        start = place.end
    return ErasedOffsets.ascending([*runs, *own.between(start, MAX_INT64)])


def _lists(catalog: PartitionCatalog) -> Iterator[tuple[str, int]]:
    """Yield the name and the number of the list of each directory of a view."""
    for each in (*(place.catalog for place in catalog.former), catalog):
        if each.erased_number:
            yield each.keys.name_in(catalog.keys.cluster), each.erased_number


def _chain_of(
    store: ObjectStore, catalog: PartitionCatalog, tails: TailLogs
) -> tuple[PartitionCatalog, Chain | None, str | None]:
    """Return the snapshot, the chain of its tail, and the sentence about damage; as `TailLogs.continuing`."""

    def again() -> Commit | ForeignCommit | None:
        nonlocal catalog
        catalog = replace(read_catalog(store, catalog.keys), former=catalog.former)
        return catalog.commit

    chain, why = tails.continuing(catalog.keys, catalog.commit, again)
    return catalog, chain, why


def continued(view: PartitionView, chain: Chain) -> PartitionView:
    """Return a view of closed segments with the live tail."""
    end, tail = max(view.start, chain.end), tail_ranges(view.keys, chain)
    return replace(view, end=end, epochs=chain.epochs, last_stable_offset=chain.stable, tail=tail, fresh=chain.time)


def _open_former(
    store: ObjectStore,
    place: FormerPlace,
    known: Mapping[StoredSegment, SegmentCopy],
    damaged: list[str] | None,
) -> tuple[ViewPart, tuple[SegmentCopy, ...]]:
    """Return the part of a view that a former directory has, with its copies; raise as `open_view`."""
    catalog, start, end = place.catalog, place.start, place.end
    removed: list[StoredSegment] = []
    segments = [segment for segment in catalog.segments if segment.name.base < end]
    described = describe(store, catalog.keys, segments, catalog.cache_objects, known, damaged, removed)
    epochs = (place.epochs if place.epochs.pairs else living_line(described)).below(end)
    copies = tuple(copy for copy in described if copy.end > start)
    _check_removed(store, catalog.keys, removed, start, unite(copies, epochs, start, end) if removed else ())
    return ViewPart(
        catalog.keys, start, end, epochs, catalog.gaps, replaced_by(described), place.ended, place.url
    ), copies


def _open_own(
    store: ObjectStore,
    catalog: PartitionCatalog,
    known: Mapping[StoredSegment, SegmentCopy],
    damaged: list[str] | None,
) -> PartitionView:
    """Return the view of a snapshot without its former places; as `open_view`."""
    keys, start = catalog.keys, catalog.start or 0
    if catalog.commit is None:
        state = catalog.commit_state(store.current_time())
        stored_end = catalog.segments[-1].name.base + 1 if catalog.segments else start
        why = without_commit(catalog, state)
        view = PartitionView(keys, start, start, EpochHistory(), (), (), warning=why)
        return replace(view, state=state, stored_end=stored_end)
    removed: list[StoredSegment] = []
    described = describe(store, keys, catalog.committed, catalog.cache_objects, known, damaged, removed)
    copies: Sequence[SegmentCopy] = tuple(copy for copy in described if copy.end > start)
    stable = lineage = None
    if isinstance(catalog.commit, Commit):
        lineage = catalog.commit.lineage
        stable = catalog.commit.last_stable_offset
        end, epochs = catalog.commit.next_offset, catalog.commit.epochs
    else:
        epochs = living_line(described)
        end = _foreign_end(catalog.commit, epochs, copies)
    _check_removed(store, keys, removed, start, unite(copies, epochs, start, end, catalog.gaps) if removed else ())
    if not catalog.segments and catalog.log_start is None:
        # Without segments and `log.start`, only the commit has the beginning of the archive.
        start = epochs.pairs[0][1] if epochs.pairs else catalog.commit.highest_base
    retired: Sequence[SegmentCopy] = tuple(copy for copy in described if copy.end <= start)
    floor = None if catalog.stored_log_start is None else catalog.stored_log_start.content.floor
    if catalog.sealed:
        rows = [(sealed, first, len(sealed)) for sealed, first in ending_above(catalog.sealed, start)]
        copies = Copies(keys, copies, [(sealed, range(first, count)) for sealed, first, count in rows])
        retired = Copies(keys, retired, [(sealed, range(first)) for sealed, first, _ in rows])
    return PartitionView(
        keys,
        start,
        max(start, end),
        epochs,
        copies,
        catalog.gaps,
        stable,
        _warning(catalog),
        retired,
        lineage,
        floor=floor,
        sealed=catalog.sealed,
    )


def _warning(catalog: PartitionCatalog) -> str | None:
    """Return a sentence if `log.start` is missing; None if it is there, or a Java uploader wrote none."""
    if catalog.log_start is not None or not catalog.segments or not isinstance(catalog.commit, Commit):
        return None
    # Agents write `log.start` before the first commit, and again when they next read the position.
    keys = catalog.keys
    return f"{keys.partition}: {keys.log_start} is missing; the view begins at the first stored segment"


def _foreign_end(commit: ForeignCommit, epochs: EpochHistory, copies: Iterable[SegmentCopy]) -> int:
    """Return the end of a foreign commit's view: it names a segment but no end.

    If that segment is missing, at least its base is in the view.
    """
    ends = (epochs.live_end(copy.metadata.epochs or (), copy.base, copy.end) for copy in copies)
    return max([commit.highest_base + 1, *ends])


def without_commit(catalog: PartitionCatalog, state: CommitState) -> str | None:
    """Return the sentence about a partition in a state of its commit; None if there is nothing to report."""
    keys = catalog.keys
    held = counted(len(catalog.segments), "segment")
    if catalog.segments:
        held += f" from offset {catalog.segments[0].name.base} on"
    match state:
        case CommitState.BEGINNING:
            return (
                f"{keys.partition}: {state}: {held} and no {keys.commit} yet; its first upload may be under way; "
                "readers return none of its records"
            )
        case CommitState.MISSING:
            return f"{keys.partition}: {state}: {held} and no {keys.commit}; {_MISSING}"
        case CommitState.DAMAGED:
            return f"{keys.partition}: {state}: {held}, and {catalog.damage}; {_DAMAGED}"
    return None


def _check_removed(
    store: ObjectStore,
    keys: PartitionKeys,
    removed: Iterable[StoredSegment],
    start: int,
    plan: Iterable[ReadRange | Hole],
) -> None:
    """Accept segments that were removed after the listing, if they ended at or below the view's start.

    The end of a removed segment is unknown. Retention removes only segments that end at or below the start. So a base
    below the start suffices, if the plan has no hole without a record.

    Raises:
        ObjectNotFound: a removed segment belongs to the view.
    """
    has_hole = any(isinstance(step, Hole) and not step.recorded for step in plan)
    for segment in removed:
        if segment.name.base >= start or has_hole:
            raise ObjectNotFound(
                f"{keys.segment(segment.name)} in {store.location}: removed after it was listed (retention?), and the "
                f"view begins at {start}; run the query again"
            )


def living_line(copies: Iterable[SegmentCopy], most: int | None = None) -> EpochHistory:
    """Return the epochs by the copies alone: for each offset, the highest that begins at or below it in any copy.

    Batches of an epoch are live from its first batch in any copy up to the first batch of any higher epoch. An epoch
    that begins at or above the start of a higher one has no live batch, because epochs never fall (reading rule 2).

    Args:
        most: the highest epoch that can be live; None for no limit.
    """
    begins: dict[int, int] = {}
    for copy in copies:
        for epoch, first in copy.metadata.epochs or ():
            if epoch != NO_EPOCH and (most is None or epoch <= most):
                begins[epoch] = min(first, begins.get(epoch, first))
    pairs: list[tuple[int, int]] = []
    for epoch, first in sorted(begins.items(), reverse=True):
        if not pairs or first < pairs[-1][1]:
            pairs.append((epoch, first))
    return EpochHistory(tuple(reversed(pairs)))
