"""From the copies of a partition to what is to be read: every offset once, in order.

Two leaders may roll their segments at different offsets, so copies overlap, and one may be compacted further than the
other. The view is their union (reading rules 2 and 5): where one copy has every offset it suffices alone, elsewhere all
copies are read and merged; a range that no copy covers is a hole.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Final

from ts_common.catalog import SegmentCopy
from ts_common.epochs import EpochLine
from ts_common.errors import CorruptData

# Each election can leave one copy more of the same offsets. Work grows with the square of them.
MAX_COPIES: Final = 1000


@dataclass(frozen=True, slots=True)
class ReadRange:
    """Offsets `[start, end)` that one or several copies answer for; of several, the union is read.

    Attributes:
        start: first offset.
        end: the offset after the last.
        copies: which are read.
        spares: what other living copies answer for of it, one copy each; read where `copies` are damaged.
    """

    start: int
    end: int
    copies: tuple[SegmentCopy, ...]
    spares: tuple["ReadRange", ...] = ()


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets `[start, end)` below the next offset that no copy answers for: data loss.

    Attributes:
        recorded: whether a gap record gives the loss a reason.
    """

    start: int
    end: int
    recorded: bool


def unite(
    copies: Sequence[SegmentCopy],
    epochs: EpochLine,
    start: int,
    end: int,
    gaps: Iterable[tuple[int, int]] = (),
) -> list[ReadRange | Hole]:
    """Cut `[start, end)` into ranges to read and holes, in order and without a seam.

    Args:
        copies: of one partition, in any order.
        epochs: the commit's; a copy ends for readers at its first batch of another epoch.
        start: first offset.
        end: the offset after the last.
        gaps: recorded ranges `[from, to)`, ascending and apart.

    Raises:
        CorruptData: more than `MAX_COPIES` answer for one offset.
    """
    live = sorted(
        ((copy, copy.base, epochs.live_end(copy.metadata.epochs or (), copy.base, copy.end)) for copy in copies),
        key=lambda entry: entry[1],
    )
    gaps = tuple(gaps)
    plan: list[ReadRange | Hole] = []
    active: list[tuple[SegmentCopy, int]] = []  # with the end of their live part
    ahead = 0
    position = start
    while position < end:
        while ahead < len(live) and live[ahead][1] <= position:
            active.append((live[ahead][0], live[ahead][2]))
            ahead += 1
        active = [entry for entry in active if entry[1] > position]
        if len(active) > MAX_COPIES:
            raise CorruptData(
                f"{active[0][0].keys.prefix}: {len(active)} segments answer for offset {position}, and at most "
                f"{MAX_COPIES} are expected: remove those that no agent wrote"
            )
        following = min(live[ahead][1], end) if ahead < len(live) else end
        if not active:
            plan += _holes(position, following, gaps)
            position = following
            continue
        dense = [entry for entry in active if entry[0].dense]
        if dense:
            copy, stop = max(dense, key=lambda entry: entry[1])
            chosen: tuple[SegmentCopy, ...] = (copy,)
        else:
            stop = min(*(entry[1] for entry in active), following)
            chosen = tuple(copy for copy, _ in active)
        stop = min(stop, end)
        plan.append(ReadRange(position, stop, chosen))
        position = stop
    return plan


def with_spares(plan: Iterable[ReadRange], copies: Sequence[SegmentCopy], epochs: EpochLine) -> Iterator[ReadRange]:
    """The ranges of a plan, each with what its partition's other copies can stand in for.

    Args:
        plan: ascending.
        copies: of the partition.
        epochs: as the plan was made with.
    """
    live = sorted(
        ((copy, copy.base, epochs.live_end(copy.metadata.epochs or (), copy.base, copy.end)) for copy in copies),
        key=lambda entry: entry[1],
    )
    for part in plan:
        live = [entry for entry in live if entry[2] > part.start]
        yield replace(
            part,
            spares=tuple(
                ReadRange(max(start, part.start), min(end, part.end), (copy,))
                for copy, start, end in live[: bisect_left(live, part.end, key=lambda entry: entry[1])]
                if copy not in part.copies and end > start
            ),
        )


def _holes(start: int, end: int, gaps: Sequence[tuple[int, int]]) -> list[Hole]:
    """`[start, end)` as holes, cut where a gap record begins or ends."""
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
