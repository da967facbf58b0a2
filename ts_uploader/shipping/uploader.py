"""Shipping one closed segment: the upload protocol on one page.

The `.log` object marks a segment as complete, so it is written last and never over another object (protocol rules 2, 3
and 6). The coverage is found after the file was read and before it is shipped (`ts_uploader.shipping.coverage`). If
bytes, neighbour or leadership changed meanwhile, nothing is shipped and the tracker lists the directory again. Once
found, the coverage holds for these bytes, whatever the log cleaner does during the upload.

An open file survives an unlink, so a segment that retention removes during the upload is shipped all the same
(protocol rule 10).

Retries never end (protocol rule 9), so they must not cost disk reads. The scan of a segment is cached until it is
shipped; an attempt that the store rejects early reads none of its bytes again.
"""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import pairwise

import structlog
from awscrt.checksums import crc32c

from ts_common.archive.cache_rewriting import entry_of
from ts_common.archive.catalog import read_snapshot
from ts_common.archive.commit import Commit
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.metadata_cache import CacheEntry
from ts_common.archive.object_keys import LOG_SUFFIX, PartitionKeys, SegmentName
from ts_common.archive.segment_metadata import SegmentMetadata, TxnIndexState
from ts_common.errors import CorruptData, OutcomeUnknown, PreconditionFailed, SegmentChanged
from ts_common.log_format.index_files import (
    TimeIndex,
    read_transaction_index,
    txnindex_is_complete,
    txnindex_is_strange,
)
from ts_common.log_format.scan import SegmentScan, scan_segment
from ts_common.store.contract import IfAbsent, ObjectInfo, ObjectStore
from ts_uploader.committing.gap_recording import still_missing
from ts_uploader.log_dirs.local_log import closed_at, local_epochs, read_indexes
from ts_uploader.log_dirs.scan_cache import RememberedScans, file_state
from ts_uploader.log_dirs.segment_file import OpenLog
from ts_uploader.messages.observations import FileState
from ts_uploader.messages.tasks import PassGap, Ship, Shipped
from ts_uploader.retention.topic_retention import TopicRetention, is_late
from ts_uploader.shipping.coverage import coverage_end, open_segment
from ts_uploader.shipping.cut_segment import cut_end, cut_segment, stable_offset
from ts_uploader.shipping.segment_names import Existing, choose_good_name, choose_name
from ts_uploader.shipping.tail_segments import tail_segments

_MILLISECONDS = 1000

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class PutBack:
    """The result of a repair of one segment.

    Attributes:
        name: of the object that has the segment; None if the file is damaged, so that no object was put.
        end: end of the segment's coverage.
        is_new: whether the object was put now.
        is_damaged: whether the broker's file has places that are no batch.
    """

    name: SegmentName | None
    end: int
    is_new: bool
    is_damaged: bool


@dataclass(frozen=True, slots=True)
class _ReadSegment:
    """An open segment that was read.

    Attributes:
        indexes: bytes by suffix.
        end: end of its coverage.
        late: whether the cleaner may have removed records from it.
        closed_at: when the broker closed it, seconds since the epoch; None if its files do not show it.
    """

    log: OpenLog
    state: FileState
    indexes: Mapping[str, bytes]
    scan: SegmentScan
    end: int
    epochs: tuple[tuple[int, int], ...]
    metadata: SegmentMetadata
    late: bool
    closed_at: float | None

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return self.log.size + sum(len(data) for data in self.indexes.values())


