"""Why the commit of a partition does not move, derived from the tracker's state: preconditions, then what fails. Pure.

If a closed segment reaches above the next offset, there is always a reason, so no partition waits unnoticed. Work that
is under way for the first time is a reason too, marked as ordinary.
"""

from collections.abc import Sequence
from typing import Final

from ts_uploader.messages.observations import EpochFile, Leadership, Listing
from ts_uploader.tracking.blocked import Wait, WaitReason
from ts_uploader.tracking.partition_state import PartitionState

# Unless a follower lags, the first checkpoint after a segment closed is beyond its end.
_ORDINARY_CHECKPOINTS: Final = 2
# One failed read is normal: the leadership source can be ahead of the broker's own files.
_FAILED_READS_BLOCK: Final = 2
_FENCED: Final = Wait(
    WaitReason.LEADERSHIP, "a later report of the leadership source: the store shows a later leader epoch"
)
_HOLE: Final = Wait(WaitReason.HOLE, "a segment that contains the next offset")


def why(state: PartitionState, listing: Listing, unshipped: Sequence[tuple[int, int]]) -> Wait | None:
    """Return what the partition waits for; None if nothing is missing and no closed segment is unshipped.

    Args:
        listing: the newest, or the last one if it is out of date.
        unshipped: (base, next base) of the closed segments that reach above the next offset, by base.
    """
    if state.leadership is None:
        return _FENCED
    missing = missing_precondition(state, state.leadership, listing)
    if missing is not None:
        return missing
    trouble = state.retries.trouble(base for base, _ in unshipped)
    failing = None if trouble is None else trouble.wait()
    if _has_gap(state, listing):
        explains = failing is not None and failing.reason in {WaitReason.COMMIT, WaitReason.GAP}
        return failing if explains else _gap(state, listing)
    if unshipped and state.has_lost_its_tail(unshipped[0][0], state.last_next_offset or 0):
        return _HOLE
    unread = failing_reads(state)
    if unread is not None:
        return unread
    if failing is not None:
        return failing
    return _under_way(state, *unshipped[0]) if unshipped else None


def missing_precondition(state: PartitionState, leadership: Leadership, listing: Listing) -> Wait | None:
    """Return what is missing before any task of the partition can begin; None if nothing is."""
    if not listing.bases:
        return Wait(WaitReason.SEGMENT, "a segment in its directory")
    if leadership.topic_id is not None and listing.topic_id != leadership.topic_id:
        found = listing.topic_id or "no topic id"
        return Wait(WaitReason.TOPIC_ID, f"topic id {leadership.topic_id}: partition.metadata has {found}")
    if listing.swapping:  # until then neither the lowest base nor neighbours are certain
        return Wait(WaitReason.RENAMES, "the end of the log cleaner's renames")
    if (epoch := _missing_epoch(leadership, listing)) is not None:
        return epoch
    if state.high_watermark is None:
        return Wait(
            WaitReason.HIGH_WATERMARK,
            "the partition's entry in the second high watermark checkpoint that the broker writes as its leader",
        )
    return None


def undecided_directory(state: PartitionState) -> Wait | None:
    """Return the wait for checkpoints that show which live directory the broker uses; None if that is certain."""
    if state.rival_directories is None or state.directory is not None:
        return None
    paths = ", ".join(str(listing.directory) for listing in state.rival_directories.listings)
    return Wait(
        WaitReason.DIRECTORIES,
        f"high watermark checkpoints that show which of several live directories the broker uses: {paths}",
    )


def failing_reads(state: PartitionState) -> Wait | None:
    """Return the wait for a position whose reads keep failing; None if they do not."""
    if state.failed_reads < _FAILED_READS_BLOCK:
        return None
    return Wait(WaitReason.STORE, f"the position in the store: {state.failed_read_reason}")


def _missing_epoch(leadership: Leadership, listing: Listing) -> Wait | None:
    """Return the wait for the broker's `leader-epoch-checkpoint` to end with this leader epoch; None if it does."""
    last = listing.last_epoch
    if last.file is EpochFile.UNREADABLE:
        return Wait(WaitReason.EPOCH, f"a readable leader-epoch-checkpoint: {last.error}")
    if last.file is EpochFile.ABSENT or last.epoch == leadership.epoch:
        return None
    ends = "has no entry" if last.epoch is None else f"ends with {last.epoch}"
    return Wait(
        WaitReason.EPOCH, f"leader epoch {leadership.epoch} in the broker's leader-epoch-checkpoint, which {ends}"
    )


def _has_gap(state: PartitionState, listing: Listing) -> bool:
    uncovered = state.position is not None and not state.covers(listing, state.position.next_offset)
    return uncovered or state.gap_seen_at is not None


def _gap(state: PartitionState, listing: Listing) -> Wait:
    begin = "the next offset" if state.last_next_offset is None else f"offset {state.last_next_offset}"
    text = f"two listings, a checkpoint interval apart, that agree on the files from {begin} to {listing.bases[0]}"
    return Wait(WaitReason.GAP, text)


def _under_way(state: PartitionState, base: int, next_base: int) -> Wait:
    """Return what the lowest segment waits for while nothing has failed."""
    if state.committing:
        return Wait(WaitReason.COMMIT, "the commit that is under way", ordinary=True)
    if state.position is None:
        return Wait(WaitReason.POSITION, "the position in the store, which is being read", ordinary=True)
    if base in state.in_flight:
        return Wait(WaitReason.UPLOAD, f"the upload of segment {base}, which is under way", ordinary=True)
    if state.high_watermark is not None and next_base > state.high_watermark:
        text = f"a high watermark at or above {next_base}, the end of segment {base}; it is {state.high_watermark}"
        counted, times = state.short_checkpoints
        passing = counted != base or times <= _ORDINARY_CHECKPOINTS
        return Wait(WaitReason.BELOW_HIGH_WATERMARK, text, ordinary=passing)
    return Wait(WaitReason.UPLOAD, f"the upload of segment {base}, which has not begun", ordinary=True)
