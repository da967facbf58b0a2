"""Search every copy of a partition's offsets for records, with the leader epochs of their batches (erase rule 1).

A copy in a dead tail, below the start or above the next offset is searched too. An election, a hold or a commit can
show its records later. So are the entries of a live tail. What cannot be read is named: its records are unknown.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ts_common.archive.catalog import StoredSegment, read_commit, read_snapshot
from ts_common.archive.commit import Commit
from ts_common.archive.copies import SegmentCopy, describe
from ts_common.archive.erased_offsets import NOTHING_ERASED, ErasedOffsets
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.tail_logs import TailLogs
from ts_common.errors import BatchTooLarge, CorruptData, ObjectFrozen, ObjectNotFound
from ts_common.log_format.framing import NO_EPOCH
from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit
from ts_common.store.contract import ObjectStore
from ts_reader.decode.kernel_arrays import Column
from ts_reader.decode.kernel_source import Int64Rows, Int64s
from ts_reader.reading.segment_reader import SegmentReader
from tsctl.erase.criteria import Criterion

_ATTEMPTS: Final = 3  # each is lost to a merge of a live tail
_MAGIC_2: Final = 2


@dataclass(slots=True)
class Searched:
    """What a search of one partition found.

    Attributes:
        end: E: records from there on were not searched; 0 if it is unknown, without a commit of an agent.
        following: the next offset of the commit; 0 without one.
        offsets: of the records, each with the greatest leader epoch of their batches.
        copies: the number of copies that were read.
        left_out: the number of copies below E that have no wanted record by an index of keys, or by their offsets.
        bytes: of the copies that were read.
        assumed: the number of given offsets without a record in any copy. They are hidden all the same.
        unread: a sentence for each copy that could not be read or decided.
    """

    end: int = 0
    following: int = 0
    offsets: ErasedOffsets = NOTHING_ERASED
    copies: int = 0
    left_out: int = 0
    bytes: int = 0
    assumed: int = 0
    unread: list[str] = field(default_factory=list)


def search(
    store: ObjectStore,
    keys: PartitionKeys,
    criterion: Criterion,
    *,
    end: int = 0,
    least: int = 0,
    limit: BatchLimit = DEFAULT_LIMIT,
    done: Callable[[int], None] = lambda _: None,
) -> Searched:
    """Return the wanted records below an offset E, in all stored copies.

    Args:
        end: E of an earlier search; 0: E is the greatest of the next offset, the end of the live tail, and `least`.
        least: the broker's log end; 0 if it is unknown.
        done: called with the bytes of each copy.

    Raises:
        CorruptData: the commit or `log.start` is damaged.
        NewerFormat: a later release wrote one of them.
        QueryError: as `Criterion.matches`.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    found = Searched()
    tail_end, entries = _read_tail(store, keys, found.unread)
    # What a tail no longer has was committed before it was read, so a later commit and listing have it.
    catalog = read_snapshot(store, keys)
    if not isinstance(catalog.commit, Commit):
        found.end = end or least
        is_empty = catalog.commit is None and catalog.stored_log_start is None and not catalog.segments
        if not (is_empty and found.end):  # else a search after its first segment was shipped finds all below E
            found.unread.append(f"{keys.commit}: no commit of an agent, so nothing of the partition was searched")
        return found
    found.following = catalog.commit.next_offset
    found.end = end or max(found.following, tail_end, least)
    removed: list[StoredSegment] = []
    copies = describe(store, keys, catalog.segments, catalog.cache_objects, damaged=found.unread, removed=removed)
    found.unread += [f"{keys.segment(each.name)}: removed after it was listed" for each in removed]
    below = [copy for copy in (*copies, *entries) if copy.base < found.end]
    wanted = criterion.that_can_have(store, below)
    found.left_out = len(below) - len(wanted)
    runs = list[tuple[int, int, int]]()
    for copy in wanted:
        hits, why = _search_copy(store, copy, criterion, limit)
        runs += [(offset, offset + 1, epoch) for offset, epoch in hits if offset < found.end]
        doubt = criterion.doubt()
        found.unread += [] if why is None else [why]
        found.unread += [] if doubt is None else [f"{copy.key}: {doubt}"]
        found.copies += 1
        found.bytes += copy.segment.size
        done(copy.segment.size)
    hit = {start for start, _, _ in runs}
    for offset, epoch in criterion.named(keys).items():
        if epoch is not None or offset not in hit:
            found.assumed += epoch is None
            runs.append((offset, offset + 1, catalog.commit.epoch if epoch is None else epoch))  # doubt hides
    found.offsets = ErasedOffsets.of(runs)
    return found


