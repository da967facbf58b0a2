"""Is the store my past? (protocol rule 5)

An election can lose records that were committed and shipped: an unclean one, or one won by the last in-sync replica
that came back empty or behind. What the commit says from some offset on is then not what this broker's log says. That
offset is where a Kafka follower with the commit's epochs would truncate to (KIP-279), and readers must not look beyond
it before the new reign's records are there.

Logs of magic 0 and 1 bear no epochs. There the bytes decide: the last committed batch is either the local one, or not.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ts_common.catalog import PartitionCatalog, StoredSegment
from ts_common.commit import Commit
from ts_common.epochs import EpochLine
from ts_common.errors import CorruptData, DataLoss, ObjectNotFound, SegmentChanged
from ts_common.fetch import ResumableReader
from ts_common.log_format.framing import BatchHeader, parse_header
from ts_common.log_format.index_files import position_for_offset, read_offset_index
from ts_common.object_keys import PartitionKeys
from ts_common.store.contract import ObjectStore
from ts_uploader.events import Listing
from ts_uploader.local_log import OpenLog, last_index_entries, local_epochs, log_end, open_log


def shared_end(epochs: EpochLine, next_offset: int, listing: Listing) -> int | None:
    """Up to which offset a run is this log's past; None where no epochs tell, and bytes must.

    Args:
        epochs: the run's.
        next_offset: its end.
        listing: of the log.

    Raises:
        SegmentChanged: the active segment is gone, or the checkpoint is older than the run, or is not there yet: look
            again.
    """
    if not epochs.pairs:
        return None
    local = local_epochs(listing.directory)
    if local is None:
        # A follower whose disk was replaced has none either, until it fetches its first batch.
        raise SegmentChanged(f"{listing.directory}: no leader epoch checkpoint, and the run has epochs")
    active = listing.bases[-1]
    # A log reaches at least to its active segment; only what the run says beyond that asks for a look inside.
    end = active if active >= next_offset else log_end(listing.directory, active)
    try:
        return epochs.shared_end(next_offset, local, end)
    except ValueError as behind:
        raise SegmentChanged(f"{listing.directory}: {behind}") from behind


def check_tail(commit: Commit, listing: Listing) -> None:
    """The last committed batch is the one that stands in this log, where it still does.

    Epochs cannot show what was lost within one: a lone broker, or all at once, came back with a shorter log, and no
    controller was there to begin another reign. Nor can they show a topic made anew where topics have no ids.

    Raises:
        DataLoss: another batch stands there.
    """
    if commit.tail is None or commit.tail[0] < listing.bases[0]:
        return
    last_offset, crc = commit.tail
    data = _local_batch(listing, last_offset)
    header = parse_header(data, 0, len(data)) if data is not None else None
    if isinstance(header, BatchHeader) and header.is_as_written and header.crc != crc:
        raise DataLoss(
            f"{listing.directory}: the batch that ends with offset {last_offset} is not the one that was committed in "
            f"the same leader epoch: {WHAT_TO_DO}"
        )


def shared_end_by_bytes(store: ObjectStore, catalog: PartitionCatalog, next_offset: int, listing: Listing) -> int:
    """As `shared_end`, by comparing the last batches of the run's segments with the local ones, newest first.

    What this broker no longer holds cannot be compared, and contradicts nothing.

    Raises:
        SegmentChanged: a local segment went away meanwhile.
        CorruptData: a stored segment holds no batch where its index says so.
        StoreUnavailable, AccessDenied, ObjectNotFound: the store's.
    """
    end = next_offset
    run = [segment for segment in catalog.segments if segment.name.base < next_offset]
    for segment in sorted(run, key=lambda segment: segment.name.base, reverse=True):
        batch = _last_batch(store, catalog.keys, segment, next_offset)
        if batch is None:
            continue
        if batch.last_offset < listing.bases[0] or _local_batch(listing, batch.last_offset) == batch.data:
            break
        end = segment.name.base  # that batch is not ours, and where its segment parted from this log is not known
    return end


def rewound(epochs: EpochLine, end: int, local: EpochLine | None) -> EpochLine:
    """A run's epochs up to `end`, continued from the local checkpoint."""
    return epochs.below(end).continued(local or EpochLine(), end)


_PIECE_BYTES = 1 << 16
WHAT_TO_DO = (
    "the broker lost records that it had acknowledged, and may have written others in their place in one epoch. "
    "The archive stays as it is and nothing more is shipped; copy what the log holds now into a new topic"
)


@dataclass(frozen=True, slots=True)
class _Batch:
    last_offset: int
    data: bytes


def _last_batch(store: ObjectStore, keys: PartitionKeys, segment: StoredSegment, below: int) -> _Batch | None:
    """The last batch of a stored segment that ends at or below an offset; None where it has none."""
    position = 0
    if ".index" in segment.suffixes:
        try:
            entries = read_offset_index(store.get(keys.segment(segment.name, ".index"))[0])
        except ObjectNotFound:
            entries = ()
        position = position_for_offset(entries, segment.name.base, below - 1)
    key = keys.segment(segment.name)
    with ResumableReader(store, key, position) as reader:
        data = bytearray()
        while piece := reader.read(_PIECE_BYTES):
            data += piece
    found = None
    for batch in _batches(bytes(data), key):
        if batch.last_offset >= below:
            break
        found = batch
    return found


def _local_batch(listing: Listing, last_offset: int) -> bytes | None:
    """The local batch that ends with an offset; None where none does.

    Raises:
        SegmentChanged: the segment is gone.
        CorruptData: no batch stands where one should.
    """
    base = max(base for base in listing.bases if base <= last_offset)
    with open_log(listing.directory, base) as log:
        position = position_for_offset(last_index_entries(listing.directory, base), base, last_offset)
        try:
            return _find_batch(log, position, last_offset)
        except CorruptData:
            if not position:
                raise
            return _find_batch(log, 0, last_offset)  # an index that lies costs time


def _find_batch(log: OpenLog, position: int, last_offset: int) -> bytes | None:
    reader, data = log.reader(position), b""
    # Index entries stand a few KiB apart, so the first piece nearly always holds it; batches may be larger.
    while piece := reader.read(max(_PIECE_BYTES, len(data))):
        data += piece
        for batch in _batches(data, str(log.path)):
            if batch.last_offset >= last_offset:
                return batch.data if batch.last_offset == last_offset else None
    return None


def _batches(data: bytes, where: str) -> Iterator[_Batch]:
    position = 0
    while position < len(data):
        try:
            header = parse_header(data, position, len(data) - position)
        except CorruptData as error:
            raise CorruptData(f"{where}: {error}") from error
        if not isinstance(header, BatchHeader):
            return
        yield _Batch(header.last_offset, data[position : position + header.size_in_bytes])
        position += header.size_in_bytes
