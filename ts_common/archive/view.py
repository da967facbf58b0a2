"""The view of one partition (reading rule 1): the offsets from `log.start` to below the next offset.

A foreign commit has no list of epochs. The copies then give one: epochs never fall as offsets rise (reading rule 2).

Copies that end at or below the view's start are left out, and retention can remove them during a query. Only its
metadata shows the end of a copy, because leaders roll at different offsets. If the segment metadata cache lacks a copy,
its metadata is read from the object, which can be missing by then.

A restored partition has its older records in another directory (`ts_common.archive.former_places`). Each directory is
one part of the view, with epochs and gaps of its own: the log that a restore puts back has the leader epoch 0 again.

A live tail continues the view from the next offset on, if the caller of `open_view` reads it. There only entries count,
so segments and entries are planned apart.

The view of a partition without a commit is empty, because the end of its run is unknown. `PartitionView.state` is what
readers do about it (`ts_common.archive.commit_state`). The view of a commit without segments is a hole.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

from ts_common.archive.catalog import FormerPlace, PartitionCatalog, StoredSegment, read_catalog
from ts_common.archive.commit import Commit, ForeignCommit, Lineage
from ts_common.archive.commit_state import CommitState
from ts_common.archive.copies import NOTHING_KNOWN, SegmentCopy, describe
from ts_common.archive.epoch_history import NO_EPOCH, EpochHistory
from ts_common.archive.object_keys import OFFSET_DIGITS, PartitionKeys
from ts_common.archive.plan import Hole, ReadRange, replaced_by, unite, with_spares
from ts_common.archive.read_log import ReadLog
from ts_common.archive.restored import Ended
from ts_common.archive.sealed_objects import SealedObject
from ts_common.archive.sealed_ranges import Copies, Part, SealedRun, as_ranges, ending_above, listed_of
from ts_common.archive.tail_chain import Chain
from ts_common.archive.tail_logs import TailLogs, tail_ranges
from ts_common.errors import CorruptData, ObjectNotFound
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_common.wording import counted

_WAY_BACK: Final = "readers return none of its records; see '{}' in docs/repair.md"
_MISSING: Final = _WAY_BACK.format("A missing commit") + ": restart the leader's agent, which writes it again"
_GONE: Final = "{}: {} no longer exists; the view lacks its records below {}"
_TAIL_ATTEMPTS: Final = 3
_DAMAGED: Final = _WAY_BACK.format("Putting an object back")


@dataclass(frozen=True, slots=True)
class ViewPart:
    """The offsets `[start, end)` of a view that one directory has.

    Attributes:
        epochs: the epochs that decide which batches of its copies are live.
        gaps: its recorded gaps.
        replaced: stems of its damaged objects.
        ended: transactions that are open at its end, and that the restore ended.
        url: of another store that has it, and that is not read: its offsets are a hole. None for the same store.
    """

    keys: PartitionKeys
    start: int
    end: int
    epochs: EpochHistory
    gaps: tuple[tuple[int, int], ...]
    replaced: frozenset[str]
    ended: tuple[Ended, ...] = ()
    url: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionView:
    """The view of one partition.

    Attributes:
        start: first offset.
        end: the offset after the last; equal to `start` if the view is empty.
        epochs: the epochs that decide which batches are live, of the partition's own directory.
        copies: the segments that can cover offsets of the view; each ends above its start.
        gaps: recorded gaps `[from, to)` of the partition's own directory, ascending and disjoint.
        last_stable_offset: the commit's; None if the commit has no such offset.
        warning: a defect for the operator to repair; None without a defect.
        retired: the segments that end at or below the start; retention can remove them at any time.
        lineage: the commit's; None if it never went back.
        state: of the commit. If it is a loss, `warning` has the reason, and readers return none of the records.
        stored_end: the offset after the highest base of the stored segments: what is lost at least.
        floor: what is between it and the start is hidden, and can be shown again; None if that is unknown.
        former: the parts of the view in other directories, in order from `start` on; empty unless a restore put their
            records back.
        sealed: the sealed objects whose rows are in `copies` and `retired`, ascending.
        tail: what to read of the live tail, from the next offset to the end; empty if it was not read.
    """

    keys: PartitionKeys
    start: int
    end: int
    epochs: EpochHistory
    copies: Sequence[SegmentCopy]
    gaps: tuple[tuple[int, int], ...]
    last_stable_offset: int | None = None
    warning: str | None = None
    retired: Sequence[SegmentCopy] = ()
    lineage: Lineage | None = None
    state: CommitState = CommitState.COMMITTED
    stored_end: int = 0
    floor: int | None = None
    former: tuple[ViewPart, ...] = ()
    sealed: tuple[SealedObject, ...] = ()
    tail: tuple[ReadRange, ...] = ()

    @property
    def partition(self) -> TopicPartition:
        """The topic and partition."""
        return self.keys.partition

    @property
    def log(self) -> ReadLog:
        """The log that the partition's own directory shows. Nothing appends to a former one, so that never parts."""
        return ReadLog(self.epochs, self.lineage)

    @property
    def own(self) -> ViewPart:
        """The part in the partition's own directory."""
        start = self.former[-1].end if self.former else self.start
        # A damaged object can reach above the view's start though its good copy does not.
        listed = (*listed_of(self.copies), *listed_of(self.retired))
        replaced = replaced_by(copy for copy in listed if copy.keys == self.keys)
        return ViewPart(self.keys, start, self.end, self.epochs, self.gaps, replaced)

    @property
    def parts(self) -> tuple[ViewPart, ...]:
        """The parts of the view, in order of offsets."""
        return *self.former, self.own

    @property
    def ended(self) -> dict[int, tuple[Ended, ...]]:
        """The transactions that a restore ended, by the offset where the restored records end."""
        return {part.end: part.ended for part in self.former if part.ended}

    def elsewhere(self, offset: int) -> str | None:
        """Return why an offset is a hole if another store has it, as the end of a sentence; None for other offsets."""
        part = next((part for part in self.former if part.url is not None and part.start <= offset < part.end), None)
        if part is None:
            return None
        return (
            f"they are in {part.url}, and readers look in one store: read them there; or copy {part.keys.prefix} into "
            f"this store, and set the url in {self.keys.cluster.restored} to null"
        )

    def copies_of(self, part: ViewPart) -> tuple[SegmentCopy, ...]:
        """Return the copies of one part."""
        return tuple(copy for copy in self.copies if copy.keys == part.keys) if self.former else tuple(self.copies)

    def live_range(self, copy: SegmentCopy) -> tuple[int, int]:
        """Return the offsets `[start, end)` of a copy's live part; it ends where another directory's part begins."""
        begun = copy.base
        for part in self.former:
            if part.keys == copy.keys:
                return begun, min(part.epochs.live_end(copy.metadata.epochs or (), copy.base, copy.end), part.end)
            begun = max(copy.base, part.end)
        return begun, self.epochs.live_end(copy.metadata.epochs or (), copy.base, copy.end)

    @property
    def names_no_transactions(self) -> bool:
        """Whether no segment's metadata names a `.txnindex`, by its sealed objects; false without any."""
        listed = (*listed_of(self.copies), *listed_of(self.retired))
        return (
            bool(self.sealed)
            and not any(copy.metadata.rebuilt or copy.metadata.txnindex is not None for copy in listed)
            and all(sealed.states == {None} for sealed in self.sealed)
            and all(copy.packed is not None and copy.packed.aborted == () for part in self.tail for copy in part.copies)
        )

    def with_hidden(self, start: int) -> "PartitionView":
        """Return the view as it is if `log.start` is `start`, or as it is now if that is lower."""
        copies = tuple(sorted((*self.retired, *self.copies), key=lambda copy: copy.base))
        start = min(start, self.start)
        return replace(
            self,
            start=start,
            copies=tuple(copy for copy in copies if copy.end > start),
            retired=tuple(copy for copy in copies if copy.end <= start),
            sealed=(),
        )

    def plan(self, start: int, end: int) -> Sequence[ReadRange | Hole]:
        """Return what to read for `[start, end)`, in order; raise as `ts_common.archive.plan.unite`."""
        return as_ranges(self.runs(start, end))

    def ranges(self, start: int, end: int) -> Sequence[ReadRange]:
        """Return what `plan` returns, without holes."""
        return as_ranges([part for part in self.runs(start, end) if not isinstance(part, Hole)])

    def runs(self, start: int, end: int) -> Sequence[Part | Hole]:
        """Return what `plan` returns, but consecutive rows of a sealed object as one run."""
        closed_end = self.tail[0].start if self.tail else end
        tail = (
            replace(part, start=max(part.start, start), end=min(part.end, end))
            for part in self.tail
            if part.end > start and part.start < end
        )
        return [*self._closed_runs(start, min(end, closed_end)), *tail]

    def _closed_runs(self, start: int, end: int) -> Sequence[Part | Hole]:
        """Return what `runs` returns below the next offset."""
        steps: list[Part | Hole] = []
        for part in self.parts:
            is_own = part.keys == self.keys
            stop = end if is_own else min(end, part.end)
            reaching = _Reaching(listed_of(self.copies) if is_own and not self.former else self.copies_of(part))
            for sealed, first in ending_above(self.sealed, self.start) if is_own else ():
                if sealed.end <= max(start, self.start):
                    continue
                begin = sealed.columns["base"][first]
                if begin >= stop:
                    break
                if start < begin:
                    steps += unite(reaching.into(start, begin), part.epochs, start, begin, part.gaps, part.replaced)
                run = SealedRun(self.keys, sealed, max(start, begin), min(stop, sealed.end))
                steps.append(run)
                start = run.end
            steps += unite(reaching.into(start, stop), part.epochs, start, stop, part.gaps, part.replaced)
            start = max(start, stop)
        return steps

    @property
    def shows_doubt(self) -> bool:
        """Whether sealed objects do not show all that readers need of it (reading rule 10)."""
        listed = (*listed_of(self.copies), *listed_of(self.retired))
        bases = [int(stem[:OFFSET_DIGITS]) for stem in replaced_by(listed)]
        return (
            any(isinstance(step, Hole) for step in self.runs(self.start, self.end))
            or any(copy.may_overrun for copy in listed)
            or any(sealed.start <= base < sealed.end for sealed in self.sealed for base in bases)
        )

    def lowest_whole(self, end: int) -> int:
        """Return the lowest offset whose stored run has no hole below `end`; `end` without one.

        A recorded gap is no hole here. Hidden segments count too.

        Raises:
            CorruptData: as `plan`.
        """
        low = min((copy.base for copy in (*self.retired, *self.copies)), default=end)
        plan = self.with_hidden(low).plan(low, end) if low < end else ()
        return max((step.end for step in plan if isinstance(step, Hole) and not step.recorded), default=min(low, end))

    def with_spares(self, plan: Iterable[ReadRange]) -> Iterator[ReadRange]:
        """Yield the ranges of a plan, each with its spares; raise as `ts_common.archive.plan.with_spares`."""
        closed, tail = list[ReadRange](), list[ReadRange]()
        for each in plan:
            (closed if each.copies[0].packed is None else tail).append(each)
        for part in self.parts:
            mine = [each for each in closed if each.copies[0].keys == part.keys]
            yield from with_spares(mine, self.copies_of(part), part.epochs, part.replaced)
        yield from tail


