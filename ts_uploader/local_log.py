"""One partition's files on the broker's disk, opened and read; the listing of names is `watch.scan`'s.

Everything here may be renamed, replaced or gone while it is read: the broker works on. Files are opened without
following links (one could lead out of the log dirs; Kafka writes none), and what is held open survives an unlink. What
retention or DeleteRecords took bears `.deleted` until it goes, each of a segment's four files on its own.
"""

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ts_common.epochs import EpochLine
from ts_common.errors import CorruptData, SegmentChanged
from ts_common.log_format.checkpoints import parse_leader_epoch_checkpoint, parse_offset_checkpoint
from ts_common.log_format.index_files import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE, read_offset_index, read_time_index
from ts_common.log_format.scan import scan_segment
from ts_common.log_format.snapshot import first_unstable_offset
from ts_common.model import TopicPartition
from ts_common.object_keys import INDEX_SUFFIXES, LOG_SUFFIX

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_LAST_ENTRIES = 64  # of an index: some hundred KiB of log
_DELETED = ".deleted"
_EPOCHS = "leader-epoch-checkpoint"
_LOG_STARTS = "log-start-offset-checkpoint"


@dataclass(frozen=True, slots=True)
class OpenLog:
    """A `.log` file held open, so that neither a rename nor an unlink takes it away.

    Attributes:
        path: under which it was opened.
        descriptor: open for reading.
        inode: of the file.
        size: bytes, when it was opened.
        age_seconds: since it was written last, when it was opened.
    """

    path: Path
    descriptor: int
    inode: int
    size: int
    age_seconds: float

    def reader(self, position: int = 0) -> "Reader":
        """A reader of its own over the bytes from `position` on."""
        return Reader(self.descriptor, self.size, position)

    @property
    def is_whole(self) -> bool:
        """Whether it still has the size that it was opened with."""
        return os.fstat(self.descriptor).st_size == self.size

    @property
    def stands(self) -> bool:
        """Whether its path still leads to it."""
        try:
            status = self.path.stat(follow_symlinks=False)
        except FileNotFoundError:
            return False
        return (status.st_ino, status.st_size) == (self.inode, self.size)


class Reader:
    """A reader over an open descriptor with a position of its own, so that attempts do not disturb each other."""

    def __init__(self, descriptor: int, size: int, position: int = 0) -> None:
        self._descriptor = descriptor
        self._size = size
        self._position = position

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes from the position on."""
        wanted = self._size - self._position if size < 0 else size
        data = os.pread(self._descriptor, wanted, self._position)
        self._position += len(data)
        return data

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill `buffer` from the position on, as far as the file goes."""
        count = os.preadv(self._descriptor, [buffer], self._position)
        self._position += count
        return count

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """As `io.IOBase.seek`."""
        self._position = (0, self._position, self._size)[whence] + offset
        return self._position

    def tell(self) -> int:
        """The position."""
        return self._position


@contextmanager
def open_log(directory: Path, base: int) -> Iterator[OpenLog]:
    """Open a segment's `.log`, or what is left of it under its `.deleted` name.

    Raises:
        SegmentChanged: it is gone, or no regular file.
    """
    descriptor, path = _open(directory, base, LOG_SUFFIX)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise SegmentChanged(f"{path} is no regular file")
        yield OpenLog(path, descriptor, status.st_ino, status.st_size, max(0.0, time.time() - status.st_mtime))
    finally:
        os.close(descriptor)


def open_file(path: Path) -> BinaryIO:
    """Open a file of the broker's for reading.

    Raises:
        OSError: it is not there, cannot be read, or is a symbolic link.
    """
    return os.fdopen(os.open(path, _FLAGS), "rb")


def read_file(path: Path) -> bytes:
    """All bytes of a small file of the broker's; raises as `open_file`."""
    with open_file(path) as file:
        return file.read()


