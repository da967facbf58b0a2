"""Checks by the broker's own log that a leadership is current."""

from ts_common.errors import SegmentChanged
from ts_uploader.log_dirs.local_log import local_epochs
from ts_uploader.messages import EpochFile, Leadership, Listing


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
