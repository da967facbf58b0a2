"""The transactional batches of a segment, by their headers; records are read of markers only."""

from collections.abc import Iterator

from ts_common.catalog import SegmentCopy
from ts_common.errors import CorruptData
from ts_common.fetch import CHUNK_BYTES, ResumableReader, explained_where_gone
from ts_common.log_format.framing import HEADER_SIZE, NO_PRODUCER, BatchHeader, batch_crc, crc_start, parse_header
from ts_common.store.contract import ObjectStore


def read_transactional(
    store: ObjectStore, copy: SegmentCopy, start: int, end: int
) -> Iterator[tuple[BatchHeader, bytes]]:
    """Headers of the transactional batches of a copy in `[start, end)`, with the records of markers.

    Raises:
        CorruptData: a batch that is none, or a wrong CRC.
        ObjectNotFound, StoreUnavailable, AccessDenied: from reading it.
    """
    where, size = copy.key, copy.segment.size
    with explained_where_gone(store, where), ResumableReader(store, where) as reader:
        position, data = 0, memoryview(b"")
        while position < size:
            if len(data) < min(HEADER_SIZE, size - position):
                data = memoryview(bytes(data) + _next_chunk(reader, where, position))
                continue
            try:
                header = parse_header(data, 0, size - position, position)
            except CorruptData as error:
                raise CorruptData(f"{where} in {store.location}: {error}") from error
            if not isinstance(header, BatchHeader) or header.base_offset >= end:
                return
            while len(data) < header.size_in_bytes:
                data = memoryview(bytes(data) + _next_chunk(reader, where, position))
            if batch_crc(header.magic, data[crc_start(header.magic) : header.size_in_bytes]) != header.crc:
                raise CorruptData(f"{where} in {store.location}: wrong CRC in the batch at position {position}")
            if header.is_transactional and header.producer_id != NO_PRODUCER and header.last_offset >= start:
                yield header, bytes(data[HEADER_SIZE : header.size_in_bytes]) if header.is_control else b""
            data = data[header.size_in_bytes :]
            position += header.size_in_bytes


def _next_chunk(reader: ResumableReader, where: str, position: int) -> bytes:
    data = reader.read(CHUNK_BYTES)
    if not data:
        raise CorruptData(f"{where}: ends in the batch at position {position}")
    return data
