"""Shipping one closed segment: the upload protocol as one page.

The `.log` object is the sign that a segment is whole, so it goes last, and never over another (protocol rules 2, 3, 6).
How far a segment answers is found out after it was read and before it is shipped (`ts_uploader.shipping.coverage`): its
bytes, its neighbour and the leadership may all have changed meanwhile, and then nothing counts, and the tracker looks
again. What was found out is a fact about these bytes, whatever the log cleaner does while they are under way.

What the reader holds open cannot be lost to an unlink, so a segment that retention takes meanwhile is shipped all the
same (protocol rule 10).

Retrying never ends (protocol rule 9), so it may not cost the disk: what a segment's bytes say is remembered until it
is shipped, and an attempt that the store refuses at the door reads none of them again.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, suppress

from awscrt.checksums import crc32c

from ts_common.archive.epoch_history import NO_EPOCH, EpochHistory
from ts_common.archive.fetch import fetch
from ts_common.archive.object_keys import LOG_SUFFIX, SegmentName
from ts_common.archive.segment_metadata import SegmentMetadata, TxnIndexState, decode_metadata
from ts_common.errors import CorruptData, ObjectNotFound, OutcomeUnknown, PreconditionFailed, SegmentChanged
from ts_common.log_format.index_files import (
    TimeIndex,
    read_transaction_index,
    txnindex_is_complete,
    txnindex_is_strange,
)
from ts_common.log_format.scan import SegmentScan, scan_segment
from ts_common.store.contract import IfAbsent, ObjectInfo, ObjectStore
from ts_uploader.log_dirs.local_log import closed_at, last_stable_offset, local_epochs, read_indexes
from ts_uploader.log_dirs.scan_cache import RememberedScans, file_state
from ts_uploader.log_dirs.segment_file import OpenLog
from ts_uploader.retention.topic_retention import TopicRetention, is_late
from ts_uploader.shipping.coverage import coverage_end, open_segment
from ts_uploader.tasks import Ship, Shipped

# Of a stored object that is compared with ours: small, since each upload thread's allocator keeps what it once had.
_COMPARED_BYTES = 256 << 10
_MILLISECONDS = 1000


class Uploader:
    """Ships segments; used by several threads at once.

    Args:
        store_of: the store that holds a topic's objects.
        retention_of: how long Kafka keeps a topic's segments, and what the cleaner may take of them.
    """

    def __init__(self, store_of: Callable[[str], ObjectStore], retention_of: Callable[[str], TopicRetention]) -> None:
        self._store_of = store_of
        self._retention_of = retention_of
        self._scans = RememberedScans()

    def ship(self, task: Ship) -> Shipped:
        """Ship one segment.

        Raises:
            SegmentChanged: the file or its neighbours are not what the task says any more.
            CorruptData: the file holds no batch, or the store took other bytes than were read.
            StoreUnavailable, OutcomeUnknown, AccessDenied, BucketMissing: the store's.
        """
        began = time.monotonic()
        store, keys, directory = self._store_of(task.partition.topic), task.keys, task.listing.directory
        with ExitStack() as opened:
            log = open_segment(task, opened)
            indexes = _indexes(task, log)
            closed = closed_at(directory, task.base)
            state = file_state(log)
            scan = self._scans.get(state)
            if scan is None:
                scan = scan_segment(log.reader(), log.size, TimeIndex(task.base, indexes[".timeindex"]))
                self._scans.remember(state, scan)
            end = coverage_end(task, log, scan)
            epochs = _epochs(task, scan, end)
            late = is_late(self._retention_of(task.partition.topic), log.age_seconds)
            metadata = _metadata(scan, end, epochs, indexes, late=late)

            for name in _names(task, scan, end, epochs):
                there = _stands_there(store, keys.segment(name), scan, end, epochs)
                if there is not False:
                    break
            sent = 0
            if not there:
                puts = [
                    store.put_async(keys.segment(name, suffix), data, archived=True) for suffix, data in indexes.items()
                ]
                _wait_for(puts)
                try:
                    store.put(
                        keys.segment(name, LOG_SUFFIX),
                        log.reader(),
                        size=log.size,
                        metadata=metadata.encode(),
                        condition=IfAbsent(),
                        crc32c=scan.crc32c,
                        archived=True,
                    )
                except PreconditionFailed as taken:
                    # Somebody came between our look and our put: the next attempt looks again, and finds it.
                    raise OutcomeUnknown(f"{keys.segment(name)} was taken meanwhile") from taken
                except CorruptData:
                    self._scans.forget(state)  # a change that the clock of the file system was too coarse to show
                    raise
                sent = log.size + sum(len(data) for data in indexes.values())
        self._scans.forget(state)
        return Shipped(
            partition=task.partition,
            generation=task.generation,
            leadership=task.leadership,
            base=task.base,
            next_base=task.next_base,
            end=end,
            epochs=epochs,
            last_stable_offset=last_stable_offset(directory, end),
            bytes_sent=sent,
            files_sent=0 if there else 1 + len(indexes),
            closed_at=closed,
            corruptions=scan.corrupt_batches,
            seconds=time.monotonic() - began,
            tail=scan.tail if end == scan.end_offset else None,
            late=late and not there,
            variants_below=task.variants_below,
            run=task.epochs,
            run_end=task.next_offset,
            stamp=task.listing.stamp,
        )


def _indexes(task: Ship, log: OpenLog) -> dict[str, bytes]:
    """The indexes of an open log. Retention renames the `.log` first: while that is live, so are all four."""
    if not log.deleted:
        with suppress(SegmentChanged):
            indexes = read_indexes(task.listing.directory, task.base)
            if log.stands:
                return indexes
    return read_indexes(task.listing.directory, task.base, deleted=True)


def _names(task: Ship, scan: SegmentScan, end: int, epochs: tuple[tuple[int, int], ...]) -> Iterator[SegmentName]:
    """The names to try: the plain one; the variant of these bytes; the variant of these bytes with this metadata.

    The last is for bytes that stand there already and answer for less: the cleaner emptied and merged neighbours
    since, or whoever shipped them knew less of the epochs. Metadata never changes, so what answers for more needs
    another name.

    The epoch in a variant's name is that of the agent's own leadership, never the batches': a deletion plan spares what
    a leader has shipped and not committed yet, and knows it by that.
    """
    epoch = task.leadership.epoch
    if task.base >= task.variants_below:
        yield SegmentName(task.base)
    yield SegmentName(task.base, epoch, scan.crc32c)
    yield SegmentName(task.base, epoch, crc32c(repr((end, epochs)).encode(), scan.crc32c))


def _epochs(task: Ship, scan: SegmentScan, end: int) -> tuple[tuple[int, int], ...]:
    """Which epoch wrote which offsets of the segment: by the run, then by the broker's own checkpoint.

    Both know where an epoch began even where compaction took its first batches; but a follower's checkpoint knows only
    of the first batch that was left when it fetched, so below the next offset the run's word counts. Readers drop a
    batch whose epoch is not the one that the commit gives its offset, so a list that disagrees with any batch here is
    not taken; at last the batches' own epochs count. In a gap the broker's list comes first: the run has no
    records of that range.
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
        # A `.txnindex.deleted` may be older than its `.log.deleted`: of a dead segment that had the same base.
        strange = not scan.corrupt_batches and txnindex_is_strange(entries, scan.abort_markers)
        complete = txnindex_is_complete(entries, scan.abort_markers) and not strange
        whole = TxnIndexState.LATE if late else TxnIndexState.COMPLETE  # of markers that are gone nothing is known
        state = (crc32c(txnindex), whole if complete else TxnIndexState.CORRUPT)
    elif scan.abort_markers:
        state = (0, TxnIndexState.CORRUPT)  # there should be one
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
        # A remembered scan may have seen another file: a broker that recovers writes it anew.
        timeindex=scan.timeindex_crc32c if scan.timeindex_crc32c == crc32c(indexes[".timeindex"]) else None,
    )


