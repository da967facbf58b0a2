"""What must be true before any task of a partition can begin. Pure."""

from ts_uploader.messages import EpochFile, Leadership, Listing
from ts_uploader.tracking.blocked import Wait, WaitReason
from ts_uploader.tracking.partition_state import PartitionState

# One failed read is normal: the leadership source can be ahead of the broker's own files.
_FAILED_READS_BLOCK = 2


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
