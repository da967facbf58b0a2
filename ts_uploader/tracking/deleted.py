"""Decides which high watermark counts for a directory that the broker renamed to `-delete`. Pure.

From the rename on its log is final: no election follows, and nothing truncates it. So the last high watermark that the
broker wrote for it stays true. A checkpoint file counts if it was written before the rename: a later one can have the
value of a topic that was created again under the same name (protocol rule 14).
"""

from typing import NamedTuple

from ts_uploader.log_dirs.deleted_directories import written_at
from ts_uploader.messages import DirectoryDeleted, EpochFile, FileStatus, Leadership
from ts_uploader.tasks import AnyTask, ShipDeleted


class Counted(NamedTuple):
    """A high watermark that counts for a directory (protocol rule 1), with any leader.

    Attributes:
        identity: of the directory.
        epoch: the last one of its `leader-epoch-checkpoint`; None for a log of magic 0 or 1.
        high_watermark: of its log.
        file: status of the checkpoint file.
        leadership: of this broker at that time; None while it did not lead.
    """

    identity: tuple[int, int]
    epoch: int | None
    high_watermark: int
    file: FileStatus
    leadership: Leadership | None


def ship_deleted(event: DirectoryDeleted, counted: tuple[Counted, ...], *, latest: bool) -> list[AnyTask]:
    """Return the task for a `-delete` directory; none without a topic id, a segment or a leader epoch.

    Args:
        event: the directory.
        counted: the newest readings of its partition, in order.
        latest: as in `ReadPosition`.
    """
    listing = event.listing
    mine = [each for each in counted if (each.identity, each.epoch) == (listing.identity, listing.last_epoch.epoch)]
    led = [each.leadership.epoch for each in mine if each.leadership is not None]
    epoch = listing.last_epoch.epoch
    if listing.last_epoch.file is EpochFile.ABSENT and led:  # only the leadership source had the epoch
        epoch = led[-1]
        mine = [each for each in mine if each.leadership is not None and each.leadership.epoch == epoch]
    if listing.topic_id is None or not listing.bases or epoch is None:
        return []
    known = [each.high_watermark for each in mine if written_at(each.file) < event.renamed_at]
    return [
        ShipDeleted(
            listing.partition,
            -1,
            Leadership(epoch, listing.topic_id, 0),
            listing,
            known[-1] if known else event.checkpointed,
            led=epoch in led,
            latest=latest,
        )
    ]
