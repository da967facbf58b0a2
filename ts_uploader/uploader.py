"""Shipping one closed segment: the upload protocol as one page.

The `.log` object is the sign that a segment is whole, so it goes last, and never over another (protocol rules 2, 3, 6).
Two things can go wrong with a segment that is read while its broker works on. Its bytes may change: then inode, size or
its being closed changed, which is checked again after reading. And its neighbour may be none: the log cleaner
renames many files, not in one step, so what follows a segment in a listing bounds its coverage only if listings
before and after agree and show no rename under way. Either way nothing counts, and the tracker looks again.

What the reader holds open cannot be lost to an unlink, so a segment that retention takes meanwhile is shipped all the
same (rule 10). What was shipped before the check stays in the store, where it does no harm without its `.log`.

Retrying never ends (rule 9), so it may not cost the disk: what a segment's bytes say is remembered until it is shipped,
and an attempt that the store refuses at the door reads none of them again.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

from awscrt.checksums import crc32c

from ts_common.epochs import NO_EPOCH, EpochLine
from ts_common.errors import CorruptData, ObjectNotFound, OutcomeUnknown, PreconditionFailed, SegmentChanged
from ts_common.fetch import fetch
from ts_common.log_format.framing import Trailing
from ts_common.log_format.index_files import TimeIndex, read_transaction_index, txnindex_is_complete
from ts_common.log_format.scan import SegmentScan, scan_segment
from ts_common.object_keys import LOG_SUFFIX, SegmentName
from ts_common.segment_metadata import SegmentMetadata, TxnIndexState, decode_metadata
from ts_common.store.contract import IfAbsent, ObjectInfo, ObjectStore
from ts_uploader.events import Listing, Ship, Shipped
from ts_uploader.local_log import closed_at, last_stable_offset, local_epochs, read_indexes
from ts_uploader.reign import check_reign
from ts_uploader.retention import TopicRetention, is_late
from ts_uploader.scans import RememberedScans, file_state
from ts_uploader.segment_file import OpenLog, open_log
from ts_uploader.watch.scan import list_partition

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
            log = opened.enter_context(open_log(directory, task.base))
            indexes = read_indexes(directory, task.base)
            closed = closed_at(directory, task.base)
            state = file_state(log)
            scan = self._scans.get(state)
            if scan is None:
                scan = scan_segment(log.reader(), log.size, TimeIndex(task.base, indexes[".timeindex"]))
                self._scans.remember(state, scan)
            end = _coverage_end(task, scan)
            _check_unchanged(task, log)
            epochs = _epochs(task, scan, end)
            late = is_late(self._retention_of(task.partition.topic), log.age_seconds)
            metadata = _metadata(scan, end, epochs, indexes, late=late)

            for name in _names(task.base, scan, end, epochs):
                there = _stands_there(store, keys.segment(name), scan, end, epochs)
                if there is not False:
                    break
            sent = 0
            if not there:
                puts = [store.put_async(keys.segment(name, suffix), data) for suffix, data in indexes.items()]
                _wait_for(puts)
                try:
                    store.put(
                        keys.segment(name, LOG_SUFFIX),
                        log.reader(),
                        size=log.size,
                        metadata=metadata.encode(),
                        condition=IfAbsent(),
                        crc32c=scan.crc32c,
                    )
                except PreconditionFailed as taken:
                    # Somebody came between our look and our put: the next attempt looks again, and finds it.
                    raise OutcomeUnknown(f"{keys.segment(name)} was taken meanwhile") from taken
                except CorruptData:
                    self._scans.forget(state)  # a change that the clock of the file system was too coarse to show
                    raise
                sent = log.size + sum(len(data) for data in indexes.values())
        if end == task.next_base and end != scan.end_offset:
            _check_neighbours(task)
        self._scans.forget(state)
        return Shipped(
            partition=task.partition,
            generation=task.generation,
            reign=task.reign,
            base=task.base,
            next_base=task.next_base,
            end=end,
            epochs=epochs,
            last_stable_offset=last_stable_offset(directory, end),
            bytes_sent=sent,
            files_sent=1 + len(indexes) if sent else 0,
            closed_at=closed,
            corruptions=scan.corrupt_batches,
            seconds=time.monotonic() - began,
            tail=scan.tail if end == scan.end_offset else None,
            late=late and bool(sent),
        )


def _coverage_end(task: Ship, scan: SegmentScan) -> int:
    """Where the coverage of the segment ends (protocol rule 2)."""
    path = task.listing.directory / f"{task.base:020d}{LOG_SUFFIX}"
    _check_epochs(path, scan)
    if scan.end_offset is None or scan.base_offset is None:
        if scan.trailing is Trailing.TORN or scan.corruption:
            raise CorruptData(f"{path}: no batch in its {scan.size} bytes; the broker's own log check says more")
        _check_neighbours(task)  # compaction removed every batch
        return task.next_base
    if scan.base_offset < task.base or scan.end_offset > task.next_base:
        raise CorruptData(
            f"{path}: batches of [{scan.base_offset}, {scan.end_offset}), the names say [{task.base}, {task.next_base})"
        )
    if scan.end_offset == task.next_base:
        return scan.end_offset
    if _tail_is_damaged(scan):
        return scan.end_offset  # what is no whole batch is not coverage
    # Compaction removed the tail, if the neighbour is one.
    _check_neighbours(task)
    return task.next_base


def _tail_is_damaged(scan: SegmentScan) -> bool:
    """Whether anything but zero bytes follows the last good batch; damage before that does not bear on the end."""
    unlisted = scan.corrupt_batches > len(scan.corruption) and scan.valid_bytes < scan.size
    behind = any(position >= scan.valid_bytes for position, _ in scan.corruption)
    return scan.trailing is Trailing.TORN or behind or unlisted


def _check_epochs(path: Path, scan: SegmentScan) -> None:
    """Epochs never fall inside a log. The batch CRC leaves them out, so a flipped bit there shows only this way."""
    epochs = [pair for pair in scan.epochs if pair[0] != NO_EPOCH]
    for (before, _), (epoch, offset) in pairwise(epochs):
        if epoch < before:
            raise CorruptData(
                f"{path}: leader epoch {epoch} at offset {offset} after {before}; readers would drop what follows, so "
                "it is not shipped as it is"
            )


def _names(base: int, scan: SegmentScan, end: int, epochs: tuple[tuple[int, int], ...]) -> Iterator[SegmentName]:
    """The names to try: the plain one; the variant of these bytes; the variant of these bytes with this metadata.

    The last is for bytes that stand there already and answer for less: the cleaner emptied and merged neighbours
    since, or whoever shipped them knew less of the epochs. Metadata never changes, so what answers for more needs
    another name.
    """
    epoch = scan.epochs[-1][0] if scan.epochs else NO_EPOCH
    yield SegmentName(base)
    yield SegmentName(base, epoch, scan.crc32c)
    yield SegmentName(base, epoch, crc32c(repr((end, epochs)).encode(), scan.crc32c))


def _check_neighbours(task: Ship) -> None:
    """What follows the segment still is what the task says, with no rename under way.

    Of a segment that retention took, the task names what followed it when it was last listed live; the cleaner could
    not change that without a live segment at or below it.
    """
    now = _listing(task)
    inside = [base for base in now.deleted if task.base < base < task.next_base]
    together = task.base not in now.bases or (task.base, task.next_base) in pairwise(now.bases)
    if task.listing.swapping or now.swapping or inside or not together:
        raise SegmentChanged(f"{task.listing.directory}: the log cleaner is at work around {task.base}")


def _check_unchanged(task: Ship, log: OpenLog) -> None:
    """The file that was read is still that file, still whole, still closed; or retention took it, whole and closed."""
    stands = log.stands  # before the listing: a rename in between then shows there
    now = _listing(task)
    if task.base in now.bases:
        if not stands:
            raise SegmentChanged(f"{log.path} was replaced or cut while it was read")
        if task.next_base not in now.bases:
            raise SegmentChanged(f"{log.path} is no longer followed by {task.next_base}")
    elif now.swapping or not now.bases or now.bases[0] <= task.base:
        raise SegmentChanged(f"{log.path} is gone, and not by retention")
    else:
        check_reign(now, task.reign)
    if not log.is_whole:
        raise SegmentChanged(f"{log.path} was cut while it was read")


def _listing(task: Ship) -> Listing:
    listing = list_partition(task.partition, task.listing.directory, task.listing.log_dir)
    if listing is None or listing.identity != task.listing.identity:
        raise SegmentChanged(f"{task.listing.directory} is gone, or another directory now")
    return listing


def _epochs(task: Ship, scan: SegmentScan, end: int) -> tuple[tuple[int, int], ...]:
    """Which epoch wrote which offsets of the segment: by the run, then by the broker's own checkpoint.

    Both know where an epoch began even where compaction took its first batches; but a follower's checkpoint knows only
    of the first batch that was left when it fetched, so below the next offset the run's word counts. Readers drop a
    batch whose epoch is not the one that the commit gives its offset, so a list that disagrees with any batch here is
    not taken; at last the batches' own epochs count.
    """
    local = local_epochs(task.listing.directory) or EpochLine()
    for line in (task.epochs.continued(local, task.next_offset), local):
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
        complete = txnindex_is_complete(read_transaction_index(txnindex), scan.abort_markers)
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
    return EpochLine(tuple(known)).agrees_with(theirs.epochs, known[0][1], end)


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
