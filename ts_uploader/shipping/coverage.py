"""Which offsets a segment answers for, found out after it was read (protocol rules 2 and 10).

The broker works on while a segment is read. Its bytes may change: then inode, size or its being closed changed, which
is compared after reading. And where the log cleaner took the tail, the file does not show how far it answers; the next
base does, if the file was opened under its live name and a whole listing, taken after reading, shows that base as the
next live one, and the live name still leads to the file. `.cleaned` and `.deleted` files are no reason to wait: the
cleaner copies for hours, and the broker keeps `.deleted` files for `file.delete.delay.ms`.

A file under its `.deleted` name is shipped only where no live segment is at or below its base. Then retention took it,
and not the cleaner; that it belongs to the line that lives, the tracker vouches for: it was seen live in this
leadership, or it hangs on what lives (`ts_uploader.log_dirs.hanging`).
"""

from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

from ts_common.archive.epoch_history import NO_EPOCH
from ts_common.errors import CorruptData, SegmentChanged
from ts_common.log_format.framing import Trailing
from ts_common.log_format.scan import SegmentScan
from ts_uploader.events import Listing
from ts_uploader.log_dirs.directory_scan import list_partition, whole_listing
from ts_uploader.log_dirs.leader_epoch import check_leader_epoch
from ts_uploader.log_dirs.scan_cache import file_state
from ts_uploader.log_dirs.segment_file import OpenLog, open_log
from ts_uploader.tasks import Ship


def open_segment(task: Ship, opened: ExitStack) -> OpenLog:
    """Open what is to be shipped: the live file, or the `.deleted` one where the task says that it counts.

    Args:
        task: which segment.
        opened: closes it.

    Raises:
        SegmentChanged: it is gone; or the file under its `.deleted` name is another than the one that hangs.
    """
    directory = task.listing.directory
    if task.hangs is None:
        try:
            return opened.enter_context(open_log(directory, task.base))
        except SegmentChanged:
            if not task.seen:
                raise
    log = opened.enter_context(open_log(directory, task.base, deleted=True))
    if task.hangs is not None and file_state(log) != task.hangs:
        raise SegmentChanged(f"{log.path} is another file than the one that was found to be of this line")
    return log


def coverage_end(task: Ship, log: OpenLog, scan: SegmentScan) -> int:
    """Where the coverage of a segment ends.

    Args:
        task: which segment, and what is known of it.
        log: its file, read by now.
        scan: what it holds.

    Raises:
        SegmentChanged: the file, its neighbour or the leadership is not what the task says any more: look again.
        CorruptData: the file holds no batch, or batches that its name does not allow.
    """
    _check_epochs(log.path, scan)
    if scan.end_offset is None and (scan.trailing is Trailing.TORN or scan.corruption):
        raise CorruptData(f"{log.path}: no batch in its {scan.size} bytes; the broker's own log check says more")
    if scan.base_offset is not None and scan.base_offset < task.base:
        raise CorruptData(f"{log.path}: its first batch is at {scan.base_offset}, its name says {task.base}")
    reach = scan.end_offset
    # Compaction removed the tail, or every batch, if the neighbour is one. What is no whole batch is not coverage.
    by_neighbour = reach is None or (reach < task.next_base and not _tail_is_damaged(scan))
    if not log.deleted:
        now = whole_listing(task.listing) if by_neighbour else _listing(task)
        if log.stands:
            return _live_end(task, now, None if by_neighbour else reach)
    return _taken_end(task, log, reach, by_neighbour=by_neighbour)


def _live_end(task: Ship, now: Listing, reach: int | None) -> int:
    """Of a live file that is after the listing what it was before.

    Args:
        task: which segment.
        now: taken after it was read; whole, where the neighbour has to tell.
        reach: the end of its last batch; None where the neighbour has to tell.
    """
    path = task.listing.directory / f"{task.base:020d}"
    # A log that was cut off and filled again by another leader may have its old names back.
    check_leader_epoch(now, task.leadership)
    if task.next_base not in now.bases:
        raise SegmentChanged(f"{path} is no longer followed by {task.next_base}")
    if reach is not None and reach <= task.next_base:
        return reach
    if (task.base, task.next_base) not in pairwise(now.bases):
        raise SegmentChanged(f"{path}: the log cleaner is at work: {task.next_base} is not the next live segment")
    if reach is not None:
        raise CorruptData(f"{path}: its last batch ends at {reach}, and the next segment begins at {task.next_base}")
    return task.next_base


def _taken_end(task: Ship, log: OpenLog, reach: int | None, *, by_neighbour: bool) -> int:
    """Of a file that retention took: it bears its `.deleted` name, or no name any more since it was opened."""
    now = whole_listing(task.listing)
    if task.base in now.bases:
        raise SegmentChanged(f"{log.path} was replaced or cut while it was read")
    if not now.bases or now.bases[0] <= task.base:
        raise SegmentChanged(f"{log.path} is gone, and not by retention")
    check_leader_epoch(now, task.leadership)
    if not log.is_whole or (log.deleted and not log.stands):
        raise SegmentChanged(f"{log.path} was replaced or cut while it was read")
    if by_neighbour and task.seen:
        if now.bases[0] < task.next_base:
            raise SegmentChanged(f"{log.path}: {now.bases[0]} is live, and followed it not when it was seen live")
        return task.next_base
    # Its own batches only. They may reach beyond the neighbour that was seen: the cleaner merged it since.
    if reach is None:
        raise SegmentChanged(f"{log.path} is gone and empty, and what followed it is not known")
    if reach > now.bases[0]:
        raise CorruptData(f"{log.path}: its last batch ends at {reach}, and {now.bases[0]} is the lowest live segment")
    return reach


def _listing(task: Ship) -> Listing:
    listing = list_partition(task.partition, task.listing.directory, task.listing.log_dir)
    if listing is None or listing.identity != task.listing.identity:
        raise SegmentChanged(f"{task.listing.directory} is gone, or another directory now")
    return listing


def _tail_is_damaged(scan: SegmentScan) -> bool:
    """Whether anything but zero bytes follows the last good batch; damage before that does not bear on the end."""
    unlisted = scan.corrupt_batches > len(scan.corruption) and scan.valid_bytes < scan.size
    behind = any(position >= scan.valid_bytes for position, _ in scan.corruption)
    return scan.trailing is Trailing.TORN or behind or unlisted


def _check_epochs(path: Path, scan: SegmentScan) -> None:
    """Epochs never fall inside a log. The batch CRC leaves them out, so a flipped bit there shows only this way."""
    epochs = [pair for pair in scan.epochs if pair[0] != NO_EPOCH]
    for (before, _), (epoch, offset) in pairwise(epochs):
        if epoch < before:
            raise CorruptData(
                f"{path}: leader epoch {epoch} at offset {offset} after {before}; readers would drop what follows, so "
                "it is not shipped as it is"
            )