def end_of(store: ObjectStore, keys: PartitionKeys, least: int = 0) -> int:
    """Return E of a search that begins now; 0 without a commit of an agent.

    Args:
        least: as of `search`.

    Raises:
        CorruptData, NewerFormat, StoreUnavailable, AccessDenied, BucketMissing: as `search`.
    """
    tail_end, _ = _read_tail(store, keys, [])
    commit, _ = read_commit(store, keys)
    return max(commit.next_offset, tail_end, least) if isinstance(commit, Commit) else 0


def _read_tail(store: ObjectStore, keys: PartitionKeys, unread: list[str]) -> tuple[int, Sequence[SegmentCopy]]:
    """Return the end of a live tail and all its entries; 0 and none without one. Append why it cannot be read."""
    why = ""
    for _ in range(_ATTEMPTS):
        commit = read_commit(store, keys)[0]
        if not isinstance(commit, Commit) or commit.live is None:
            return 0, ()
        tails = TailLogs(store, keys.cluster)
        try:
            return tails.chain(keys, commit).end, tails.copies(keys, commit)
        except ObjectNotFound as error:  # a merge deleted a pack
            why = str(error)
        except CorruptData as error:
            why = str(error)
            break
    unread.append(f"{keys.partition}: its live tail was not searched: {why}")
    return 0, ()


def _search_copy(
    store: ObjectStore, copy: SegmentCopy, criterion: Criterion, limit: BatchLimit
) -> tuple[list[tuple[int, int]], str | None]:
    """Return the wanted records of a copy, as offset and epoch, and why it could not be read to its end."""
    epochs = _Epochs()
    reader = SegmentReader(store, criterion.projection, erased=NOTHING_ERASED, limit=limit, summary=epochs)
    offsets, why = list[int](), None
    try:
        for columns in reader.read(copy, copy.base, copy.end):
            offsets += columns.offsets[criterion.matches(copy.keys, columns)].tolist()
    except ObjectNotFound:
        where = "its agent merged or deleted this pack of the live tail" if copy.packed else "it was removed"
        why = f"{copy.key}: {where} meanwhile; repeat the command, which searches what has its records now"
    except (CorruptData, BatchTooLarge, ObjectFrozen) as error:
        why = str(error)
    greatest = max((epoch for epoch, _ in copy.metadata.epochs or ()), default=NO_EPOCH)
    return [(offset, epochs.of(offset, greatest)) for offset in offsets], why


class _Epochs:
    """The leader epochs of the batches that a decoder lists (`BatchObserver`)."""

    def __init__(self) -> None:
        self._tables: list[Int64s] = []
        self._rows: Int64s | None = None

    def take(self, table: Int64Rows, start: int, end: int, following: int) -> None:  # noqa: ARG002  (an observer's)
        """Note the batches of a table; see `ts_reader.decode.batch_summary.BatchObserver`."""
        self._tables.append(table[:, [Column.BASE_OFFSET, Column.LAST_OFFSET, Column.LEADER_EPOCH, Column.MAGIC]])

    def of(self, offset: int, greatest: int) -> int:
        """Return the epoch of the batch with an offset.

        Args:
            greatest: of the copy, for a record with another offset than its header allows: doubt hides.
        """
        if self._rows is None:
            self._rows = np.concatenate(self._tables) if self._tables else np.empty((0, 4), np.int64)
        rows = self._rows[(self._rows[:, 0] <= offset) & (self._rows[:, 1] >= offset)]
        if not len(rows):
            return greatest
        return max(NO_EPOCH if magic < _MAGIC_2 else epoch for _, _, epoch, magic in rows.tolist())
