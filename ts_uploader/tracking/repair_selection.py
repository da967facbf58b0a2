"""Select the next repair of a partition (protocol rule 13). Pure: no clock, no I/O.

A request is ready if this broker's part of its range is certain: each file that has offsets of it is closed, below the
high watermark, not being shipped and not the next to ship. Below the lowest live segment, `.deleted` files must have
been examined. Other requests wait; they stay in the store. One repair of a partition runs at a time, and none begins
during a commit.
"""

from collections.abc import Callable
from dataclasses import replace

from ts_uploader.messages.observations import Leadership, Listing
from ts_uploader.messages.tasks import AnyTask, Position, Repair, Ship
from ts_uploader.tracking.partition_state import PartitionState
from ts_uploader.tracking.shipped_segments import overlapping


def select_repair(
    state: PartitionState,
    leadership: Leadership,
    listing: Listing,
    position: Position,
    second_listing: Callable[[PartitionState], list[AnyTask]],
) -> list[AnyTask]:
    """Return the next repair that can begin, and mark it as begun in the state.

    Args:
        listing: the newest.
        second_listing: schedules another listing.
    """
    if not state.repairs or state.repairing is not None or state.committing or state.reading_deleted:
        return []
    for request in state.repairs:
        start, end = max(request.start, position.log_start), min(request.end, position.next_offset)
        if start < min(end, listing.bases[0]) and (not listing.whole or state.has_unread_deleted(listing)):
            return second_listing(state)
        segments = _segments(state, leadership, listing, position, (start, end))
        if segments is None:
            continue
        state.begin_repair(request, frozenset(segment.base for segment in segments))
        return [
            Repair(
                state.partition,
                state.generation,
                leadership,
                request,
                position,
                listing,
                segments,
                lowest=max(start, next(state.segments_from(listing, start), (listing.bases[0], 0))[0]),
            )
        ]
    return []


def _segments(
    state: PartitionState,
    leadership: Leadership,
    listing: Listing,
    position: Position,
    offsets: tuple[int, int],
) -> tuple[Ship, ...] | None:
    """Return the closed segments with any of these offsets `[start, end)`; None if the request has to wait."""
    start, end = offsets
    if start >= end:
        return ()
    if end > listing.bases[-1]:  # in the active segment, which another leader closed earlier
        return None
    segments = []
    for base, next_base in state.segments_from(listing, start):
        if base >= end:
            break
        if state.high_watermark is None or next_base > state.high_watermark or base in state.in_flight:
            return None
        if next_base > position.next_offset and base not in state.shipped:
            return None  # it is shipped first, so that no number of requests delays that
        gaps = tuple(gap for gap in position.gaps if overlapping((gap,), base, next_base))
        ship = state.ship(leadership, listing, position, (base, next_base), gaps)
        segments.append(replace(ship, variants_below=max(ship.variants_below, position.log_start)))
    return tuple(segments)
