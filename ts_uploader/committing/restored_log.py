"""Reads what a restore put into a partition's log: the archive begins where that ends (protocol rule 15).

The records below are in another directory, which `restored.json` names, so they are not shipped again. They have the
leader epoch 0, and the brokers of the restored cluster write with later ones. So an election that lost some of them
shows in the broker's list of epochs, or in the end of its log.
"""

import time
from dataclasses import dataclass

from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.restored import Restored
from ts_common.errors import DataLoss
from ts_common.store.contract import ObjectStore
from ts_uploader.log_dirs.local_log import local_epochs, log_end
from ts_uploader.messages.observations import Listing

_EPOCH = 0  # of restored records


@dataclass(frozen=True, slots=True)
class RestoredLog:
    """The end of what was restored.

    Attributes:
        key: of `restored.json`.
        end: the restored records are below it.
        held_end: the end of those that this log still has.
    """

    key: str
    end: int
    held_end: int

    def check_whole(self, listing: Listing) -> None:
        """Check that the log has the restored records up to their end, before the archive begins there.

        Raises:
            DataLoss: it has other records there, or none.
        """
        if self.held_end < self.end:
            raise DataLoss(
                f"{listing.directory} has restored records up to offset {self.held_end}; expected {self.end} by "
                f"{self.key}; complete the restore on each replica, or run it again with that end"
            )


class RestoredRecords:
    """Reads `restored.json`, once for many partitions whose archives begin together; for any threads.

    The record exists before an agent begins an archive, and a task that exists can begin it at any moment. So a read
    that began after a task was made is a read of that task (protocol rule 15).
    """

    def __init__(self) -> None:
        # By location: when the last read began, nanoseconds of the monotonic clock, and what it found. Without a lock:
        # threads that begin together read the record once each.
        self._read: dict[str, tuple[int, Restored | None]] = {}

    def restored_log(
        self, store: ObjectStore, keys: PartitionKeys, listing: Listing, made_at: int | None
    ) -> RestoredLog | None:
        """Return what was restored into a partition; None if it began without a restore.

        Args:
            made_at: as in `ReadPosition`.

        Raises:
            CorruptData, NewerFormat: of `restored.json`, or of the broker's list of epochs.
            SegmentChanged: the active segment no longer exists: list again.
            StoreUnavailable, AccessDenied, BucketMissing: the store failed.
        """
        key = keys.cluster.restored
        record = self._record(store, key, made_at)
        found = None if record is None else record.find(keys)
        return None if found is None else RestoredLog(key, found[1].end, _held_end(found[1].end, listing))

    def _record(self, store: ObjectStore, key: str, made_at: int | None) -> Restored | None:
        last = self._read.get(store.location)
        if last is None or made_at is None or last[0] < made_at:
            began = time.monotonic_ns()
            last = self._read[store.location] = began, Restored.read(store, key)
        return last[1]


def _held_end(end: int, listing: Listing) -> int:
    lowest, active = listing.bases[0], listing.bases[-1]
    if lowest >= end:
        return end  # retention on the broker removed them: nothing shows that they were others
    later = (start for epoch, start in local_epochs(listing.directory) or () if epoch > _EPOCH)
    held = min((end, *later))
    return held if active >= held else min(held, log_end(listing.directory, active))