def read_indexes(directory: Path, base: int) -> dict[str, bytes]:
    """The index files that stand beside a log; at most 10 MB each, and trimmed once the segment is closed.

    Raises:
        SegmentChanged: `.index` or `.timeindex` is gone; `.txnindex` exists only where a transaction was aborted.
    """
    found = {}
    for suffix in INDEX_SUFFIXES:
        try:
            descriptor, _ = _open(directory, base, suffix)
        except SegmentChanged:
            if suffix == ".txnindex":
                continue
            raise
        with os.fdopen(descriptor, "rb") as file:
            found[suffix] = file.read()
    return found


def local_epochs(directory: Path) -> EpochLine | None:
    """The broker's `leader-epoch-checkpoint`; None where there is none (old magic), or none that can be read."""
    try:
        pairs = parse_leader_epoch_checkpoint(read_file(directory / _EPOCHS))
    except (FileNotFoundError, CorruptData):
        return None
    # Of epochs that begin at one offset only the last wrote anything.
    starts = dict(sorted((start, epoch) for epoch, start in pairs))
    return EpochLine(tuple((epoch, start) for start, epoch in starts.items()))


def last_stable_offset(directory: Path, end: int) -> int | None:
    """The last stable offset at `end`, by the producer snapshot there; None without a readable one."""
    try:
        unstable = first_unstable_offset(read_file(directory / f"{end:020d}.snapshot"))
    except (FileNotFoundError, CorruptData):
        return None
    return end if unstable is None else min(unstable, end)


def log_end(directory: Path, active: int) -> int:
    """Where the local log ends: behind the last whole batch of the active segment. The broker may append meanwhile.

    Raises:
        SegmentChanged: the active segment is gone.
    """
    with open_log(directory, active) as log:
        entries = last_index_entries(directory, active)
        # From the last index entry on there are only a few batches; an entry that leads nowhere costs a whole scan.
        for position in (entries[-1][1] if entries else 0, 0):
            if position < log.size:
                end = scan_segment(log.reader(position), log.size - position).end_offset
                if end is not None:
                    return max(end, active)
    return active


def last_index_entries(directory: Path, base: int) -> tuple[tuple[int, int], ...]:
    """The last entries of a segment's `.index`, as `read_offset_index`; empty where there is none.

    A closed segment's index is trimmed, so its end suffices. That of the active one ends in zeros: it is read whole.
    """
    try:
        with open_file(directory / f"{base:020d}.index") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - size % OFFSET_ENTRY_SIZE - _LAST_ENTRIES * OFFSET_ENTRY_SIZE))
            found = read_offset_index(file.read())
            if not found:
                file.seek(0)
                found = read_offset_index(file.read())
            return found
    except FileNotFoundError:
        return ()


def largest_timestamp(directory: Path, base: int) -> int | None:
    """The largest record timestamp of a closed segment, ms, with which its time index ends; None without one."""
    try:
        with open_file(directory / f"{base:020d}.timeindex") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - size % TIME_ENTRY_SIZE - TIME_ENTRY_SIZE))
            entries = read_time_index(file.read(TIME_ENTRY_SIZE))
    except OSError:
        return None
    return entries[-1][0] if entries and entries[-1][0] > 0 else None


def log_start_by_request(log_dir: Path, partition: TopicPartition) -> int | None:
    """The log start offset that DeleteRecords set inside a segment; None where the broker's checkpoint names none.

    Kafka writes `log-start-offset-checkpoint` for logs that begin inside their first segment, every minute or so.
    """
    try:
        offsets = parse_offset_checkpoint(read_file(log_dir / _LOG_STARTS))
    except (FileNotFoundError, CorruptData):
        return None
    return offsets.get((partition.topic, partition.partition))


def _open(directory: Path, base: int, suffix: str) -> tuple[int, Path]:
    """A descriptor and the path that it was opened under: the live name or, where that is gone, the `.deleted` one."""
    live = directory / f"{base:020d}{suffix}"
    for path in (live, live.with_name(live.name + _DELETED)):
        try:
            return os.open(path, _FLAGS), path
        except FileNotFoundError:
            continue
    raise SegmentChanged(f"{live} is gone")
