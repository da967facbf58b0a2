"""The transactional batches of a segment, by their headers; only markers have their records read."""

from collections.abc import Iterator
from typing import Final

from ts_common.archive.copies import SegmentCopy
from ts_common.archive.fetch import ResumableReader, translate_not_found
from ts_common.errors import CorruptData
from ts_common.log_format.framing import HEADER_SIZE, NO_PRODUCER, BatchHeader, batch_crc, crc_start, parse_header
from ts_common.store.contract import ObjectStore
from ts_reader.decode.window import Window

_MARKERS_BYTES: Final = 1 << 20  # a broker writes a control batch of 78 bytes


def read_transactional(
    store: ObjectStore, copy: SegmentCopy, start: int, end: int
) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yield the headers of the transactional batches of a copy in `[start, end)`, with the records of markers.

    Other batches are not kept in memory, because by its header one batch may be as long as the segment.

    Raises:
        CorruptData: a header cannot be parsed, or a CRC is wrong.
        ObjectNotFound, StoreUnavailable, AccessDenied: from reading the object.
    """
    where, size = f"{copy.key} in {store.location}", copy.segment.size
    with translate_not_found(store, copy.key), copy.reader(store) as reader:
        window, position = Window(_InOrder(reader, where), size), 0
        while position < size:
            try:
                header = parse_header(window.hold(position, HEADER_SIZE), 0, size - position, position)
            except CorruptData as error:
                raise CorruptData(f"{where}: {error}") from error
            if not isinstance(header, BatchHeader) or header.base_offset >= end:
                return
            behind, crc = position + header.size_in_bytes, 0
            is_wanted = header.is_transactional and header.producer_id != NO_PRODUCER and header.last_offset >= start
            markers = b""
            if is_wanted and header.is_control:
                if header.size_in_bytes > _MARKERS_BYTES:
                    raise CorruptData(f"{where}: {header.size_in_bytes} bytes of markers at position {position}")
                markers = window.hold(position, header.size_in_bytes)[HEADER_SIZE:]
            for piece in window.pieces(position + crc_start(header.magic), behind):
                crc = batch_crc(header.magic, piece, crc)
            if crc != header.crc:
                raise CorruptData(f"{where}: wrong CRC in the batch at position {position}")
            if is_wanted:
                yield header, markers
            position = behind


class _InOrder:
    """An object that is read from front to back, as a source of a window."""

    def __init__(self, reader: ResumableReader, where: str) -> None:
        self._reader = reader
        self._where = where

    def read(self, position: int, count: int) -> bytes:
        """Return the next bytes; a window that never jumps reads no others."""
        data = self._reader.read(count)
        if not data:
            raise CorruptData(f"{self._where}: ends at byte {position}; its listed size is greater")
        return data
