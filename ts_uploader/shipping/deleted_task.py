"""What becomes of the task of a deleted directory: it is done, repeated, or its records are lost."""

from dataclasses import replace
from pathlib import Path
from typing import Final

from ts_common.errors import SegmentChanged
from ts_uploader.messages.observations import Listing
from ts_uploader.messages.results import DeletedPending, DeletedShipped
from ts_uploader.messages.tasks import ShipDeleted

_ABOVE_HIGH_WATERMARK = (
    "the topic was deleted; the last high watermark that its broker wrote is {}, so these records may never have been "
    "committed"
)
_NO_HIGH_WATERMARK = (
    "the topic was deleted, and no file of the broker has its high watermark, so these records may never have been "
    "committed"
)
_MOST_ATTEMPTS: Final = 100  # the longest wait between two is half a minute


def why_not_shipped(task: ShipDeleted) -> str:
    """Return why the end of a log was not shipped although its files are there."""
    known = task.high_watermark
    return _NO_HIGH_WATERMARK if known is None else _ABOVE_HIGH_WATERMARK.format(known)


def to_ship(task: ShipDeleted) -> DeletedPending:
    """Return a task whose topic was deleted, to be run where segments are uploaded."""
    return pending(task, "the topic was deleted", 0.0)


def again(task: ShipDeleted, reason: str) -> DeletedShipped | DeletedPending:
    """Return a task that failed, to be repeated after its backoff; given up after very many attempts."""
    if task.attempt >= _MOST_ATTEMPTS and not is_there(task.listing):
        return lost(task, reason)
    later = replace(task, attempt=task.attempt + 1, after_seconds=0.0)
    return DeletedPending(task.partition, task.generation, task.leadership, later, reason)


def pending(task: ShipDeleted, reason: str, seconds: float) -> DeletedPending:
    """Return a task to be repeated after so many seconds."""
    later = replace(task, attempt=0, after_seconds=seconds)
    return DeletedPending(task.partition, task.generation, task.leadership, later, reason)


def done(task: ShipDeleted, reason: str, next_offset: int | None = None) -> DeletedShipped:
    """Return the result of a task that has nothing left to do."""
    return DeletedShipped(task.partition, task.generation, task.leadership, reason, next_offset)


def lost(task: ShipDeleted, reason: str) -> DeletedShipped:
    """Return the result of a task whose records may be lost without a gap record."""
    return replace(done(task, reason), lost=True)


def bases_of(listing: Listing) -> tuple[int, ...]:
    """Return the base offsets of a directory's segments, at least one.

    Raises:
        SegmentChanged: there is no segment: the broker is removing the files.
    """
    if not listing.bases:
        raise SegmentChanged(f"{listing.directory} has no segment any more: the broker is removing its files")
    return listing.bases


def is_there(listing: Listing) -> bool:
    """Return whether the directory of a listing still exists."""
    try:
        status = Path(listing.directory).stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (status.st_dev, status.st_ino) == listing.identity


def begin_of(task: ShipDeleted) -> int:
    """Return where an archive begins that does not exist yet.

    The leader's log decides. Another replica's retention can have removed what the leader still has. So an agent that
    did not lead begins at 0, and what is below its log is a gap, which the agent of the last leader fills.
    """
    return task.listing.bases[0] if task.led else 0
