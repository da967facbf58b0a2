"""Reads the last entry of a partition's `leader-epoch-checkpoint`: the leader epoch that the broker itself wrote last.

The leadership source can be ahead of the broker, so this file decides when a leadership begins (protocol rule 1).
"""

from functools import lru_cache
from pathlib import Path

from ts_common.errors import CorruptData, SegmentChanged
from ts_uploader.log_dirs.local_log import local_epochs
from ts_uploader.messages.observations import NO_EPOCH_FILE, EpochFile, LastEpoch, Leadership, Listing


def last_epoch_of(directory: Path | str) -> LastEpoch:
    """Return the last entry of a directory's `leader-epoch-checkpoint`, read now."""
    try:
        epochs = local_epochs(directory)
    except (OSError, CorruptData) as error:
        return LastEpoch(EpochFile.UNREADABLE, error=str(error))
    if epochs is None:
        return NO_EPOCH_FILE
    return _read(epochs.pairs[-1][0] if epochs.pairs else None)


@lru_cache
def _read(epoch: int | None) -> LastEpoch:
    """Return a shared value: ten thousand partitions have few different epochs."""
    return LastEpoch(EpochFile.READ, epoch)


def check_leader_epoch(listing: Listing, leadership: Leadership) -> None:
    """Check that the broker itself has begun this leadership: it writes each new epoch to its checkpoint first.

    A log of magic 0 and 1 has no such checkpoint.

    Raises:
        SegmentChanged: the leadership source and the broker's log disagree (not yet, or no longer).
        CorruptData, OSError: the checkpoint cannot be read, which does not prove an old magic.
    """
    local = local_epochs(listing.directory)
    if local is None and listing.last_epoch.file is not EpochFile.ABSENT:
        raise SegmentChanged(f"{listing.directory}: its leader epoch checkpoint no longer exists")
    if local is not None and (not local.pairs or local.pairs[-1][0] != leadership.epoch):
        ends = local.pairs[-1][0] if local.pairs else "nothing"
        raise SegmentChanged(
            f"{listing.directory}: its leader epoch checkpoint ends with {ends}, the leader epoch is {leadership.epoch}"
        )
