"""Opens and reads the broker's files: the only place that does, without following links or changing the page cache.

A link could lead out of the log dirs, and Kafka writes none, so links are not followed. An open file survives an
unlink. Files that retention or DeleteRecords removed have `.deleted` names until the broker unlinks them; each of a
segment's four files is renamed by itself. Pages that reading added to the page cache are dropped when the file is
closed (`page_cache`).
"""

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from ts_common.archive.object_keys import LOG_SUFFIX
from ts_common.errors import SegmentChanged
from ts_uploader.log_dirs.page_cache import SMALL_BYTES, PulledPages

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_DELETED = ".deleted"
# Distance of the read-ahead: enough that disk and network work at once.
_AHEAD_BYTES: Final = 1 << 20


@dataclass(slots=True)  # a live tail opens hundreds a second, and a frozen one needs three times as long
class OpenLog:
    """A `.log` file held open, so that it survives renames and unlinks.

    Attributes:
        name: the path that it was opened by.
        descriptor: open for reading.
        size: bytes, when it was opened.
        age_seconds: since its last write, when it was opened.
        pulled: its pages that reading here added to the page cache.
        deleted: whether that path is its `.deleted` one.

    At the end of a `with` block it is closed.
    """

    name: str
    descriptor: int
    inode: int
    size: int
    age_seconds: float
    pulled: PulledPages
    deleted: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.pulled.hand_back()
        finally:
            os.close(self.descriptor)

    @property
    def path(self) -> Path:
        """The path that it was opened by."""
        return Path(self.name)

    def reader(self, position: int = 0) -> "Reader":
        """Return a new reader of the bytes from `position` on, in order."""
        return Reader(self.descriptor, self.size, position, self.pulled)

    def read_at(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes at a position; reads nothing around them."""
        if size <= SMALL_BYTES:
            return self.pulled.read(position, size)
        self.pulled.expect(position, position + size)
        return os.pread(self.descriptor, size, position)

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill a buffer from a position on, up to the end of the file; return the number of bytes."""
        self.pulled.expect(position, position + len(buffer))
        return os.preadv(self.descriptor, [buffer], position)

    @property
    def is_whole(self) -> bool:
        """Whether the file still has the size that it had when it was opened."""
        return os.fstat(self.descriptor).st_size == self.size

    @property
    def is_shorter(self) -> bool:
        """Whether the file has fewer bytes than this part of it."""
        return os.fstat(self.descriptor).st_size < self.size

    @property
    def keeps_its_name(self) -> bool:
        """Whether its path still leads to this file."""
        try:
            status = self.path.stat(follow_symlinks=False)
        except FileNotFoundError:
            return False
        return (status.st_ino, status.st_size) == (self.inode, self.size)


class Reader:
    """A reader over an open descriptor, with its own position: attempts do not disturb each other."""

    def __init__(self, descriptor: int, size: int, position: int, pulled: PulledPages) -> None:
        self._descriptor = descriptor
        self._size = size
        self._position = position
        self._pulled = pulled
        self._expected = position  # the end of the read-ahead

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes from the position on."""
        wanted = self._size - self._position if size < 0 else size
        self._look_ahead(wanted)
        data = os.pread(self._descriptor, wanted, self._position)
        self._position += len(data)
        return data

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill `buffer` from the position on, up to the end of the file; return the number of bytes."""
        self._look_ahead(len(buffer))
        count = os.preadv(self._descriptor, [buffer], self._position)
        self._position += count
        return count

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move the position; as `io.IOBase.seek`."""
        self._position = self._expected = (0, self._position, self._size)[whence] + offset
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def _look_ahead(self, size: int) -> None:
        wanted = min(self._position + size + _AHEAD_BYTES, self._size)
        while self._expected < wanted:
            behind = min(self._expected + _AHEAD_BYTES, self._size)
            self._pulled.expect(self._expected, behind)
            self._expected = behind


def open_log(directory: Path | str, base: int, *, deleted: bool = False) -> OpenLog:
    """Open a segment's `.log` under its live name, or under its `.deleted` name; use the result in a `with` block.

    The caller has to choose the name: while the cleaner replaces a segment, the `.deleted` name leads to the old file
    before the live name leads to the new one.

    Raises:
        SegmentChanged: the name does not exist, or is no regular file.
    """
    name = f"{directory}/{base:020d}{LOG_SUFFIX}{_DELETED if deleted else ''}"
    try:
        descriptor = os.open(name, _FLAGS)
    except FileNotFoundError as gone:
        raise SegmentChanged(f"{name} no longer exists") from gone
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise SegmentChanged(f"{name} is no regular file")
        age_seconds = max(0.0, time.time() - status.st_mtime)
        pulled = PulledPages(descriptor, status.st_size)
        return OpenLog(name, descriptor, status.st_ino, status.st_size, age_seconds, pulled, deleted)
    except BaseException:
        os.close(descriptor)
        raise


def open_index(directory: Path, base: int, suffix: str, *, deleted: bool) -> int:
    """Return a descriptor of one of a segment's index files.

    Args:
        base: base offset of the segment.
        deleted: try the `.deleted` name if the live name does not exist.

    Raises:
        SegmentChanged: the file does not exist.
    """
    live = directory / f"{base:020d}{suffix}"
    for path in (live, live.with_name(live.name + _DELETED))[: 2 if deleted else 1]:
        try:
            return os.open(path, _FLAGS)
        except FileNotFoundError:
            continue
    raise SegmentChanged(f"{live} no longer exists")


@contextmanager
def open_file(path: Path | str) -> Iterator[int]:
    """Open a file of the broker and yield its descriptor, for `read_all` and `read_last`.

    Raises:
        OSError: the file does not exist, is unreadable, or is a symbolic link.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_file(path: Path | str) -> bytes:
    """Return all bytes of a small file of the broker; raises as `open_file`."""
    descriptor = os.open(path, _FLAGS)
    try:
        return read_all(descriptor)
    finally:
        os.close(descriptor)


def read_part(name: str, start: int, most: int) -> tuple[bytes, int]:
    """Return up to `most` bytes of a `.log` file from a position on, and the size of the file; fewer only at its end.

    Raises:
        SegmentChanged: the name does not exist, or the file is shorter than expected.
        OSError: it cannot be read, or is a link or a directory.
    """
    try:
        descriptor = os.open(name, _FLAGS)
    except FileNotFoundError as gone:
        raise SegmentChanged(f"{name} no longer exists") from gone
    try:
        size = os.lseek(descriptor, 0, os.SEEK_END)  # a third of the time of `fstat`
        end = min(start + most, size)
        data = _read_from(descriptor, start, end) if start < end else b""
        if start + len(data) != end:
            raise SegmentChanged(f"{name}: shorter than it was")
        return data, size
    finally:
        os.close(descriptor)


def read_all(descriptor: int) -> bytes:
    """Return all bytes of an open file."""
    return _read_from(descriptor, 0, os.fstat(descriptor).st_size)


def read_last(descriptor: int, entry_bytes: int, entries: int) -> bytes:
    """Return the last whole entries of an open file, at most `entries`."""
    size = os.fstat(descriptor).st_size
    size -= size % entry_bytes
    return _read_from(descriptor, max(0, size - entries * entry_bytes), size)


def _read_from(descriptor: int, start: int, end: int) -> bytes:
    pulled = PulledPages(descriptor, end)
    try:
        if end - start <= SMALL_BYTES:
            return pulled.read(start, end - start)
        pulled.expect(start, end)
        pieces = []
        while start < end and (piece := os.pread(descriptor, end - start, start)):
            pieces.append(piece)
            start += len(piece)
        return b"".join(pieces)
    finally:
        pulled.hand_back()
