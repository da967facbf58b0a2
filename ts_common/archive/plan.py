"""The plan of a read: which copies of a partition to read for which offsets, each offset once, in order.

Two leaders can roll their segments at different offsets, so copies overlap. One can be compacted further than the
other. The view is their union (reading rules 2 and 5). If one copy has every offset of a range, it is read alone.
Otherwise all copies of the range are read and merged. A range that no copy covers is a hole.

A repair leaves the damaged object where it is, and puts good copies next to it that name it (`ts-replaces`). A copy
that another one names is read only where no other copy is. Names of objects alone cannot give this order: the leader's
segments may begin elsewhere than the damaged one, reach less far, or lack records that compaction removed since.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple

from ts_common.archive.copies import SegmentCopy
from ts_common.archive.epoch_history import EpochHistory
from ts_common.errors import CorruptData
from ts_common.wording import counted

# Each election can add one copy of the same offsets. The work grows with the square of the number of copies.
MAX_COPIES: Final = 1000
MEAN_COPIES: Final = 100


@dataclass(frozen=True, slots=True)
class ReadRange:
    """Offsets `[start, end)` that one or several copies cover; the union of several is read.

    Attributes:
        start: first offset.
        end: the offset after the last.
        copies: the copies to read.
        spares: parts of the range in other live copies, one copy each; read if `copies` are damaged.
        before: the copy in front of `copies`, if its records can reach into the range (`SegmentCopy.may_overrun`):
            they are rows of the range, and hide its records with lower offsets; None for nearly every range.
    """

    start: int
    end: int
    copies: tuple[SegmentCopy, ...]
    spares: tuple["ReadRange", ...] = ()
    before: SegmentCopy | None = None

    @property
    def is_tail(self) -> bool:
        """Whether an entry of a live tail has it."""
        return self.copies[0].packed is not None


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets `[start, end)` below the next offset that no copy covers: data loss.

    Attributes:
        recorded: whether a gap record has the reason.
    """

    start: int
    end: int
    recorded: bool


def unite(
    copies: Sequence[SegmentCopy],
    epochs: EpochHistory,
    start: int,
    end: int,
    gaps: Iterable[tuple[int, int]] = (),
    replaced: frozenset[str] | None = None,
) -> list[ReadRange | Hole]:
    """Divide `[start, end)` into ranges to read and holes, in order and without overlap.

    Args:
        copies: copies of one partition, in any order.
        epochs: the commit's epochs, which end the live part of each copy.
        start: first offset.
        end: the offset after the last.
        gaps: recorded gaps `[from, to)`, ascending and disjoint.
        replaced: stems of damaged objects; None for those that the copies name.

    Raises:
        CorruptData: more than `MAX_COPIES` copies cover one offset, or the copies overlap more than `_Work` allows.
    """
    gaps = tuple(gaps)
    plan: list[ReadRange | Hole] = []
    alive = _Alive(copies, epochs, replaced)
    work = _Work(copies)
    overrunning = sorted(alive.overrunning(), key=lambda copy: (copy.end, copy.segment.name.rank), reverse=True)
    position = start
    while position < end:
        active = alive.at(position)
        following = alive.following(end)
        if not active:
            plan += _holes(position, following, gaps)
            position = following
            continue
        active = _unreplaced(active)
        dense = [entry for entry in active if entry.copy.dense]
        if dense:
            best = max(dense, key=lambda entry: (entry.end, entry.copy.segment.name.rank))
            stop = min(best.end, following) if best.replaced else best.end
            chosen: tuple[SegmentCopy, ...] = (best.copy,)
        else:
            stop = min(*(entry.end for entry in active), following)
            chosen = tuple(entry.copy for entry in active)
        stop = min(stop, end)
        work.add(len(chosen))
        before = _before(position, chosen, overrunning) if overrunning else None
        plan.append(ReadRange(position, stop, chosen, before=before))
        position = stop
    return plan


def _before(position: int, chosen: Sequence[SegmentCopy], overrunning: Sequence[SegmentCopy]) -> SegmentCopy | None:
    """Return the overrunning copy that ends last between the first base of the chosen copies and a position.

    Args:
        position: of the range.
        chosen: its copies.
        overrunning: the copy that ends last is the first one.
    """
    base = min(copy.base for copy in chosen)
    first = bisect_left(overrunning, -position, key=lambda copy: -copy.end)
    near = takewhile(lambda copy: copy.end >= base, islice(overrunning, first, None))
    return next((copy for copy in near if copy.base < base), None)


