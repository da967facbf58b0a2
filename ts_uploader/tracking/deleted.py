"""Decides which high watermark counts for a directory that the broker renamed to `-delete`. Pure.

From the rename on its log is final: no election follows, and nothing truncates it. So the last high watermark that the
broker wrote for it stays true. A checkpoint counts if the directory was live after the file was read: a later file can
have the value of a topic that was created again under the same name (protocol rule 14).
"""

from typing import NamedTuple

from ts_uploader.messages import DirectoryDeleted, EpochFile, Leadership
from ts_uploader.tasks import UNKNOWN_EPOCH, AnyTask, ShipDeleted


class Counted(NamedTuple):
    """A high watermark that counts for a directory (protocol rule 1), with any leader.

    Attributes:
        identity: of the directory.
        epoch: the last one of its `leader-epoch-checkpoint`; None for a log of magic 0 or 1.
        high_watermark: of its log.
        leadership: of this broker at that time; None while it did not lead.
    """

    identity: tuple[int, int]
    epoch: int | None
    high_watermark: int
    leadership: Leadership | None


def ship_deleted(event: DirectoryDeleted, counted: Counted | None, *, latest: bool) -> list[AnyTask]:
    """Return the task for a `-delete` directory; none without a topic id.

    Args:
        event: the directory.
        counted: the newest reading of its partition; None without one.
        latest: as in `ReadPosition`.
    """
    listing, epoch = event.listing, event.listing.last_epoch.epoch
    if counted is not None and (counted.identity, counted.epoch) != (listing.identity, epoch):
        counted = None
    led = None if counted is None or counted.leadership is None else counted.leadership.epoch
    if listing.last_epoch.file is EpochFile.ABSENT:  # only the leadership source had the epoch
        epoch = led
    if listing.topic_id is None:
        return []
    epoch = UNKNOWN_EPOCH if epoch is None else epoch
    return [
        ShipDeleted(
            listing.partition,
            -1,
            Leadership(epoch, listing.topic_id, 0),
            listing,
            event.checkpointed if counted is None else counted.high_watermark,
            led=led == epoch,
            latest=latest,
        )
    ]
