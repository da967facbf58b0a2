"""One stored segment, at a chosen depth: does it say of itself what it is, and is it what was shipped?

`HEADERS` asks for its metadata and looks at the first batch, at what the `.index` names in some places, and at all
batches behind the last of those; the other indexes are compared with what the metadata binds. `FULL` reads every byte:
the CRC of each batch and of the object, every record decompressed, and all that metadata says held against it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from awscrt.checksums import crc32c

from ts_common.archive.catalog import StoredSegment
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.epoch_history import NO_EPOCH, EpochHistory
from ts_common.archive.fetch import ResumableReader
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.segment_inspection import describe_segment, metadata_of, scan_object
from ts_common.archive.segment_metadata import SegmentMetadata, TxnIndexState, decode_metadata
from ts_common.archive.small_objects import INDEX_BYTES, get_small
from ts_common.errors import CorruptData, NewerFormat, ObjectNotFound
from ts_common.log_format.framing import HEADER_SIZE, BatchHeader, parse_header
from ts_common.log_format.index_files import (
    OFFSET_ENTRY_SIZE,
    TimeIndex,
    read_offset_index,
    read_transaction_index,
    txnindex_is_complete,
)
from ts_common.log_format.scan import SegmentScan, scan_segment
from ts_common.store.contract import ObjectStore
from tsctl.verify.findings import (
    CACHE_OBJECT_WRONG,
    INDEX_MISSING,
    INDEX_WRONG,
    METADATA_WRONG,
    NEWER_FORMAT,
    SEGMENT_DAMAGED,
    SHIPPED_CORRUPT,
    Finding,
    Kind,
)
from tsctl.verify.full_read import read_whole

# Of an index's entries, those whose batches are looked at besides the last: one request each.
_PLACES = 6


class Depth(StrEnum):
    """How closely verify looks."""

    LISTING = "listing"
    HEADERS = "headers"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Checked:
    """What became of one segment.

    Attributes:
        copy: what it answers for; None where nothing can be said.
        findings: about it.
        foreign: whether it has no metadata of ours.
    """

    copy: SegmentCopy | None
    findings: tuple[Finding, ...] = ()
    foreign: bool = False


def check_segment(
    store: ObjectStore,
    keys: PartitionKeys,
    segment: StoredSegment,
    depth: Depth,
    noted: SegmentMetadata | None,
    where: str,
) -> Checked:
    """Look at one segment.

    Args:
        store: where it lies.
        keys: of its partition.
        segment: as listed.
        depth: `HEADERS` or `FULL`.
        noted: what a cache object says of this very object; None where none does.
        where: names the partition in findings.

    Raises:
        ObjectNotFound: it is gone since it was listed.
        StoreUnavailable, AccessDenied, BucketMissing: the store's.
    """
    check = _Check(store, keys, segment, where)
    try:
        stored = decode_metadata(store.head(check.key).metadata, check.key)
    except NewerFormat as error:
        check.say(NEWER_FORMAT, str(error))
        return Checked(None, tuple(check.findings))
    except CorruptData as error:
        check.say(METADATA_WRONG, str(error))
        return Checked(check.rebuilt(), tuple(check.findings))
    metadata = stored
    if metadata is None or metadata.epochs is None:  # a Java uploader's, or more epochs than metadata can hold
        try:
            has_index = ".index" in segment.suffixes
            metadata = describe_segment(store, keys, segment.name, segment.size, has_index=has_index)
        except CorruptData as error:
            check.say(SEGMENT_DAMAGED, str(error))
            return Checked(None, tuple(check.findings), stored is None)
    check.take(metadata)
    if noted is not None and stored is not None and noted != stored:
        check.say(
            CACHE_OBJECT_WRONG,
            f"{keys.cache_objects}: a cache object says {noted} of it, and its own metadata {stored}",
        )
    check.look(depth, bound=stored is not None)
    return Checked(SegmentCopy(keys, segment, metadata), tuple(check.findings), stored is None)


class _Check:
    """The look at one segment, and what it found."""

    def __init__(self, store: ObjectStore, keys: PartitionKeys, segment: StoredSegment, where: str) -> None:
        self.key = keys.segment(segment.name)
        self.findings: list[Finding] = []
        self._store = store
        self._keys = keys
        self._segment = segment
        self._where = where
        self._base = segment.name.base
        self._metadata = SegmentMetadata(self._base, None, None, None, None, 0)
        self._line: EpochHistory | None = None  # the metadata's epochs, where all batches can be held against them

    def say(self, kind: Kind, detail: str, key: str | None = None) -> None:
        end = self._metadata.end if self._metadata.end > self._base else None
        self.findings.append(Finding(kind, self._where, detail, key or self.key, self._base, end))

    def take(self, metadata: SegmentMetadata) -> None:
        """What the segment is held against."""
        self._metadata = metadata

    def rebuilt(self) -> SegmentCopy | None:
        """The copy as its bytes say, where its metadata cannot be read."""
        try:
            scan = scan_object(self._store, self.key, self._segment.size)
            return SegmentCopy(self._keys, self._segment, metadata_of(scan, self._base, self.key))
        except CorruptData as error:
            self.say(SEGMENT_DAMAGED, str(error))
            return None

    def look(self, depth: Depth, *, bound: bool) -> None:
        """Hold the segment against its metadata; `bound` where that is ours and not made of the segment just now."""
        indexes = {suffix: self._index(suffix) for suffix in self._wanted_indexes(bound=bound)}
        self._line = self._epochs()
        if self._metadata.corruptions:
            self.say(
                SHIPPED_CORRUPT, f"{self._metadata.corruptions} places in it are no whole batch, as its metadata says"
            )
        if depth is Depth.FULL:
            self._read_all(indexes, bound=bound)
        else:
            self._bound_indexes(indexes)
        known = {SEGMENT_DAMAGED, METADATA_WRONG} & {finding.kind for finding in self.findings}
        if not known and not self._metadata.corruptions:
            self._look_at_batches(indexes.get(".index"))

    def _epochs(self) -> EpochHistory | None:
        pairs = self._metadata.epochs or ()
        if not pairs or any(epoch == NO_EPOCH for epoch, _ in pairs):
            return None
        try:
            return EpochHistory(pairs)
        except ValueError as error:
            self._misfit(str(error))
            return None

    def _wanted_indexes(self, *, bound: bool) -> Iterator[str]:
        yield from (".index", ".timeindex")
        if bound and self._metadata.txnindex is not None and self._metadata.txnindex[0]:
            yield ".txnindex"  # a CRC of 0: late or corrupt, and the broker had none

    def _index(self, suffix: str) -> bytes | None:
        """The bytes of an index; None, and a finding, where there is none."""
        key = self._keys.segment(self._segment.name, suffix)
        if suffix in self._segment.suffixes:
            try:
                return get_small(self._store, key, INDEX_BYTES)[0]
            except ObjectNotFound:
                pass
            except CorruptData as error:
                self.say(INDEX_WRONG, str(error), key)
                return None
        self.say(INDEX_MISSING, f"{key} is not there", key)
        return None

    def _bound_indexes(self, indexes: dict[str, bytes | None]) -> None:
        """`.timeindex` and `.txnindex` are those that the metadata names."""
        metadata = self._metadata
        bound = {".timeindex": metadata.timeindex, ".txnindex": metadata.txnindex[0] if metadata.txnindex else None}
        for suffix, crc in bound.items():
            data = indexes.get(suffix)
            if data is not None and crc is not None and crc32c(data) != crc:
                detail = f"its CRC-32C is {crc32c(data):08x}, the metadata of its .log says {crc:08x}"
                self.say(INDEX_WRONG, detail, self._keys.segment(self._segment.name, suffix))

    # --- headers

    def _look_at_batches(self, index: bytes | None) -> None:
        """The first batch, some that the `.index` names, and all behind the last of those."""
        index_key = self._keys.segment(self._segment.name, ".index")
        entries = read_offset_index(index or b"")
        if index and any(index[len(entries) * OFFSET_ENTRY_SIZE :]):
            self.say(INDEX_WRONG, f"entry {len(entries)} of {len(index)} bytes does not follow those before", index_key)
            return
        if entries and entries[-1][1] >= self._segment.size:
            detail = f"it leads to byte {entries[-1][1]}, and the .log has {self._segment.size}"
            self.say(INDEX_WRONG, detail, index_key)
            return
        if not self._segment.size:
            return
        step = max(1, len(entries) // _PLACES)
        floor = self._base - 1
        places = [(None, 0), *((number, entries[number][1]) for number in range(0, len(entries), step))]
        for number, position in places:
            header = self._header(position)
            if number is None:
                if not isinstance(header, BatchHeader):
                    self._misfit(f"no batch at its beginning: {header}")
                    return
            else:
                named, before = (entries[number][0], entries[number - 1][0] if number else -1)
                if not isinstance(header, BatchHeader) or not (
                    self._base + before < header.base_offset <= self._base + named
                ):
                    found = (
                        f"a batch of base offset {header.base_offset}" if isinstance(header, BatchHeader) else header
                    )
                    detail = f"offset {self._base + named} at byte {position}: {found} there"
                    self.say(INDEX_WRONG, detail, index_key)
                    return
            if not self._fits(header, floor, position):
                return
            floor = header.last_offset
        self._look_at_tail(entries[-1][1] if entries else 0)

    def _header(self, position: int) -> BatchHeader | str:
        """The header at a place, or what stands there instead."""
        left = self._segment.size - position
        try:
            with ResumableReader(self._store, self.key, position, position + min(HEADER_SIZE, left)) as reader:
                data = b""
                while piece := reader.read(HEADER_SIZE):
                    data += piece
            header = parse_header(data, 0, left, position)
        except CorruptData as error:
            return str(error)
        return header if isinstance(header, BatchHeader) else "no batch begins"

    def _fits(self, header: BatchHeader, floor: int, position: int) -> bool:
        """Whether a batch may stand where it does by its offsets and its epoch."""
        if not floor < header.base_offset <= header.last_offset < self._metadata.end:
            self._misfit(f"the batch at byte {position} has offsets {header.base_offset} to {header.last_offset}")
            return False
        if header.leader_epoch == NO_EPOCH or self._line is None:
            return True
        expected = self._line.at(header.base_offset)
        if expected != header.leader_epoch:
            self._misfit(
                f"the batch of base offset {header.base_offset} at byte {position} bears leader epoch "
                f"{header.leader_epoch}, and the metadata gives it {expected}"
            )
            return False
        return True

    def _misfit(self, detail: str) -> None:
        self.say(METADATA_WRONG, f"{detail}; the metadata answers for [{self._base}, {self._metadata.end})")

    def _look_at_tail(self, position: int) -> None:
        with ResumableReader(self._store, self.key, position) as reader:
            scan = scan_segment(Filling(reader.read), self._segment.size - position)
        if scan.corrupt_batches and not self._metadata.corruptions:
            place, reason = scan.corruption[0]
            self.say(SEGMENT_DAMAGED, f"at byte {position + place}: {reason}")
        elif scan.end_offset is not None and scan.end_offset > self._metadata.end:
            self._misfit(f"its last batch ends at offset {scan.end_offset}")

    # --- full

    def _read_all(self, indexes: dict[str, bytes | None], *, bound: bool) -> None:
        timeindex = indexes.get(".timeindex")
        claimed = None if timeindex is None else TimeIndex(self._base, timeindex)
        scan, rows, damage = read_whole(self._store, self.key, self._segment.size, claimed)
        metadata = self._metadata
        altered = bound and scan.crc32c != metadata.crc32c
        if scan.corrupt_batches or damage:
            place = f"at byte {scan.corruption[0][0]}: {scan.corruption[0][1]}" if scan.corruption else damage
            if altered or not metadata.corruptions:
                self.say(SEGMENT_DAMAGED, place or "")
                return
        elif altered:
            detail = f"the CRC-32C of all its bytes is {scan.crc32c:08x}, its metadata says {metadata.crc32c:08x}"
            self.say(SEGMENT_DAMAGED, detail)
            return
        self._bound_indexes(indexes)
        if bound:
            self._hold_against(scan, rows)
        txnindex = indexes.get(".txnindex")
        if txnindex is not None and metadata.txnindex is not None and metadata.txnindex[1] is not TxnIndexState.CORRUPT:
            key = self._keys.segment(self._segment.name, ".txnindex")
            whole = txnindex_is_complete(read_transaction_index(txnindex), scan.abort_markers)
            if not whole and not any(finding.key == key for finding in self.findings):
                self.say(INDEX_WRONG, "an abort marker of the .log has no entry in it", key)

    def _hold_against(self, scan: SegmentScan, rows: int) -> None:
        metadata = self._metadata
        counted = scan.record_count
        said = (
            ("records", metadata.records, counted),
            ("the greatest timestamp", metadata.time_max, scan.max_timestamp),
            ("the least timestamp", metadata.time_min, scan.min_timestamp),
            ("corrupt places", metadata.corruptions, scan.corrupt_batches),
        )
        wrong = [f"{name}: {found}, the metadata says {stated}" for name, stated, found in said if stated != found]
        if counted is not None and (rows > counted or (rows < counted and not scan.has_transactions)):
            wrong.append(f"its batches hold {rows} records, and their headers say {counted}")
        if scan.end_offset is not None and scan.end_offset > metadata.end:
            wrong.append(
                f"its last batch ends at {scan.end_offset}, the metadata answers for offsets below {metadata.end}"
            )
        stretches = zip(scan.epochs, scan.epoch_lasts, strict=True)
        line = self._line if all(epoch != NO_EPOCH for epoch, _ in scan.epochs) else None
        if line and not all(line.at(first) == epoch == line.at(last) for (epoch, first), last in stretches):
            wrong.append(f"its batches bear the epochs {scan.epochs}, the metadata says {metadata.epochs}")
        if scan.abort_markers and metadata.txnindex is None:  # readers of committed records would show them
            wrong.append(f"{len(scan.abort_markers)} transactions are aborted in it, the metadata names no .txnindex")
        if wrong:
            self.say(METADATA_WRONG, "; ".join(wrong))


class Filling:
    """A function that reads up to so many bytes, as a scan reads: into a buffer."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill some of the buffer; 0 at the end."""
        data = self._read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def assumed(keys: PartitionKeys, segment: StoredSegment, noted: SegmentMetadata | None, following: int) -> SegmentCopy:
    """A copy as a listing and a cache object tell it: without the cache object it is taken to reach to what follows it.

    Args:
        keys: of its partition.
        segment: as listed.
        noted: what a cache object says of it.
        following: the next base offset above its own, or the next offset.
    """
    guess = SegmentMetadata(max(segment.name.base, following), (), None, None, None, 0)
    return SegmentCopy(keys, segment, noted or guess)
