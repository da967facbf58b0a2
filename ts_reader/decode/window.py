"""A window on an object that is mostly read from front to back, with some jumps."""

from collections.abc import Iterator
from typing import Final, Protocol

from awscrt.checksums import crc32c

WINDOW_BYTES: Final = 4 << 20


class Source(Protocol):
    """The bytes of an object; sequential reads are the fastest."""

    def read(self, position: int, count: int) -> bytes:
        """Return one to `count` bytes from `position` on, which is inside the object."""


class Window:
    """A part of the object in memory; each byte is added to the object's CRC once, in order."""

    def __init__(self, source: Source, size: int) -> None:
        self._source = source
        self._size = size
        self._data = b""
        self._start = 0
        self._crc = 0
        self._crc_end = 0

    def hold(self, position: int, count: int) -> bytes:
        """Return `count` bytes from a position on, or fewer at the end of the object."""
        count = max(min(count, self._size - position), 0)
        begin = position - self._start
        if begin < 0 or begin + count > len(self._data):
            kept = self._data[begin:] if 0 <= begin <= len(self._data) else b""
            self._start, pieces, held = position, [kept], len(kept)
            while held < count:
                pieces.append(self._read(position + held, max(count - held, WINDOW_BYTES)))
                held += len(pieces[-1])
            self._data, begin = b"".join(pieces), 0
        return self._data[begin : begin + count]

    def pieces(self, start: int, end: int) -> Iterator[memoryview]:
        """Yield the bytes `[start, end)` in pieces."""
        while start < end:
            if not self._start <= start < self._start + len(self._data):
                self.hold(start, 1)
            begin = start - self._start
            piece = memoryview(self._data)[begin : begin + end - start]
            yield piece
            start += len(piece)

    def is_zero_from(self, position: int) -> bool:
        """Return whether all bytes from a position on are zero."""
        return all(not bytes(piece).strip(b"\0") for piece in self.pieces(position, self._size))

    def object_crc32c(self) -> int:
        """Return the CRC-32C of all bytes; reads the bytes that were skipped."""
        while self._crc_end < self._size:
            self._read(self._crc_end, WINDOW_BYTES)
        return self._crc

    def _read(self, position: int, count: int) -> bytes:
        data = self._source.read(position, min(count, self._size - position))
        if position <= self._crc_end < position + len(data):
            fresh = data[self._crc_end - position :]
            self._crc = int(crc32c(fresh, self._crc))
            self._crc_end += len(fresh)
        return data
