"""Search every copy of a partition's offsets for records, with the leader epochs of their batches (erase rule 1).

A copy in a dead tail, below the start or above the next offset is searched too. An election, a hold or a commit can
show its records later. What cannot be read is named: its records are unknown.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ts_common.archive.catalog import StoredSegment, read_snapshot
from ts_common.archive.copies import SegmentCopy, describe
from ts_common.archive.erased_offsets import NOTHING_ERASED, ErasedOffsets
from ts_common.archive.object_keys import PartitionKeys
from ts_common.errors import BatchTooLarge, CorruptData, ObjectFrozen, ObjectNotFound
from ts_common.log_format.framing import NO_EPOCH
from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit
from ts_common.store.contract import ObjectStore
from ts_reader.decode.arrow import to_arrow
from ts_reader.decode.columns import Projection, RecordColumns
from ts_reader.decode.kernel_arrays import Column
from ts_reader.decode.kernel_source import Int64Rows, Int64s
from ts_reader.reading.segment_reader import SegmentReader

Flags = npt.NDArray[np.bool_]
Matches = Callable[[RecordColumns], Flags]
"""Returns which rows are wanted: bool[rows]."""

_MAGIC_2: Final = 2


@dataclass(slots=True)
class Searched:
    """What a search of one partition found.

    Attributes:
        offsets: of the records, each with the greatest leader epoch of their batches.
        copies: the number of copies that were read.
        bytes: of them.
        unread: a sentence for each copy that could not be read.
    """

    offsets: ErasedOffsets = NOTHING_ERASED
    copies: int = 0
    bytes: int = 0
    unread: list[str] = field(default_factory=list)


def search(
    store: ObjectStore,
    keys: PartitionKeys,
    end: int,
    projection: Projection,
    matches: Matches,
    *,
    limit: BatchLimit = DEFAULT_LIMIT,
    done: Callable[[int], None] = lambda _: None,
) -> Searched:
    """Return the wanted records below an offset, in all stored copies.

    Args:
        end: E: records from there on are not searched.
        projection: what `matches` needs.
        done: called with the bytes of each copy.

    Raises:
        CorruptData: the commit or `log.start` is damaged.
        NewerFormat: a later release wrote one of them.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    found = Searched()
    catalog = read_snapshot(store, keys)
    removed: list[StoredSegment] = []
    copies = describe(store, keys, catalog.segments, catalog.cache_objects, damaged=found.unread, removed=removed)
    found.unread += [f"{keys.segment(each.name)}: removed after it was listed" for each in removed]
    runs = list[tuple[int, int, int]]()
    for copy in copies:
        if copy.base >= end:
            continue
        hits, why = _search_copy(store, copy, projection, matches, limit)
        runs += [(offset, offset + 1, epoch) for offset, epoch in hits if offset < end]
        if why is not None:
            found.unread.append(why)
        found.copies += 1
        found.bytes += copy.segment.size
        done(copy.segment.size)
    found.offsets = ErasedOffsets.of(runs)
    return found


def with_keys(keys: frozenset[bytes]) -> Matches:
    """Return what matches records with one of these keys; it needs the keys."""
    wanted = pa.array(sorted(keys), pa.binary())

    def matches(columns: RecordColumns) -> Flags:
        found = to_arrow(columns, "", 0, ["key"]).column("key")
        flags: Flags = pc.fill_null(pc.is_in(found, value_set=wanted), False).to_numpy(zero_copy_only=False)
        return flags

    return matches


def _search_copy(
    store: ObjectStore, copy: SegmentCopy, projection: Projection, matches: Matches, limit: BatchLimit
) -> tuple[list[tuple[int, int]], str | None]:
    """Return the wanted records of a copy, as offset and epoch, and why it could not be read to its end."""
    epochs = _Epochs()
    reader = SegmentReader(store, projection, erased=NOTHING_ERASED, limit=limit, summary=epochs)
    offsets, why = list[int](), None
    try:
        for columns in reader.read(copy, copy.base, copy.end):
            offsets += columns.offsets[matches(columns)].tolist()
    except (CorruptData, BatchTooLarge, ObjectNotFound, ObjectFrozen) as error:
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
