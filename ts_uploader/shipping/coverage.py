"""The offsets that a segment covers, found after its file was read (protocol rules 2 and 10).

The broker works on while the agent reads. The bytes may change: then the inode, the size or the listing changed, and
these are compared after reading. If the log cleaner removed the tail, the file does not show where the coverage ends.
The base of the next live segment does, on three conditions: the file was opened under its live name, a whole listing
after reading shows that base next, and the live name still leads to the file. `.cleaned` and `.deleted` files do not
delay this: the cleaner copies for hours, and the broker keeps `.deleted` files for `file.delete.delay.ms`.

A file under its `.deleted` name is shipped only if no live segment is at or below its base. Then retention removed it,
not the cleaner. The tracker guarantees that it belongs to the live log: the agent listed it live in this leadership,
or it hangs on a live segment (`ts_uploader.log_dirs.hanging`).

So the directory of one segment is listed several times by design: by the watcher, again here after reading, and until
two listings agree where the listing has to be whole (`ts_uploader.log_dirs.directory_scan.whole_listing`).
"""

from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

from ts_common.archive.epoch_history import NO_EPOCH
from ts_common.errors import CorruptData, SegmentChanged
from ts_common.log_format.framing import Trailing
from ts_common.log_format.scan import SegmentScan
from ts_common.wording import counted
from ts_uploader.log_dirs.directory_scan import list_partition, whole_listing
from ts_uploader.log_dirs.leader_epoch import check_leader_epoch
from ts_uploader.log_dirs.scan_cache import file_state
from ts_uploader.log_dirs.segment_file import OpenLog, open_log
from ts_uploader.messages.observations import Listing
from ts_uploader.messages.tasks import Ship


def open_segment(task: Ship, opened: ExitStack) -> OpenLog:
    """Open the live file of a segment, or its `.deleted` file where the task allows it.

    Raises:
        SegmentChanged: no such file; or another file than the one that hangs has its `.deleted` name.
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
        raise SegmentChanged(f"{log.path}: another file now has the name of the one that hung on the live log")
    return log


def coverage_end(task: Ship, log: OpenLog, scan: SegmentScan) -> int:
    """Return the end of a segment's coverage.

    Args:
        task: the segment, with its listing.
        log: its file, which was read.

    Raises:
        SegmentChanged: file, neighbour or leadership no longer match the task: list the directory again.
        CorruptData: the file contains no batch, or batches that contradict its name.
    """
    _check_epochs(log.path, scan)
    if scan.end_offset is None and (scan.trailing is Trailing.TORN or scan.corruption):
        raise CorruptData(f"{log.path}: no batch in its {counted(scan.size, 'byte')}; see the broker's own log check")
    if scan.base_offset is not None and scan.base_offset < task.base:
        raise CorruptData(f"{log.path}: its first batch is at {scan.base_offset}, below the {task.base} of its name")
    reach = scan.end_offset
    # Compaction removed the tail, or every batch, if the neighbour follows. Bytes that are no batch are not coverage.
    by_neighbour = reach is None or (reach < task.next_base and not _tail_is_damaged(scan))
    if not log.deleted:
        now = whole_listing(task.listing) if by_neighbour else _listing(task)
        if log.keeps_its_name:
            return _live_end(task, now, None if by_neighbour else reach)
    return _taken_end(task, log, reach, by_neighbour=by_neighbour)


def _live_end(task: Ship, now: Listing, reach: int | None) -> int:
    """Return the coverage's end for a live file that is unchanged after the listing.

    Args:
        now: listing from after the file was read; whole, if the neighbour bounds the coverage.
        reach: the end of the last batch; None if the neighbour bounds the coverage.
    """
    path = task.listing.directory / f"{task.base:020d}"
    # A log that was truncated and filled again by another leader can have the same names.
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
    """Return the coverage's end for a file that retention renamed to `.deleted`, or unlinked since it was opened."""
    now = whole_listing(task.listing)
    if task.base in now.bases:
        raise SegmentChanged(f"{log.path} was replaced or cut while it was read")
    if not now.bases or now.bases[0] <= task.base:
        raise SegmentChanged(f"{log.path} no longer exists, and retention did not remove it")
    check_leader_epoch(now, task.leadership)
    if not log.is_whole or (log.deleted and not log.keeps_its_name):
        raise SegmentChanged(f"{log.path} was replaced or cut while it was read")
    if by_neighbour and task.seen:
        if now.bases[0] < task.next_base:
            raise SegmentChanged(f"{log.path}: {now.bases[0]} is live, and did not follow it while it was live")
        return task.next_base
    # Only its own batches count. They may reach beyond the listed neighbour if the cleaner merged the two since.
    if reach is None:
        raise SegmentChanged(f"{log.path} no longer exists; it was empty, and its neighbour is unknown")
    if reach > now.bases[0]:
        raise CorruptData(f"{log.path}: its last batch ends at {reach}, and {now.bases[0]} is the lowest live segment")
    return reach


def _listing(task: Ship) -> Listing:
    listing = list_partition(task.partition, task.listing.log_dir, task.listing.renamed)
    if listing is None or listing.identity != task.listing.identity:
        raise SegmentChanged(f"{task.listing.directory} no longer exists, or is another directory now")
    return listing


def _tail_is_damaged(scan: SegmentScan) -> bool:
    """Return whether anything but zero bytes follows the last good batch; earlier damage does not change the end."""
    unlisted = scan.corrupt_batches > len(scan.corruption) and scan.valid_bytes < scan.size
    behind = any(position >= scan.valid_bytes for position, _ in scan.corruption)
    return scan.trailing is Trailing.TORN or behind or unlisted


def _check_epochs(path: Path, scan: SegmentScan) -> None:
    """Raise CorruptData if a leader epoch falls: no CRC covers it, so a flipped bit there shows only this way."""
    epochs = [pair for pair in scan.epochs if pair[0] != NO_EPOCH]
    for (before, _), (epoch, offset) in pairwise(epochs):
        if epoch < before:
            raise CorruptData(
                f"{path}: leader epoch {epoch} at offset {offset} after {before}; the segment is not shipped, because "
                "readers would drop the batches that follow"
            )
