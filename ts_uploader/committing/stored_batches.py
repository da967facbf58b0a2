"""Reads the last batch of a stored segment, found by its index."""

from dataclasses import dataclass

from ts_common.archive.catalog import StoredSegment
from ts_common.archive.fetch import ResumableReader
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.small_objects import read_index
from ts_common.log_format.framing import HEADER_SIZE
from ts_common.log_format.index_files import position_for_offset, read_offset_index
from ts_common.store.contract import ObjectStore
from ts_uploader.log_dirs.local_batches import batch_header


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch with its bytes, and the offset of its last record."""

    last_offset: int
    data: bytes


def last_batch(store: ObjectStore, keys: PartitionKeys, segment: StoredSegment, below: int) -> StoredBatch | None:
    """Return the last batch of a stored segment that ends below an offset; None without one."""
    position = 0
    if ".index" in segment.suffixes:
        index = read_index(store, keys, segment.name, ".index")
        entries = () if index is None else read_offset_index(index)
        position = position_for_offset(entries, segment.name.base, below - 1)
    key = keys.segment(segment.name)
    found = None
    with ResumableReader(store, key, position) as reader:
        data = b""
        while True:
            data += _read(reader, HEADER_SIZE - len(data))
            header = batch_header(data, segment.size - position, position, key)
            if header is None or header.last_offset >= below:
                return found
            data += _read(reader, header.size_in_bytes - len(data))
            found = StoredBatch(header.last_offset, data[: header.size_in_bytes])
            data = data[header.size_in_bytes :]
            position += header.size_in_bytes


def _read(reader: ResumableReader, size: int) -> bytes:
    """Return `size` bytes, or fewer at the end of the object."""
    data = b""
    while len(data) < size and (piece := reader.read(size - len(data))):
        data += piece
    return data
