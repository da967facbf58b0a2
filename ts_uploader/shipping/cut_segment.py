"""Cuts a segment of a deleted topic at the high watermark: whole batches below it are shipped (protocol rule 14).

The file is that of the active segment, or of a closed one that the high watermark falls into. The log is final, so the
part below does not change. The broker trims an index only when it closes a segment, so the indexes are cut here too.
"""

from collections.abc import Mapping
from dataclasses import replace

from ts_common.errors import CorruptData, SegmentChanged
from ts_common.log_format.framing import HEADER_SIZE, BatchHeader, Trailing, parse_header
from ts_common.log_format.index_files import (
    OFFSET_ENTRY_SIZE,
    TIME_ENTRY_SIZE,
    TXN_ENTRY_SIZE,
    position_for_offset,
    read_offset_index,
    read_time_index,
    read_transaction_index,
)
from ts_common.log_format.scan import SegmentScan
from ts_common.wording import counted
from ts_uploader.log_dirs.local_log import last_stable_offset
from ts_uploader.log_dirs.segment_file import OpenLog
from ts_uploader.messages.tasks import Ship


def cut_segment(log: OpenLog, indexes: Mapping[str, bytes], base: int, cut: int) -> tuple[OpenLog, dict[str, bytes]]:
    """Return a log that ends with its last batch below an offset, and the indexes of that part.

    Args:
        log: the whole file.
        indexes: of the whole file.
        base: base offset of the segment.

    Raises:
        CorruptData: anything but a batch lies below the offset.
    """
    entries = read_offset_index(indexes[".index"])
    try:
        size = _size_below(log, position_for_offset(entries, base, cut), cut)
    except CorruptData:  # a wrong index costs a walk over all headers
        size = _size_below(log, 0, cut)
    times = read_time_index(indexes[".timeindex"])
    kept = {
        ".index": OFFSET_ENTRY_SIZE * sum(position < size for _, position in entries),
        ".timeindex": TIME_ENTRY_SIZE * sum(base + relative < cut for _, relative in times),
    }
    if ".txnindex" in indexes:
        aborts = read_transaction_index(indexes[".txnindex"])
        kept[".txnindex"] = TXN_ENTRY_SIZE * sum(entry.last_offset < cut for entry in aborts)
    return replace(log, size=size), {suffix: indexes[suffix][:length] for suffix, length in kept.items()}


def cut_end(task: Ship, log: OpenLog, scan: SegmentScan) -> int:
    """Return the end of the coverage of a segment that was cut.

    Raises:
        SegmentChanged: the broker recovered the log meanwhile, and cut it.
        CorruptData: the part contains no batch, or batches that contradict its name.
    """
    if log.is_shorter:
        raise SegmentChanged(f"{log.path} was cut while it was read")
    end, first = scan.end_offset, scan.base_offset
    if end is None or first is None or scan.corrupt_batches:
        raise CorruptData(f"{log.path}: a damaged batch, or none, in its first {counted(scan.size, 'byte')}")
    if first < task.base or end > (task.cut or 0):
        raise CorruptData(f"{log.path}: its batches are from {first} to {end}, expected [{task.base}, {task.cut})")
    return end


def stable_offset(task: Ship, scan: SegmentScan, end: int) -> int | None:
    """Return the last stable offset at the end of a segment's coverage; None if it is unknown.

    A segment that was cut has no producer snapshot at its end. The one at its base counts if no transaction is in the
    segment.
    """
    directory = task.listing.directory
    if task.cut is None:
        return last_stable_offset(directory, end)
    stable = None if scan.has_transactions else last_stable_offset(directory, task.base)
    return end if stable == task.base else stable


def _size_below(log: OpenLog, position: int, cut: int) -> int:
    """Return the position of the first batch from `position` on that ends above an offset, or the end of the last."""
    while position < log.size:
        head = log.read_at(position, min(HEADER_SIZE, log.size - position))
        header = parse_header(head, 0, log.size - position, position)
        if header is Trailing.TORN:
            raise CorruptData(f"{log.path}: no whole batch at position {position}")
        if not isinstance(header, BatchHeader) or header.last_offset >= cut:
            break
        position += header.size_in_bytes
    return position
