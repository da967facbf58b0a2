"""What the archive shows of a partition, for the step of its claims."""

from collections.abc import Iterable
from dataclasses import replace

from ts_common.archive.plan import Hole
from ts_common.archive.view import PartitionView
from ts_common.store.contract import ObjectStore
from ts_reader.following.commit_snapshot import PartitionEnd
from ts_reader.reading.transactions import find_hidden
from ts_tables.claims.advance import Seen
from ts_tables.claims.state import PartitionState, PassedHole


def seen_of(
    store: ObjectStore, view: PartitionView, end: PartitionEnd, known: PartitionState, *, read_committed: bool
) -> Seen:
    """Return what the archive shows of a partition.

    Args:
        store: of the segments.
        view: of the partition.
        end: by its commit.
        known: its claims, as far as the log still has them.
        read_committed: whether transactions that are open at a hole are withheld.

    Raises:
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from reading segments.
    """
    start = max(view.start, min([known.end, *(hole.first for hole in known.holes)]))
    holes = joined(part for part in view.plan(start, max(view.end, start)) if isinstance(part, Hole))
    seen = Seen(view.start, end.next_offset, end.shown, end.log, tuple(PassedHole(*each) for each in holes))
    noted = {(hole.start, hole.end) for hole in known.holes if hole.start >= view.start}
    is_unchanged = noted == {*holes}
    if is_unchanged or not read_committed:  # else headers are read to find open transactions
        return seen
    cut_off = find_hidden(store, view, start, max(start, end.shown)).cut_off
    withheld = {
        hole: tuple((one.producer_id, one.first) for one in cut_off if hole[0] <= one.hole.start < hole[1])
        for hole in holes
    }
    return replace(seen, holes=tuple(PassedHole(*hole, tuple(sorted(withheld[hole]))) for hole in holes))


def joined(holes: Iterable[Hole]) -> list[tuple[int, int]]:
    """Return holes as ranges; adjoining ones, which differ in their records only, are one."""
    found: list[tuple[int, int]] = []
    for hole in holes:
        if found and found[-1][1] == hole.start:
            found[-1] = (found[-1][0], hole.end)
        else:
            found.append((hole.start, hole.end))
    return found