class Uploader:
    """Ships segments; thread-safe.

    Args:
        store_of: the store that holds a topic's objects.
        retention_of: returns how long Kafka keeps a topic's segments, and what the cleaner may remove from them.
    """

    def __init__(self, store_of: Callable[[str], ObjectStore], retention_of: Callable[[str], TopicRetention]) -> None:
        self._store_of = store_of
        self._retention_of = retention_of
        self._scans = RememberedScans()

    def ship(self, task: Ship) -> Shipped:
        """Ship one segment.

        Raises:
            SegmentChanged: the file or its neighbours no longer match the task.
            CorruptData: the file contains no batch, or the store received other bytes than were scanned.
            StoreUnavailable, OutcomeUnknown, AccessDenied, BucketMissing: the store's.
        """
        began = time.monotonic()
        store, keys = self._store_of(task.partition.topic), task.keys
        with ExitStack() as opened:
            segment = self._read(task, opened)
            scan, end, epochs = segment.scan, segment.end, segment.epochs
            name, existing = choose_name(store, task, scan, end, epochs)
            stored = self._put(store, keys, name, segment) if existing is Existing.ABSENT else None
        self._scans.forget(segment.state)
        return Shipped(
            partition=task.partition,
            generation=task.generation,
            leadership=task.leadership,
            base=task.base,
            next_base=task.next_base,
            end=end,
            epochs=epochs,
            last_stable_offset=stable_offset(task, scan, end),
            bytes_sent=0 if stored is None else segment.size,
            files_sent=0 if stored is None else 1 + len(segment.indexes),
            closed_at=segment.closed_at,
            corruptions=scan.corrupt_batches,
            seconds=time.monotonic() - began,
            tail=scan.tail if end == scan.end_offset else None,
            late=segment.late and existing is Existing.ABSENT,
            lineage=task.lineage,
            run=task.epochs,
            run_end=task.next_offset,
            stamp=task.listing.stamp,
            stored=stored,
        )

    def put_good_copy(self, task: Ship, replaces: str | None) -> PutBack:
        """Put a segment, unless an object has its bytes: the object is read (protocol rule 13).

        Args:
            replaces: stem of a damaged object that the segment's offsets are read in no longer; None without one. The
                segment then gets a variant's name, whose metadata names it.

        Raises:
            SegmentChanged, CorruptData, StoreUnavailable, OutcomeUnknown, AccessDenied, BucketMissing: as `ship`.
        """
        store = self._store_of(task.partition.topic)
        with ExitStack() as opened:
            segment = self._read(task, opened)
            scan = segment.scan
            if scan.corrupt_batches and replaces is not None:
                self._scans.forget(segment.state)
                return PutBack(None, segment.end, is_new=False, is_damaged=True)
            name, existing = choose_good_name(store, task, scan, segment.end, segment.epochs, replaces)
            if existing is Existing.ABSENT:
                self._put(
                    store, task.keys, name, replace(segment, metadata=replace(segment.metadata, replaces=replaces))
                )
        self._scans.forget(segment.state)
        return PutBack(name, segment.end, existing is Existing.ABSENT, bool(scan.corrupt_batches))

    def ship_tail(self, gap: PassGap) -> None:
        """Ship the records of a gap that the live tail has, before its commit passes them.

        Raises:
            PreconditionFailed: another commit exists: read the position again.
            NewerFormat: a later release wrote a pack.
            StoreUnavailable, OutcomeUnknown, AccessDenied, BucketMissing: the store's.
            OSError: a file cannot be written.
        """
        store, position = self._store_of(gap.partition.topic), gap.position
        if not isinstance(position.commit, Commit) or position.commit.live is None:
            return
        catalog, start = read_snapshot(store, position.keys), position.next_offset
        if catalog.commit_etag != position.etag:
            raise PreconditionFailed(f"{position.keys.commit} was written by another agent")
        below = position.lineage.highest if position.lineage is not None else 0
        if start >= below:  # an attempt that failed has put segments
            line = position.epochs.continued(position.commit.live.ahead, start)
            missing = still_missing(store, catalog, ((start, gap.end),), line)
            start = missing[0][0] if missing else gap.end
        for made in tail_segments(store, position, start, gap.end):
            indexes, opened = made.indexes, made.log
            scan = scan_segment(opened.reader(), opened.size, TimeIndex(made.base, indexes[".timeindex"]))
            epochs = scan.epochs
            if any(later <= epoch for (epoch, _), (later, _) in pairwise(epochs)):  # no CRC covers them
                epochs = EpochHistory.of_batches(epochs).pairs
            metadata = _metadata(scan, made.end, epochs, indexes, late=False)
            task = Ship(gap.partition, gap.generation, gap.leadership, position.keys, gap.listing, made.base, made.end)
            task = replace(task, variants_below=below, lineage=position.lineage)
            name, existing = choose_name(store, task, scan, made.end, epochs)
            if existing is Existing.ABSENT:
                facts = (opened, file_state(opened), indexes, scan, made.end, epochs, metadata)
                self._put(store, position.keys, name, _ReadSegment(*facts, late=False, closed_at=None))
            log.warning(
                "tail_kept",
                message="no broker has these records of the live tail any more; they are a segment now",
                partition=str(gap.partition),
                start=made.base,
                end=made.end,
            )

    def _read(self, task: Ship, opened: ExitStack) -> _ReadSegment:
        """Read a segment's files, which `opened` keeps open, and find its coverage."""
        log = open_segment(task, opened)
        indexes = _indexes(task, log)
        if task.cut is not None:
            log, indexes = cut_segment(log, indexes, task.base, task.cut)
        closed = closed_at(task.listing.directory, task.base)
        state = file_state(log)
        scan = self._scans.get(state)
        if scan is None:
            scan = scan_segment(log.reader(), log.size, TimeIndex(task.base, indexes[".timeindex"]))
            self._scans.remember(state, scan)
        end = coverage_end(task, log, scan) if task.cut is None else cut_end(task, log, scan)
        epochs = _epochs(task, scan, end)
        late = is_late(self._retention_of(task.partition.topic), log.age_seconds)
        metadata = _metadata(scan, end, epochs, indexes, late=late)
        return _ReadSegment(log, state, indexes, scan, end, epochs, metadata, late, closed)

    def _put(self, store: ObjectStore, keys: PartitionKeys, name: SegmentName, segment: _ReadSegment) -> CacheEntry:
        """Put the indexes of a segment, then its `.log`; return its entry in a cache object.

        Raises:
            OutcomeUnknown: another agent wrote the object since `choose_name`: the next attempt finds it.
        """
        puts = [
            store.put_async(keys.segment(name, suffix), data, archived=True) for suffix, data in segment.indexes.items()
        ]
        _wait_for(puts)
        log = segment.log
        try:
            info = store.put(
                keys.segment(name, LOG_SUFFIX),
                log.reader(),
                size=log.size,
                metadata=segment.metadata.encode(),
                condition=IfAbsent(),
                crc32c=segment.scan.crc32c,
                archived=True,
            )
        except PreconditionFailed as taken:
            raise OutcomeUnknown(f"{keys.segment(name)}: another agent wrote it meanwhile") from taken
        except CorruptData:
            self._scans.forget(segment.state)  # the file changed within one tick of the file system's clock
            raise
        return entry_of(name, info, info.metadata)