class _Reaching:
    """The copies that can cover some offsets, for ranges of offsets in ascending order."""

    def __init__(self, copies: Sequence[SegmentCopy]) -> None:
        self._copies = sorted(copies, key=attrgetter("base"))
        self._ahead = 0  # index of the first copy that begins after the last range
        self._reaching: list[SegmentCopy] = []

    def into(self, start: int, end: int) -> Sequence[SegmentCopy]:
        """Return the copies that begin below the end of a range, and end above its start."""
        ahead = bisect_left(self._copies, end, self._ahead, key=attrgetter("base"))
        begun = (*self._reaching, *self._copies[self._ahead : ahead])
        self._reaching, self._ahead = [copy for copy in begun if copy.end > start], ahead
        return self._reaching


def open_view(
    store: ObjectStore,
    catalog: PartitionCatalog,
    known: Mapping[StoredSegment, SegmentCopy] = NOTHING_KNOWN,
    damaged: list[str] | None = None,
    tails: TailLogs | None = None,
) -> PartitionView:
    """Return the view of a snapshot; read the metadata of its segments, except of those in `known`.

    Args:
        known: as in `describe`.
        damaged: as in `describe`.
        tails: of the cluster, where the commit names a live tail; None to end the view at the next offset.

    Raises:
        CorruptData: a segment's metadata is damaged, or it does not begin with a batch.
        ObjectNotFound: retention removed a segment of the view since the snapshot.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    if tails is not None and isinstance(catalog.commit, Commit) and catalog.commit.live is not None:
        catalog, chain, why = _chain_of(store, catalog, tails)
        view = open_view(store, catalog, known, damaged)
        if chain is not None:
            return _continued(view, chain)
        return view if why is None else replace(view, warning="; ".join(filter(None, (view.warning, why))))
    view = _open_own(store, catalog, known, damaged)
    if catalog.sealed and view.shows_doubt:
        found = catalog.commit, catalog.commit_etag
        catalog = replace(read_catalog(store, catalog.keys, found), former=catalog.former)
        view = _open_own(store, catalog, known, damaged)
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


def _chain_of(
    store: ObjectStore, catalog: PartitionCatalog, tails: TailLogs
) -> tuple[PartitionCatalog, Chain | None, str | None]:
    """Return the snapshot and the chain of its tail, or the sentence about a damaged one; begin again without a pack.

    Raises:
        ObjectNotFound: packs were deleted in each attempt.
        NewerFormat: a later release wrote a pack.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    for attempt in range(_TAIL_ATTEMPTS):
        if not isinstance(catalog.commit, Commit) or catalog.commit.live is None:
            break
        try:
            return catalog, tails.chain(catalog.keys, catalog.commit), None
        except CorruptData as error:
            return catalog, None, f"{catalog.keys.partition}: the view ends at the next offset: {error}"
        except ObjectNotFound:
            if attempt + 1 == _TAIL_ATTEMPTS:
                raise
        catalog = replace(read_catalog(store, catalog.keys), former=catalog.former)
        tails = TailLogs(store, catalog.keys.cluster)
    return catalog, None, None


def _continued(view: PartitionView, chain: Chain) -> PartitionView:
    """Return a view with the live tail."""
    end, tail = max(view.start, chain.end), tail_ranges(view.keys, chain)
    return replace(view, end=end, epochs=chain.epochs, last_stable_offset=chain.stable, tail=tail)


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
