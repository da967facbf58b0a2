"""Reads one partition's files on the broker's disk, by `segment_file`; `directory_scan` lists their names.

The broker may rename, replace or remove any file while it is read.
"""

import os
import struct
from pathlib import Path

from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import INDEX_SUFFIXES
from ts_common.errors import CorruptData, SegmentChanged
from ts_common.log_format.checkpoints import parse_leader_epoch_checkpoint, parse_offset_checkpoint
from ts_common.log_format.index_files import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE, read_offset_index, read_time_index
from ts_common.log_format.scan import scan_segment
from ts_common.model import TopicPartition
from ts_uploader.log_dirs.producer_snapshot import first_unstable_offset
from ts_uploader.log_dirs.segment_file import open_file, open_index, open_log, read_all, read_file, read_last

EpochsMark = bytes
"""Device, inode, time of modification (ns), time of change (ns) and size of a `leader-epoch-checkpoint`."""

_MARK = struct.Struct("=QQQQq")
_64_BITS = (1 << 64) - 1
_LAST_ENTRIES = 64  # of an index: about a hundred KiB of log
LEADER_EPOCHS = "leader-epoch-checkpoint"
_LOG_STARTS = "log-start-offset-checkpoint"


def read_indexes(directory: Path, base: int, *, deleted: bool = False) -> dict[str, bytes]:
    """Return the content of a segment's index files; at most 10 MB each, trimmed once the segment is closed.

    Args:
        base: base offset of the segment.
        deleted: the `.log` has its `.deleted` name. The four files are renamed one by one, the `.log` first, so the
            others are then read under either name. If the `.log` is live, a `.txnindex.deleted` is of an older file.

    Raises:
        SegmentChanged: `.index` or `.timeindex` no longer exists; `.txnindex` exists only after an aborted transaction.
    """
    found = {}
    for suffix in INDEX_SUFFIXES:
        try:
            descriptor = open_index(directory, base, suffix, deleted=deleted)
        except SegmentChanged:
            if suffix == ".txnindex":
                continue
            raise
        try:
            found[suffix] = read_all(descriptor)
        finally:
            os.close(descriptor)
    return found


def closed_at(directory: Path, base: int) -> float | None:
    """Return when the broker closed a segment, seconds since the epoch; None without its time index.

    Kafka preallocates a segment's time index and truncates it when the next segment begins
    (`LogSegment.onBecomeInactiveSegment`, `AbstractIndex.trimToValidSize`). That is the last write to it. A broker that
    recovers from a crash, and the log cleaner, write it again; then the time is later.
    """
    try:
        descriptor = open_index(directory, base, ".timeindex", deleted=True)
    except SegmentChanged:
        return None
    try:
        return os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)


def epochs_mark(directory: Path | str) -> EpochsMark | None:
    """Return a value that changes with the `leader-epoch-checkpoint`; None if the file is missing or unreadable.

    The broker replaces the file by a rename each time that the list changes.
    """
    try:
        status = os.stat(f"{directory}/{LEADER_EPOCHS}", follow_symlinks=False)  # noqa: PTH116  (ten thousand at a time)
    except OSError:
        return None
    # Packed: an agent keeps ten thousand of them. From the year 2262 on, nanoseconds need 64 bits.
    times = (status.st_mtime_ns & _64_BITS, status.st_ctime_ns & _64_BITS)
    return _MARK.pack(status.st_dev, status.st_ino, *times, status.st_size)


def local_epochs(directory: Path | str) -> EpochHistory | None:
    """Return the broker's `leader-epoch-checkpoint`; None if it does not exist, as for a log of magic 0 or 1.

    Raises:
        CorruptData: the file does not parse.
        OSError: the file cannot be read, so its content is unknown.
    """
    try:
        pairs = parse_leader_epoch_checkpoint(read_file(f"{directory}/{LEADER_EPOCHS}"))
    except FileNotFoundError:
        return None
    # Of epochs that begin at one offset only the last wrote records.
    starts = dict(sorted((start, epoch) for epoch, start in pairs))
    return EpochHistory(tuple((epoch, start) for start, epoch in starts.items()))


def last_stable_offset(directory: Path, end: int) -> int | None:
    """Return the last stable offset at `end`, by the producer snapshot there; None without a readable one."""
    try:
        unstable = first_unstable_offset(read_file(directory / f"{end:020d}.snapshot"))
    except (FileNotFoundError, CorruptData):
        return None
    return end if unstable is None else min(unstable, end)


def log_end(directory: Path, active: int) -> int:
    """Return the end of the local log: after the last whole batch of the active segment, which may still grow.

    Raises:
        SegmentChanged: the active segment no longer exists.
    """
    with open_log(directory, active) as log:
        entries = last_index_entries(directory, active)
        # Only a few batches follow the last index entry; a wrong entry costs a whole scan.
        for position in (entries[-1][1] if entries else 0, 0):
            if position < log.size:
                end = scan_segment(log.reader(position), log.size - position).end_offset
                if end is not None:
                    return max(end, active)
    return active


def last_index_entries(directory: Path, base: int) -> tuple[tuple[int, int], ...]:
    """Return the last entries of a segment's `.index`, as `read_offset_index` does; empty without an index.

    A closed segment's index is trimmed, so its end is enough. That of the active one ends in zeros and is read whole.
    """
    try:
        with open_file(directory / f"{base:020d}.index") as index:
            found = read_offset_index(read_last(index, OFFSET_ENTRY_SIZE, _LAST_ENTRIES))
            return found or read_offset_index(read_all(index))
    except FileNotFoundError:
        return ()


def largest_timestamp(directory: Path, base: int) -> int | None:
    """Return the largest record timestamp of a closed segment in ms, the last entry of its time index; None without."""
    try:
        with open_file(directory / f"{base:020d}.timeindex") as index:
            entries = read_time_index(read_last(index, TIME_ENTRY_SIZE, 1))
    except OSError:
        return None
    return entries[-1][0] if entries and entries[-1][0] > 0 else None


def log_start_by_request(log_dir: Path, partition: TopicPartition) -> int | None:
    """Return the log start offset that DeleteRecords set inside a segment; None if the checkpoint has no entry.

    Kafka writes `log-start-offset-checkpoint` for logs that begin inside their first segment, about once a minute.
    """
    try:
        offsets = parse_offset_checkpoint(read_file(log_dir / _LOG_STARTS))
    except (FileNotFoundError, CorruptData):
        return None
    return offsets.get((partition.topic, partition.partition))