def with_spares(
    plan: Iterable[ReadRange],
    copies: Sequence[SegmentCopy],
    epochs: EpochHistory,
    replaced: frozenset[str] | None = None,
) -> Iterator[ReadRange]:
    """Yield the ranges of a plan, each with its spares: the other copies of the same offsets.

    Args:
        plan: ranges, ascending.
        copies: all copies of the partition.
        epochs: the epochs that the plan was made with.
        replaced: as in `unite`.

    Raises:
        CorruptData: as in `unite`.
    """
    alive = _Alive(copies, epochs, replaced)
    work = _Work(copies)
    for part in plan:
        own = {copy.key for copy in part.copies}
        others = [entry for entry in (*alive.at(part.start), *alive.below(part.end)) if entry.copy.key not in own]
        others.sort(key=attrgetter("replaced"))
        spares = tuple(
            ReadRange(max(entry.start, part.start), min(entry.end, part.end), (entry.copy,)) for entry in others
        )
        work.add(len(spares))
        yield replace(part, spares=spares)


def replaced_by(copies: Iterable[SegmentCopy]) -> frozenset[str]:
    """Return the stems that any of these copies replaces."""
    return frozenset(copy.metadata.replaces for copy in copies if copy.metadata.replaces is not None)


class _Entry(NamedTuple):
    """A copy, the offsets `[start, end)` of its live part, and whether another copy replaces it."""

    copy: SegmentCopy
    start: int
    end: int
    replaced: bool = False


def _unreplaced(entries: list[_Entry]) -> list[_Entry]:
    """Return the entries that no copy replaces; all if there is no such entry."""
    return [entry for entry in entries if not entry.replaced] or entries


class _Alive:
    """The living copies of a partition along its offsets."""

    def __init__(self, copies: Sequence[SegmentCopy], epochs: EpochHistory, replaced: frozenset[str] | None) -> None:
        if replaced is None:
            replaced = replaced_by(copies)
        self._entries = sorted(
            (
                _Entry(
                    copy,
                    copy.base,
                    epochs.live_end(copy.metadata.epochs or (), copy.base, copy.end),
                    bool(replaced) and copy.segment.name.stem in replaced,
                )
                for copy in copies
            ),
            key=attrgetter("start"),
        )
        self._active: list[_Entry] = []
        self._ahead = 0  # index of the first entry that begins after the position

    def overrunning(self) -> list[SegmentCopy]:
        """Return the copies whose records can be above their end, except replaced ones and those with a dead tail."""
        return [
            entry.copy
            for entry in self._entries
            if entry.copy.may_overrun and entry.end == entry.copy.end and not entry.replaced
        ]

    def following(self, end: int) -> int:
        """Return the first offset of the next copy after the position; at most `end`."""
        return min(self._entries[self._ahead].start, end) if self._ahead < len(self._entries) else end

    def at(self, position: int) -> list[_Entry]:
        """Return the copies that cover an offset; the offsets of successive calls must not fall.

        Raises:
            CorruptData: more than `MAX_COPIES` copies cover it.
        """
        ahead = self._ahead
        while ahead < len(self._entries) and self._entries[ahead].start <= position:
            ahead += 1
        self._active = [entry for entry in (*self._active, *self._entries[self._ahead : ahead]) if entry.end > position]
        self._ahead = ahead
        if len(self._active) > MAX_COPIES:
            raise CorruptData(
                f"{self._active[0].copy.keys.prefix}: {counted(len(self._active), 'segment')} cover offset {position}; "
                f"at most {MAX_COPIES} are expected; remove those that no agent wrote"
            )
        return self._active

    def below(self, end: int) -> Iterator[_Entry]:
        """Yield the copies with a live part that begin after the position and below `end`."""
        for index in range(self._ahead, bisect_left(self._entries, end, key=attrgetter("start"))):
            if self._entries[index].end > self._entries[index].start:
                yield self._entries[index]


class _Work:
    """A limit on the copies in all ranges of a plan, so that work grows with their number and not with its square.

    A range of a healthy partition has a few copies, one for each election in it.
    """

    def __init__(self, copies: Sequence[SegmentCopy]) -> None:
        self._copies = copies
        self._left = MAX_COPIES * MAX_COPIES + MEAN_COPIES * len(copies)

    def add(self, count: int) -> None:
        """Add the copies of one more range.

        Raises:
            CorruptData: the limit is exceeded.
        """
        self._left -= count
        if self._left < 0:
            raise CorruptData(
                f"{self._copies[0].keys.prefix}: its {len(self._copies)} segments overlap so much that each offset has "
                f"more than {MEAN_COPIES} of them; remove those that no agent wrote"
            )


def _holes(start: int, end: int, gaps: Sequence[tuple[int, int]]) -> list[Hole]:
    """Return `[start, end)` as holes, divided at the ends of gap records."""
    holes = []
    for index in range(bisect_right(gaps, start, key=itemgetter(1)), len(gaps)):
        low, high = gaps[index]
        if low >= end:
            break
        if low > start:
            holes.append(Hole(start, low, recorded=False))
        holes.append(Hole(max(start, low), min(high, end), recorded=True))
        start = min(high, end)
    if start < end:
        holes.append(Hole(start, end, recorded=False))
    return holes