def _stands_there(
    store: ObjectStore, key: str, scan: SegmentScan, end: int, epochs: tuple[tuple[int, int], ...]
) -> bool | None:
    """Whether the object under `key` has our bytes, answers for as much, and lives; None where there is no object.

    Theirs may be longer: then it must begin with our bytes. Without metadata (a Java uploader's) it answers for what
    its batches say, and no more.
    """
    try:
        info = store.head(key)
    except ObjectNotFound:
        return None
    theirs = decode_metadata(info.metadata, key)
    if info.size < scan.size or (scan.end_offset or 0 if theirs is None else theirs.end) < end:
        return False
    if theirs is not None and not _lives(theirs, end, epochs):
        return False
    if theirs is not None and info.size == scan.size:
        return theirs.crc32c == scan.crc32c
    return _prefix_crc(store, info, scan.size) == scan.crc32c


def _lives(theirs: SegmentMetadata, end: int, epochs: tuple[tuple[int, int], ...]) -> bool:
    """Whether readers who go by these epochs would take a copy for alive up to `end`."""
    known = [pair for pair in epochs if pair[0] != NO_EPOCH]
    if theirs.epochs is None or not known or len(known) != len(epochs):
        return True  # its headers decide, which are ours
    return EpochHistory(tuple(known)).agrees_with(theirs.epochs, known[0][1], end)


def _prefix_crc(store: ObjectStore, info: ObjectInfo, size: int) -> int:
    crc, left = 0, size
    for chunk in fetch(store, info.key, chunk_bytes=_COMPARED_BYTES):
        crc = crc32c(chunk[:left], crc)
        left -= min(left, len(chunk))
        if not left:
            break
    return int(crc)


def _wait_for(puts: list[Future[ObjectInfo]]) -> None:
    """All have ended before the first error is raised: none may land behind the caller's back."""
    errors = [error for put in puts if (error := put.exception()) is not None]
    if errors:
        raise errors[0]
