"""The value of a view: what a reader returns of one partition, and how its offsets are planned (reading rule 1).

`ts_common.archive.view` opens it. A restored partition has its older records in another directory
(`ts_common.archive.former_places`). Each directory is one part of the view, with epochs and gaps of its own: the log
that a restore puts back has the leader epoch 0 again.

A live tail continues the view from the next offset on. There only entries count, so segments and entries are planned
apart.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from ts_common.archive.commit import Lineage
from ts_common.archive.commit_state import CommitState
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.erased_offsets import NOTHING_ERASED, ErasedOffsets
from ts_common.archive.object_keys import OFFSET_DIGITS, PartitionKeys
from ts_common.archive.plan import Hole, ReadRange, replaced_by, unite, with_spares
from ts_common.archive.read_log import ReadLog
from ts_common.archive.restored import Ended
from ts_common.archive.sealed_objects import SealedObject
from ts_common.archive.sealed_ranges import Part, SealedRun, as_ranges, ending_above, listed_of
from ts_common.model import TopicPartition


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
        fresh: when the leader's agent requested the high watermarks of its newest pack, ms since the epoch: the view
            has what was acknowledged before, as far as that agent could ship it. None without a live tail.
        erased: the erased offsets of all its parts, from each directory's own list; also those that are hidden, and
            those from the next offset on.
        lists: the name of each directory with a list of erased offsets, and the number of the list: that of the
            directory, or its path if it is of another cluster.
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
    fresh: int | None = None
    erased: ErasedOffsets = NOTHING_ERASED
    lists: tuple[tuple[str, int], ...] = ()

    @property
    def partition(self) -> TopicPartition:
        """The topic and partition."""
        return self.keys.partition

    @property
    def closed_end(self) -> int:
        """Where closed segments end: the next offset."""
        return self.tail[0].start if self.tail else self.end

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
        tail = (
            replace(part, start=max(part.start, start), end=min(part.end, end))
            for part in self.tail
            if part.end > start and part.start < end
        )
        return [*self._closed_runs(start, min(end, self.closed_end) if self.tail else end), *tail]

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
            or self.sparse_end > min((sealed.end for sealed in self.sealed), default=self.end)
            or any(copy.may_overrun for copy in listed)
            or any(sealed.start <= base < sealed.end for sealed in self.sealed for base in bases)
        )

    @property
    def sparse_end(self) -> int:
        """The end of the last range below the next offset where another copy may have more records; 0 without one."""
        steps = (step for step in self._closed_runs(self.start, self.closed_end) if isinstance(step, ReadRange))
        return max((step.end for step in steps if not step.copies[0].dense), default=0)

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
            (tail if each.is_tail else closed).append(each)
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