def _indexes(task: Ship, log: OpenLog) -> dict[str, bytes]:
    """Return the indexes of an open log. Retention renames the `.log` first: while that is live, so are the others."""
    if not log.deleted:
        with suppress(SegmentChanged):
            indexes = read_indexes(task.listing.directory, task.base)
            if log.keeps_its_name:
                return indexes
    return read_indexes(task.listing.directory, task.base, deleted=True)


def _epochs(task: Ship, scan: SegmentScan, end: int) -> tuple[tuple[int, int], ...]:
    """Return which epoch wrote which offsets of the segment: by the run, else by the broker's checkpoint.

    Both have the begin of an epoch even if compaction removed its first batches. But a follower's checkpoint has only
    the first batch that was left when it fetched. So below the next offset the run's list is used. Readers drop a batch
    whose epoch differs from the commit's, so a list that contradicts any batch here is not used; the last resort is the
    epochs of the batches themselves. In a gap the broker's list is first: the run has no records of that range.
    """
    local = local_epochs(task.listing.directory) or EpochHistory()
    run = known = task.epochs.continued(local, task.next_offset)
    for low, high in task.gaps:
        known = known.below(low).continued(local, low).below(high).continued(known, high)
    for line in (known, run, local):
        stretches = zip(scan.epochs, scan.epoch_lasts, strict=True)
        if all(line.at(first) == epoch == line.at(last) for (epoch, first), last in stretches):
            begin = line.at(task.base)
            pairs = [(begin, task.base)] if begin is not None else []
            return (*pairs, *(pair for pair in line if task.base < pair[1] < end))
    return scan.epochs


def _metadata(
    scan: SegmentScan, end: int, epochs: tuple[tuple[int, int], ...], indexes: Mapping[str, bytes], *, late: bool
) -> SegmentMetadata:
    state, txnindex = None, indexes.get(".txnindex")
    if txnindex is not None:
        entries = read_transaction_index(txnindex)
        # A `.txnindex.deleted` may be older than its `.log.deleted`: of a dead segment with the same base.
        strange = not scan.corrupt_batches and txnindex_is_strange(entries, scan.abort_markers)
        complete = txnindex_is_complete(entries, scan.abort_markers) and not strange
        whole = TxnIndexState.LATE if late else TxnIndexState.COMPLETE  # removed markers leave no trace
        state = (crc32c(txnindex), whole if complete else TxnIndexState.CORRUPT)
    elif scan.abort_markers:
        state = (0, TxnIndexState.CORRUPT)  # the index is missing
    elif late:
        state = (0, TxnIndexState.LATE)
    return SegmentMetadata(
        end=end,
        epochs=epochs,
        records=scan.record_count,
        time_max=scan.max_timestamp,
        time_min=scan.min_timestamp,
        crc32c=scan.crc32c,
        txnindex=state,
        corruptions=scan.corrupt_batches,
        shipped=int(time.time() * _MILLISECONDS),
        control=scan.control_count,
        # A cached scan may have read another file: a broker that recovers writes the time index again.
        timeindex=scan.timeindex_crc32c if scan.timeindex_crc32c == crc32c(indexes[".timeindex"]) else None,
    )


def _wait_for(puts: list[Future[ObjectInfo]]) -> None:
    """Wait for all puts, then raise the first error: none may complete after the call."""
    errors = [error for put in puts if (error := put.exception()) is not None]
    if errors:
        raise errors[0]
