"""The body of a merged object: batches of the broker's logs, and of other objects of the tail.

Most batches that a merge copies are still in the newest file of a log. There they follow each other as in the merged
object, and the page cache has them. To read them from it costs half of the processor time, and no request. Batches that
are elsewhere are read object after object into a file without a name: the object of a merge is larger than the agent's
memory may be.

The broker can truncate or delete a log meanwhile. So what was read of it counts only with the CRC-32C of the packs, and
while its leader epoch checkpoint is the same.
"""

import os
import tempfile
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from awscrt.checksums import crc32c

from ts_common.archive.tail_chain import TailEntry
from ts_common.errors import SegmentChanged
from ts_uploader.log_dirs.local_log import EpochsMark, epochs_mark
from ts_uploader.log_dirs.segment_file import open_log

_WINDOW_BYTES: Final = 1 << 20


class LogPlace(NamedTuple):
    """A place between two batches of a broker's log.

    Attributes:
        directory: of the partition.
        base: of the file.
        epoch: leader epoch of the leadership that reads the log.
        end: the offset after the batch before.
        position: in the file.
        mark: of the leader epoch checkpoint while the log was read up to there.
    """

    directory: str
    base: int
    epoch: int
    end: int
    position: int
    mark: EpochsMark


class LogsAtHand:
    """The broker's logs, as far as entries lead to the places that are known.

    Args:
        places: by directory: where its newest entry ends.
        entries: of any directories. Those that follow each other up to a place are in its file, as far as that reaches.
    """

    def __init__(self, places: Mapping[str, LogPlace], entries: Iterable[TailEntry] = ()) -> None:
        self._places = places
        self._entries = entries
        self._before: dict[tuple[str, int], TailEntry] | None = None  # by directory and end

    def find(self, directory: str, epoch: int, end: int) -> LogPlace | None:
        """Return where an entry of a leadership ends in its log; None if that is unknown, or in another file."""
        place = self._places.get(directory)
        if place is None or place.epoch != epoch:
            return None
        while place.end > end:
            if self._before is None:  # most merges are of the newest entries
                self._before = {(entry.directory, entry.end): entry for entry in self._entries}
            entry = self._before.get((directory, place.end))
            if entry is None or entry.epoch != epoch or entry.length > place.position:
                return None
            place = place._replace(end=entry.start, position=place.position - entry.length)
        return place if place.end == end else None


class _Log(NamedTuple):
    """Where a part begins in a broker's log, and the checksum of its bytes."""

    place: LogPlace
    crc32c: int


class MergedBody:
    """The body of an object: its beginning, and parts as they were added; a `Body` of the store.

    Attributes:
        beginning: the bytes before the first part.

    Args:
        directory: for a file without a name; None for that of the host.
    """

    def __init__(self, directory: str | None) -> None:
        self.beginning = b""
        self._starts = array("q", [0])  # of each part, and the end of the last one
        self._places = array("q")  # of each part in the file
        self._logs: dict[int, _Log] = {}  # by the number of the part
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115  (`close` closes it)
        self._end = 0  # of the file
        self._position = 0
        self._window = memoryview(bytearray(_WINDOW_BYTES))
        self._number = -1  # of the part that the window has bytes of
        self._first = self._until = self._checksum = 0  # its bytes in the window, and the checksum of all up to them

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return self._starts[-1]

    def add(self, length: int, log: LogPlace | None = None, checksum: int = 0) -> int:
        """Add a part; return its number.

        Args:
            log: where it begins in a log; None if it will be appended to the file.
            checksum: CRC-32C of its bytes in a log.
        """
        number = len(self._places)
        if log is not None:
            self._logs[number] = _Log(log, checksum)
        self._places.append(0)
        self._starts.append(self.size + length)
        return number

    def begin(self, number: int, ahead: int) -> None:
        """Note that a part begins so many bytes behind the end of the file."""
        self._places[number] = self._end + ahead

    def append(self, piece: memoryview) -> None:
        """Write bytes to the end of the file."""
        while piece:
            done = os.pwrite(self._file.fileno(), piece, self._end)
            piece, self._end = piece[done:], self._end + done

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes from the position on.

        Raises:
            SegmentChanged: a broker's log has not the bytes of a part any more.
        """
        begin, end = self._position, len(self.beginning) + self.size
        end = end if size < 0 else min(begin + size, end)
        pieces = [self.beginning[begin:end]] if begin < len(self.beginning) else []
        begin, end = max(0, begin - len(self.beginning)), end - len(self.beginning)
        number = bisect_right(self._starts, begin) - 1
        while begin < end:
            start, until = self._starts[number], min(self._starts[number + 1], end)
            if log := self._logs.get(number):
                piece = self._read_log(number, log, begin - start, until - start)
            else:
                piece = os.pread(self._file.fileno(), until - begin, self._places[number] + begin - start)
            pieces.append(piece)
            begin += len(piece)
            number += begin == self._starts[number + 1]
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._position += len(data)
        return data

    def _read_log(self, number: int, log: _Log, begin: int, end: int) -> bytes:
        """Return some bytes of a part that is in a broker's log."""
        length = self._starts[number + 1] - self._starts[number]
        if number != self._number or begin < self._first:
            self._until = self._checksum = 0  # the checksum is of all its bytes
        while self._until <= begin:
            self._number, self._first = -1, self._until  # a client that repeats a request reads all of it again
            with open_log(log.place.directory, log.place.base) as file:
                window = self._window[: length - self._first]
                self._until += file.read_into(window, log.place.position + self._first)
            if self._until - self._first < len(window):
                raise SegmentChanged(f"{file.path}: shorter than it was")
            self._checksum = crc32c(window, self._checksum)
            if self._until == length and self._checksum != log.crc32c:
                raise SegmentChanged(f"{file.path}: has not the batches that were shipped from {log.place.position} on")
            if epochs_mark(log.place.directory) != log.place.mark:
                raise SegmentChanged(f"{file.path}: the leader epoch checkpoint changed since it was shipped")
            self._number = number
        return bytes(self._window[begin - self._first : min(end, self._until) - self._first])

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move the position, as `io.IOBase.seek`."""
        self._position = (0, self._position, len(self.beginning) + self.size)[whence] + offset
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def close(self) -> None:
        """Free its bytes."""
        self._file.close()
