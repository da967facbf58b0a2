"""The metadata of one stored segment: read from its object, or rebuilt from its bytes.

A Java uploader writes no metadata. The reader reads as little as possible of such a segment: the first header, and the
batches from the last `.index` entry on. If these have one leader epoch, so have all batches between, because epochs
never fall inside a log. If they differ, or the index does not lead to a batch, the whole segment is read.
"""

from dataclasses import replace

from ts_common.archive.epoch_history import NO_EPOCH
from ts_common.archive.fetch import ResumableReader
from ts_common.archive.object_keys import PartitionKeys, SegmentName
from ts_common.archive.segment_metadata import SegmentMetadata, decode_metadata
from ts_common.archive.small_objects import read_index
from ts_common.errors import CorruptData
from ts_common.log_format.framing import HEADER_SIZE, BatchHeader, parse_header
from ts_common.log_format.index_files import read_offset_index
from ts_common.log_format.scan import SegmentScan, scan_segment
from ts_common.store.contract import ObjectStore
from ts_common.wording import counted

_UNKNOWN_CRC = 0


def describe_segment(
    store: ObjectStore, keys: PartitionKeys, name: SegmentName, size: int, *, has_index: bool
) -> SegmentMetadata:
    """Return the metadata of a `.log` object; rebuild it if it is missing or lacks the epochs.

    Unless the whole segment is read, it has no record count, no timestamps and a CRC-32C of 0.

    Raises:
        CorruptData: the metadata is damaged, or the segment does not begin with a batch.
        ObjectNotFound: the object does not exist.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    key = keys.segment(name)
    metadata = decode_metadata(store.head(key).metadata, key)
    if metadata is not None and metadata.epochs is not None:
        return metadata
    if metadata is not None:
        return replace(metadata, epochs=all_epochs(metadata, scan_object(store, key, size)))
    quick = _inspect_both_ends(store, keys, name, size) if has_index else None
    return quick or metadata_of(scan_object(store, key, size), name.base, key)


def all_epochs(metadata: SegmentMetadata, scan: SegmentScan) -> tuple[tuple[int, int], ...]:
    """Return the (leader epoch, first offset) pairs of a segment, also if they are too many for its metadata."""
    if metadata.epochs is not None:
        return metadata.epochs
    last, epochs = metadata.last_epoch, scan.epochs
    # Compaction can have removed all batches of the last epoch, whose offsets belong to the coverage all the same.
    if last is not None and (not epochs or (last[0] > epochs[-1][0] and last[1] > epochs[-1][1])):
        return *epochs, last
    return epochs


def scan_object(store: ObjectStore, key: str, size: int) -> SegmentScan:
    """Read a whole `.log` object, and return the scan of its batch headers.

    Raises:
        ObjectNotFound: the object does not exist.
        CorruptData: the object was replaced during the read.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    with ResumableReader(store, key) as reader:
        return scan_segment(_Filling(reader), size)


def metadata_of(scan: SegmentScan, base: int, key: str) -> SegmentMetadata:
    """Return the metadata that a scan proves: coverage ends with the last batch, and an empty segment covers nothing.

    A first batch below the segment's base has records that no consumer shows, so their number is unknown.

    Raises:
        CorruptData: the segment has bytes but no batch.
    """
    if scan.end_offset is None and scan.corruption:
        raise CorruptData(f"{key}: no batch in its {counted(scan.size, 'byte')}")
    return SegmentMetadata(
        end=base if scan.end_offset is None else scan.end_offset,
        epochs=scan.epochs,
        records=None if scan.base_offset is not None and scan.base_offset < base else scan.record_count,
        time_max=scan.max_timestamp,
        time_min=scan.min_timestamp,
        crc32c=scan.crc32c,
        corruptions=scan.corrupt_batches,
        rebuilt=True,
        timeindex=scan.timeindex_crc32c,
        control=scan.control_count,
    )


class _Filling:
    """A `ResumableReader` that reads into a buffer, as the scan requires."""

    def __init__(self, reader: ResumableReader) -> None:
        self._reader = reader

    def readinto(self, buffer: memoryview, /) -> int:
        data = self._reader.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _inspect_both_ends(store: ObjectStore, keys: PartitionKeys, name: SegmentName, size: int) -> SegmentMetadata | None:
    """Return the metadata by the first header and the batches from the last index entry on; None if unproven."""
    key = keys.segment(name)
    index = read_index(store, keys, name, ".index")
    entries = () if index is None else read_offset_index(index)
    if not entries or not 0 < entries[-1][1] < size:
        return None
    try:
        with ResumableReader(store, key, 0, min(HEADER_SIZE, size)) as head:
            first = parse_header(head.read(HEADER_SIZE), 0, size)
        with ResumableReader(store, key, entries[-1][1]) as tail:
            scan = scan_segment(_Filling(tail), size - entries[-1][1])
    except CorruptData:
        return None
    if not isinstance(first, BatchHeader) or scan.end_offset is None or scan.corruption:
        return None
    if {epoch for epoch, _ in scan.epochs} != {first.leader_epoch}:
        return None
    epochs = ((first.leader_epoch if first.magic >= 2 else NO_EPOCH, name.base),)
    return SegmentMetadata(scan.end_offset, epochs, None, None, None, _UNKNOWN_CRC, rebuilt=True)
