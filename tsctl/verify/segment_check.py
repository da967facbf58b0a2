"""Checks one stored segment: its metadata against its batches, and its bytes against what was shipped.

`HEADERS` reads its metadata, the first batch, some batches that the `.index` names, and all batches after the last of
those. It compares the other indexes with the metadata. `FULL` reads every byte: it checks the CRC of each batch and of
the object, decompresses every record, and compares all of the metadata.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeGuard

from awscrt.checksums import crc32c

from ts_common.archive.catalog import StoredSegment
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.epoch_history import NO_EPOCH, EpochHistory
from ts_common.archive.fetch import ResumableReader
from ts_common.archive.metadata_check import metadata_differences
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.segment_inspection import describe_segment, metadata_of, scan_object
from ts_common.archive.segment_metadata import SegmentMetadata, decode_metadata
from ts_common.archive.small_objects import INDEX_BYTES, get_small
from ts_common.errors import CorruptData, NewerFormat, ObjectFrozen, ObjectNotFound
from ts_common.log_format.framing import HEADER_SIZE, BatchHeader, follows, parse_header
from ts_common.log_format.index_files import (
    OFFSET_ENTRY_SIZE,
    TimeIndex,
    read_offset_index,
)
from ts_common.log_format.scan import SegmentScan, scan_segment
from ts_common.store.contract import ObjectStore
from ts_common.wording import counted
from tsctl.verify.finding_kinds import (
    CACHE_OBJECT_WRONG,
    FROZEN,
    INDEX_MISSING,
    INDEX_WRONG,
    METADATA_WRONG,
    NEWER_FORMAT,
    SEGMENT_DAMAGED,
    SHIPPED_CORRUPT,
    WRONG_PRODUCER,
    FindingKind,
)
from tsctl.verify.findings import Finding
from tsctl.verify.full_read import Filling, read_whole

# The number of an index's entries whose batches are read in addition to the last one, one request each.
_PLACES = 6


class Depth(StrEnum):
    """How closely verify checks."""

    LISTING = "listing"
    HEADERS = "headers"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Checked:
    """The result for one segment.

    Attributes:
        copy: what the segment covers; None if that is unknown.
        foreign: whether it has no metadata of an agent.
        etag: of the `.log`; None if that was not read.
    """

    copy: SegmentCopy | None
    findings: tuple[Finding, ...] = ()
    foreign: bool = False
    etag: str | None = None


def check_segment(
    store: ObjectStore,
    keys: PartitionKeys,
    segment: StoredSegment,
    depth: Depth,
    noted: SegmentMetadata | None,
    where: str,
) -> Checked:
    """Check one segment.

    Args:
        store: the store of the segment.
        segment: as listed.
        depth: `HEADERS` or `FULL`.
        noted: its metadata in a cache object, for the same ETag; None without a cache object.
        where: the partition's name in findings.

    Raises:
        ObjectNotFound: it was removed after the listing.
        StoreUnavailable, AccessDenied, BucketMissing: a request failed.
    """
    check = _Check(store, keys, segment, where)
    try:
        info = store.head(check.key)
        stored = decode_metadata(info.metadata, check.key)
    except NewerFormat as error:
        check.say(NEWER_FORMAT, str(error))
        return Checked(None, tuple(check.findings))
    except CorruptData as error:
        check.say(METADATA_WRONG, str(error))
        return Checked(check.rebuilt(), tuple(check.findings))
    metadata = stored
    if metadata is None or metadata.epochs is None:  # a Java uploader's, or too many epochs for metadata
        try:
            has_index = ".index" in segment.suffixes
            metadata = describe_segment(store, keys, segment.name, segment.size, has_index=has_index)
        except CorruptData as error:
            check.say(SEGMENT_DAMAGED, str(error))
            return Checked(None, tuple(check.findings), stored is None)
        except ObjectFrozen as error:
            check.say(FROZEN, str(error))
            return Checked(None, tuple(check.findings), stored is None)
    check.take(metadata)
    if noted is not None and stored is not None and noted != stored:
        check.say(
            CACHE_OBJECT_WRONG,
            f"a cache object in {keys.cache_objects} has {noted}; the segment's own metadata has {stored}",
        )
    with check.reporting_frozen():
        check.look(depth, bound=stored is not None)
    return Checked(SegmentCopy(keys, segment, metadata), tuple(check.findings), stored is None, info.etag)


class _Check:
    """The check of one segment, and its findings."""

    def __init__(self, store: ObjectStore, keys: PartitionKeys, segment: StoredSegment, where: str) -> None:
        self.key = keys.segment(segment.name)
        self.findings: list[Finding] = []
        self._store = store
        self._keys = keys
        self._segment = segment
        self._where = where
        self._base = segment.name.base
        self._metadata = SegmentMetadata(self._base, None, None, None, None, 0)
        self._line: EpochHistory | None = None  # the metadata's epochs, if all batches can be compared with them

    def say(self, kind: FindingKind, detail: str, key: str | None = None) -> None:
        end = self._metadata.end if self._metadata.end > self._base else None
        self.findings.append(Finding(kind, self._where, detail, key or self.key, self._base, end))

    def take(self, metadata: SegmentMetadata) -> None:
        """Set the metadata to compare the segment with."""
        self._metadata = metadata

    @contextmanager
    def reporting_frozen(self) -> Iterator[None]:
        """Report a frozen object, whose bytes cannot be checked, and end the check there."""
        try:
            yield
        except ObjectFrozen as error:
            self.say(FROZEN, str(error))

    def rebuilt(self) -> SegmentCopy | None:
        """Return the copy by its batches, if its metadata cannot be read."""
        try:
            scan = scan_object(self._store, self.key, self._segment.size)
            return SegmentCopy(self._keys, self._segment, metadata_of(scan, self._base, self.key))
        except CorruptData as error:
            self.say(SEGMENT_DAMAGED, str(error))
        except ObjectFrozen as error:
            self.say(FROZEN, str(error))
        return None

    def look(self, depth: Depth, *, bound: bool) -> None:
        """Compare the segment with its metadata; `bound` is false if that was computed from the segment."""
        indexes = {suffix: self._index(suffix) for suffix in self._wanted_indexes(bound=bound)}
        self._line = self._epochs()
        if self._metadata.corruptions:
            self.say(SHIPPED_CORRUPT, f"its metadata counts {counted(self._metadata.corruptions, 'corrupt place')}")
        if depth is Depth.FULL:
            self._read_all(indexes, bound=bound)
        else:
            self._bound_indexes(indexes)
        known = {SEGMENT_DAMAGED, METADATA_WRONG} & {finding.kind for finding in self.findings}
        if not known and not self._metadata.corruptions:
            self._look_at_batches(indexes.get(".index"))
        self._look_at_name()

    def _look_at_name(self) -> None:
        """Report another segment's object under this name: its epochs begin elsewhere, and both indexes do not fit."""
        begin = (self._metadata.epochs or ((0, self._base),))[0][1]
        wrong = {finding.key for finding in self.findings if finding.kind is INDEX_WRONG}
        if begin != self._base and len(wrong) > 1:
            detail = (
                f"the object is another segment's: it begins at offset {begin}; expected {self._base} from its name"
            )
            self.findings = [finding for finding in self.findings if finding.kind is not INDEX_WRONG]
            self.findings.append(Finding(SEGMENT_DAMAGED, self._where, detail, self.key, self._base))

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
            yield ".txnindex"  # a CRC of 0: missing history or corrupt, and the broker had no index

    def _index(self, suffix: str) -> bytes | None:
        """Return the bytes of an index; None, and a finding, if it is missing."""
        key = self._keys.segment(self._segment.name, suffix)
        if suffix in self._segment.suffixes:
            try:
                return get_small(self._store, key, INDEX_BYTES)[0]
            except ObjectNotFound:
                pass
            except ObjectFrozen:
                return None  # its .log is frozen too, or the index is a hint
            except CorruptData as error:
                self.say(INDEX_WRONG, str(error), key)
                return None
        self.say(INDEX_MISSING, f"{key} does not exist", key)
        return None

    def _bound_indexes(self, indexes: dict[str, bytes | None]) -> None:
        """Compare `.timeindex` and `.txnindex` with the CRCs in the metadata."""
        metadata = self._metadata
        bound = {".timeindex": metadata.timeindex, ".txnindex": metadata.txnindex[0] if metadata.txnindex else None}
        for suffix, crc in bound.items():
            data = indexes.get(suffix)
            if data is not None and crc is not None and crc32c(data) != crc:
                detail = f"CRC-32C {crc32c(data):08x}; expected {crc:08x} from the metadata of its .log"
                self.say(INDEX_WRONG, detail, self._keys.segment(self._segment.name, suffix))

    # --- headers

    def _look_at_batches(self, index: bytes | None) -> None:
        """Check the first batch, some that the `.index` names, and all after the last of those."""
        index_key = self._keys.segment(self._segment.name, ".index")
        entries = read_offset_index(index or b"")
        if index and any(index[len(entries) * OFFSET_ENTRY_SIZE :]):
            self.say(
                INDEX_WRONG,
                f"entry {len(entries)} is not above the one before; the index has {counted(len(index), 'byte')}",
                index_key,
            )
            return
        if entries and entries[-1][1] >= self._segment.size:
            detail = f"it points to byte {entries[-1][1]}; the .log has {counted(self._segment.size, 'byte')}"
            self.say(INDEX_WRONG, detail, index_key)
            self._look_at_tail(0)  # the index may be right, and the .log cut short
            return
        if not self._segment.size:
            self._check_end(None)
            return
        step = max(1, len(entries) // _PLACES)
        floor = self._base - 1
        places = [(None, 0), *((number, entries[number][1]) for number in range(0, len(entries), step))]
        for number, position in places:
            header = self._header(position)
            bounds = None
            if number is not None:
                bounds = (self._base + (entries[number - 1][0] if number else -1), self._base + entries[number][0])
            if not self._is_batch(header, position, bounds, index_key) or not self._fits(header, floor, position):
                return
            floor = header.last_offset
        self._look_at_tail(entries[-1][1] if entries else 0)

    def _is_batch(
        self, header: BatchHeader | str, position: int, bounds: tuple[int, int] | None, index_key: str
    ) -> TypeGuard[BatchHeader]:
        """Return whether there is the batch that the index has: with a base offset above one and up to the other."""
        if bounds is None:
            if isinstance(header, str):
                self._misfit(f"no batch at its start: {header}")
            return isinstance(header, BatchHeader)
        if isinstance(header, BatchHeader) and bounds[0] < header.base_offset <= bounds[1]:
            return True
        found = header if isinstance(header, str) else f"a batch of base offset {header.base_offset}"
        self.say(INDEX_WRONG, f"offset {bounds[1]} is expected at byte {position}; found {found}", index_key)
        return False

    def _header(self, position: int) -> BatchHeader | str:
        """Return the header at a position, or what is there instead."""
        left = self._segment.size - position
        try:
            with ResumableReader(self._store, self.key, position, position + min(HEADER_SIZE, left)) as reader:
                data = b""
                while piece := reader.read(HEADER_SIZE):
                    data += piece
            header = parse_header(data, 0, left, position)
        except CorruptData as error:
            return str(error)
        return header if isinstance(header, BatchHeader) else "no beginning of a batch"

    def _fits(self, header: BatchHeader, floor: int, position: int) -> bool:
        """Return whether a batch's offsets and epoch fit its position."""
        as_written = floor < header.base_offset <= header.last_offset
        if not (as_written or header.contradicts_itself or follows(header, floor)) or not (
            floor < header.last_offset < self._metadata.end
        ):
            self._misfit(f"unexpected batch at byte {position}: offsets {header.base_offset} to {header.last_offset}")
            return False
        if header.leader_epoch == NO_EPOCH or self._line is None:
            return True
        expected = self._line.at(max(header.base_offset, self._base))
        if expected != header.leader_epoch:
            self._misfit(
                f"the batch of base offset {header.base_offset} at byte {position} has leader epoch "
                f"{header.leader_epoch}; expected {expected} from the metadata"
            )
            return False
        return True

    def _misfit(self, detail: str) -> None:
        self.say(METADATA_WRONG, f"{detail}; the metadata covers [{self._base}, {self._metadata.end})")

    def _look_at_tail(self, position: int) -> None:
        with ResumableReader(self._store, self.key, position) as reader:
            scan = scan_segment(Filling(reader.read), self._segment.size - position)
        if scan.corrupt_batches and not self._metadata.corruptions:
            place, reason = scan.corruption[0]
            self.say(SEGMENT_DAMAGED, f"at byte {position + place}: {reason}")
        elif scan.end_offset is not None and scan.end_offset > self._metadata.end:
            self._misfit(f"its last batch ends at offset {scan.end_offset}")
        else:
            self._check_end(scan.end_offset)

    def _check_end(self, end: int | None) -> None:
        """Compare the end of the last batch with the metadata, if these prove that no compaction removed records."""
        metadata = self._metadata
        if metadata.records == metadata.end - self._base and (end or self._base) < metadata.end:
            found = "it has no batch" if end is None else f"its last batch ends at offset {end}"
            self.say(SEGMENT_DAMAGED, f"{found}; the metadata covers offsets below {metadata.end}: it was cut short")

    # --- full

    def _read_all(self, indexes: dict[str, bytes | None], *, bound: bool) -> None:
        timeindex = indexes.get(".timeindex")
        claimed = None if timeindex is None else TimeIndex(self._base, timeindex)
        scan, decoded = read_whole(self._store, self.key, self._segment.size, claimed)
        rows, damage = decoded.rows, decoded.damage
        if (found := self._damage(scan, damage, bound=bound)) is not None:
            self.say(SEGMENT_DAMAGED, found)
            return
        self._bound_indexes(indexes)
        if decoded.contradicted and not damage:
            wrong = f"batches whose records have other offsets than their headers: {decoded.contradicted}"
            self.say(WRONG_PRODUCER, f"{wrong}; readers return {counted(rows, 'record')} of the segment, as Kafka does")
        if bound:
            there = {suffix: data for suffix, data in indexes.items() if data is not None}
            self._hold_against(scan, there, None if damage or decoded.contradicted else rows)  # it stops at damage

    def _damage(self, scan: SegmentScan, damage: str | None, *, bound: bool) -> str | None:
        """Return how a segment differs from what was shipped; None also for damage that was shipped."""
        metadata = self._metadata
        altered = bound and scan.crc32c != metadata.crc32c
        if not scan.corrupt_batches and damage is None:
            return f"CRC-32C {scan.crc32c:08x}; expected {metadata.crc32c:08x} from its metadata" if altered else None
        if metadata.corruptions and not altered:
            return None
        return f"at byte {scan.corruption[0][0]}: {scan.corruption[0][1]}" if scan.corruption else damage

    def _hold_against(self, scan: SegmentScan, indexes: dict[str, bytes], rows: int | None) -> None:
        # Epochs that contradict one another are reported by `_epochs`.
        metadata = self._metadata if self._line is not None else replace(self._metadata, epochs=None)
        wrong = metadata_differences(scan, metadata, indexes)
        expected = scan.record_count
        excess = rows - expected if expected is not None and rows is not None else 0
        if excess > 0 or (excess < 0 and not scan.has_transactions):
            wrong.append(f"its batches contain {counted(rows or 0, 'record')}; their headers count {expected}")
        if wrong:
            self.say(METADATA_WRONG, "; ".join(wrong))
