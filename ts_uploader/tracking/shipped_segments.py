"""Which shipped segments still count when the position in the store changes. Pure."""

from ts_common.archive.epoch_history import EpochHistory
from ts_uploader.messages.observations import Listing
from ts_uploader.messages.tasks import Position, Shipped


def counts(done: Shipped, position: Position) -> bool:
    """Whether a shipped segment has a name that the commit's lineage allows.

    A new lineage can begin while segments are shipped: the commit was lost, or a Java uploader replaced it. A deletion
    of an earlier lineage can still name its objects below the lineage's `highest`.
    """
    lineage = position.lineage
    return lineage is None or done.base >= lineage.highest or done.lineage == lineage


def follows(done: Shipped, position: Position, listing: Listing | None) -> bool:
    """Whether a shipped segment follows the run, or a new upload of it would be identical.

    It is with the same run and directory. The commit logs why it rejects it.
    """
    is_unchanged = listing is not None and listing.stamp == done.stamp
    is_as_good = is_unchanged and (done.run, done.run_end) == (position.epochs, position.next_offset)
    return is_as_good or _continues(done, position)


def _continues(done: Shipped, position: Position) -> bool:
    """Whether the epochs of a shipped segment can follow those of the run.

    The epochs of a segment that compaction emptied were derived from a shorter run. Then it is shipped again.
    """
    continued = position.epochs.continued(EpochHistory.of_batches(done.epochs), position.next_offset)
    return continued.agrees_with(done.epochs, done.base, done.end)


def overlapping(ranges: tuple[tuple[int, int], ...], start: int, end: int) -> bool:
    """Whether any of these ranges and `[start, end)` have an offset in common."""
    return any(low < end and start < high for low, high in ranges)
