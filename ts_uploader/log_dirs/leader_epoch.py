"""Reads the last entry of a partition's `leader-epoch-checkpoint`: the leader epoch that the broker itself wrote last.

The leadership source can be ahead of the broker, so this file decides when a leadership begins (protocol rule 1).
"""

from collections.abc import Set
from functools import lru_cache
from pathlib import Path

from ts_common.errors import CorruptData, SegmentChanged
from ts_uploader.log_dirs.local_log import EpochsMark, epochs_mark, local_epochs
from ts_uploader.messages.observations import NO_EPOCH_FILE, EpochFile, LastEpoch, Leadership, Listing


class EpochReader:
    """Reads `leader-epoch-checkpoint` files; each again only if its status differs: there may be ten thousand.

    Attributes:
        reads: how many files were read.
    """

    def __init__(self) -> None:
        self.reads = 0
        self._known: dict[str, tuple[EpochsMark, LastEpoch]] = {}  # a string needs half the memory of a path

    def read(self, directory: Path) -> LastEpoch:
        """Return the last entry of a directory's checkpoint."""
        mark = epochs_mark(directory)
        known = self._known.get(str(directory))
        if mark is not None and known is not None and known[0] == mark:
            return known[1]
        self.reads += 1
        last = last_epoch_of(directory)
        # The status was read before the file: if the file is replaced in between, the status differs next time.
        if mark is not None and last.file is EpochFile.READ:
            self._known[str(directory)] = (mark, last)
        else:
            self._known.pop(str(directory), None)
        return last

    def keep(self, directories: Set[str]) -> None:
        """Forget all other directories."""
        self._known = {directory: known for directory, known in self._known.items() if directory in directories}


def last_epoch_of(directory: Path) -> LastEpoch:
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
