"""Compares batches of the archive with those of this broker's log, byte by byte, where epochs cannot decide.

Logs of magic 0 and 1 have no epochs. Within one epoch, a lone broker, or all at once, can return with a shorter log.
"""

from dataclasses import dataclass

import structlog

from ts_common.archive.catalog import PartitionCatalog, StoredSegment
from ts_common.archive.commit import Commit
from ts_common.archive.fetch import ResumableReader
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.small_objects import read_index
from ts_common.errors import CorruptData, DataLoss
from ts_common.log_format.framing import HEADER_SIZE
from ts_common.log_format.index_files import position_for_offset, read_offset_index
from ts_common.store.contract import ObjectStore
from ts_uploader.log_dirs.local_batches import batch_ending_at, batch_header, find_batch, first_batch, open_at
from ts_uploader.messages.observations import Listing

_log = structlog.get_logger()

WHAT_TO_DO = (
    "the broker lost records that it had acknowledged, and may have written others in their place in the same epoch. "
    "The archive is kept as it is and nothing more is shipped; copy the records of the log into a new topic"
)


def check_tail(commit: Commit, listing: Listing) -> None:
    """Check that the last committed batch is in this log, unless it was removed.

    Epochs cannot show a loss within one epoch: a lone broker, or all at once, returned with a shorter log, and no
    controller began another leader epoch. Nor can they show a topic that was created again without topic ids. If the
    log is damaged before that batch, nothing can be compared: its segments are shipped as they are, and marked.

    Raises:
        DataLoss: another batch has that offset.
        SegmentChanged: its segment no longer exists: list again.
    """
    if commit.tail is not None and holds_tail(commit, listing) is False:
        raise DataLoss(
            f"{listing.directory}: the batch with offset {commit.tail[0]} differs from the one that was committed in "
            f"the same leader epoch: {WHAT_TO_DO}"
        )


def holds_tail(commit: Commit, listing: Listing) -> bool | None:
    """Return whether the last committed batch is in this log; None if it cannot be compared.

    Raises:
        SegmentChanged: its segment no longer exists: list again.
    """
    if commit.tail is None or commit.tail[0] < listing.bases[0]:
        return None
    last_offset, crc = commit.tail
    try:
        with open_at(listing, last_offset) as (log, position):
            found = find_batch(log, position, last_offset)
    except CorruptData as damage:
        _log.warning("last_batch_not_compared", reason=str(damage))
        return None
    if found is None or found[0].base_offset > last_offset:
        return None  # compaction removed it
    header, _ = found
    # Neither replication nor the cleaner changes the bounds of a batch.
    if header.last_offset != last_offset:
        return False
    return header.crc == crc if header.is_as_written else None


def shared_end_by_bytes(store: ObjectStore, catalog: PartitionCatalog, next_offset: int, listing: Listing) -> int:
    """Return the end as `shared_end`, by comparing the last batches of the run's segments with the log, newest first.

    Batches that this broker removed or compacted away cannot be compared, and contradict nothing.

    Raises:
        SegmentChanged: a local segment no longer exists.
        CorruptData: a stored segment has no batch at a position of its index.
        StoreUnavailable, AccessDenied, ObjectNotFound: the store's.
    """
    end = next_offset
    run = [segment for segment in catalog.segments if segment.name.base < next_offset]
    for segment in sorted(run, key=lambda segment: segment.name.base, reverse=True):
        batch = _last_batch(store, catalog.keys, segment, next_offset)
        if batch is None:
            continue
        if batch.last_offset < listing.bases[0]:
            break
        first = first_batch(listing, batch.last_offset)
        if first is not None and first.base_offset > batch.last_offset:
            continue  # compaction removed it here, which contradicts nothing
        if batch_ending_at(listing, batch.last_offset) == batch.data:
            break
        end = segment.name.base  # the log has another batch; where it parted from the segment is unknown
    return end


@dataclass(frozen=True, slots=True)
class _StoredBatch:
    """A batch with its bytes, and the offset of its last record."""

    last_offset: int
    data: bytes


def _last_batch(store: ObjectStore, keys: PartitionKeys, segment: StoredSegment, below: int) -> _StoredBatch | None:
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
            found = _StoredBatch(header.last_offset, data[: header.size_in_bytes])
            data = data[header.size_in_bytes :]
            position += header.size_in_bytes


def _read(reader: ResumableReader, size: int) -> bytes:
    """Return `size` bytes, or fewer at the end of the object."""
    data = b""
    while len(data) < size and (piece := reader.read(size - len(data))):
        data += piece
    return data
