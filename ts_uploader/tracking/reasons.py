"""Why the commit of a partition does not move, from what the tracker knows of it. Pure.

There is a reason whenever a closed segment lies at or above the next offset, so that no partition waits in silence,
however it came to that. What is under way for the first time is a reason too; it is marked as ordinary.
"""

from collections.abc import Sequence
from typing import Final

from ts_uploader.events import Listing
from ts_uploader.tracking.blocked import Wait, WaitReason
from ts_uploader.tracking.partition_state import PartitionState

# The first checkpoint after a segment is closed ends beyond it, unless a follower lags.
_CHECKPOINTS_IN_THE_ORDINARY_COURSE: Final = 2
_FENCED: Final = Wait(
    WaitReason.LEADERSHIP, "a later word of the leadership source: the store shows a later leader epoch"
)
_HOLE: Final = Wait(WaitReason.HOLE, "the offsets that it goes on with")


def why(state: PartitionState, listing: Listing, unshipped: Sequence[tuple[int, int]]) -> Wait | None:
    """What the partition waits for; None where nothing is closed and unshipped, and nothing else is missing.

    Args:
        state: of the partition.
        listing: the newest, or the last one before it was known to be old.
        unshipped: (base, next base) of the closed segments that reach above the next offset, by base.
    """
    if state.leadership is None:
        return _FENCED
    needed = state.waits_for(state.leadership, listing)
    if needed is not None:
        return needed
    trouble = state.retries.trouble(base for base, _ in unshipped)
    failing = None if trouble is None else trouble.wait()
    missing = state.position is not None and not state.covers(listing, state.position.next_offset)
    if missing or state.gap_seen_at is not None:
        told = failing is not None and failing.reason in {WaitReason.COMMIT, WaitReason.GAP}
        return failing if told else _gap(state, listing)
    if unshipped and state.has_lost_its_tail(unshipped[0][0], state.last_next_offset or 0):
        return _HOLE
    unanswered = state.blocked_by_store()
    if unanswered is not None:
        return unanswered
    if failing is not None:
        return failing
    return _under_way(state, *unshipped[0]) if unshipped else None


def _gap(state: PartitionState, listing: Listing) -> Wait:
    begin = "the next offset" if state.last_next_offset is None else f"offset {state.last_next_offset}"
    text = f"two listings, a checkpoint interval apart, that agree on what lies from {begin} up to {listing.bases[0]}"
    return Wait(WaitReason.GAP, text)


def _under_way(state: PartitionState, base: int, next_base: int) -> Wait:
    """What the lowest segment waits for while nothing has failed."""
    if state.committing:
        return Wait(WaitReason.COMMIT, "the commit that is under way", ordinary=True)
    if state.position is None:
        return Wait(WaitReason.POSITION, "an answer of the store where to go on", ordinary=True)
    if base in state.in_flight:
        return Wait(WaitReason.UPLOAD, f"the upload of segment {base}, which is under way", ordinary=True)
    if state.high_watermark is not None and next_base > state.high_watermark:
        text = f"a high watermark at or above {next_base}, the end of segment {base}; it is {state.high_watermark}"
        counted, times = state.short_checkpoints
        passing = counted != base or times <= _CHECKPOINTS_IN_THE_ORDINARY_COURSE
        return Wait(WaitReason.BELOW_HIGH_WATERMARK, text, ordinary=passing)
    return Wait(WaitReason.UPLOAD, f"the upload of segment {base}, which has not begun", ordinary=True)
