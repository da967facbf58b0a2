"""Transactions whose end marker compaction removed (the last sentence of reading rule 4).

Kafka's cleaner removes the records of aborted transactions. It removes an end marker once no record of its transaction
is left and `delete.retention.ms` has passed. A copy that was shipped later (its metadata has that) may lack markers,
while a copy of another leader that was shipped earlier still has the records. Then no marker shows whether they were
aborted. The copy that reaches furthest decides, because it is of the latest log: records that it has count. Records
that it lacks were aborted, or have newer records for all their keys.

Each batch is judged alone, because without a marker two transactions of a producer look like one. A batch counts if one
of the furthest copies over it has records of it. It also counts if no marker can be missing: copies that were shipped
in time cover all offsets up to the producer's next marker, or to the end of the view. So readers return no record that
Kafka's consumer would hide from a reader of the furthest copy. Committed records with newer ones may be hidden with
them.

Source of what the cleaner keeps: Kafka's `LogCleaner.CleanedTransactionMetadata` and KIP-534.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ts_common.archive.copies import SegmentCopy
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import ReadRange
from ts_common.archive.sealed_objects import SealedObject
from ts_common.archive.sealed_ranges import listed_of
from ts_common.archive.segment_metadata import TxnIndexState
from ts_common.store.contract import ObjectStore
from ts_reader.reading.transactional_batches import read_transactional

# Returns the offset of a producer's next marker after an offset, from the numbered range on; None if it has no marker.
NextMarker = Callable[[int, int, int], int | None]


@dataclass(frozen=True, slots=True, order=True)
class Batch:
    """A transactional batch with records.

    Attributes:
        first: its base offset.
        last: its last offset.
    """

    producer_id: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class _Living:
    copy: SegmentCopy
    start: int
    end: int
    replaced: bool


def may_be_lost(copies: Sequence[SegmentCopy], sealed: Iterable[SealedObject] = ()) -> bool:
    """Return whether any copy was shipped so late that it may lack a marker.

    Args:
        sealed: sealed objects whose rows are in `copies`.
    """
    return any(_is_late(copy) for copy in listed_of(copies)) or any(
        not each.states <= {None, TxnIndexState.COMPLETE} for each in sealed
    )


def hidden_batches(
    store: ObjectStore, view: PartitionView, steps: Sequence[ReadRange], start: int, stop: int, next_marker: NextMarker
) -> set[Batch]:
    """Return the batches in `[start, stop)` that do not count: the furthest copies lack them, and maybe their marker.

    Args:
        start: first offset.
        stop: the offset after the last.
        next_marker: finds markers in `steps`.

    Raises:
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from reading segments.
    """
    living = _living(view)
    in_time = sorted((entry.start, entry.end) for entry in living if not _is_late(entry.copy))
    found = set()
    for number, step in enumerate(steps):
        if step.copies[0].packed is not None:
            continue  # of the live tail: no other copy counts there
        for low, high, furthest in _pieces(living, max(step.start, start), min(step.end, stop)):
            others = [copy for copy in step.copies if copy not in furthest]
            if not others:
                continue
            for batch in _held(store, others, low, high) - _held(store, furthest, low, high):
                marker = next_marker(number, batch.producer_id, batch.last)
                if not _covered(in_time, batch.last, view.end if marker is None else marker + 1):
                    found.add(batch)
    return found


def _living(view: PartitionView) -> list[_Living]:
    return [
        _Living(copy, *view.live_range(copy), replaced=copy.segment.name.stem in part.replaced)
        for part in view.parts
        for copy in view.copies_of(part)
    ]


def _is_late(copy: SegmentCopy) -> bool:
    """Return whether a copy may lack markers; if its `.txnindex` is corrupt, its metadata lacks when it was shipped."""
    return copy.metadata.txnindex is not None and copy.metadata.txnindex[1] is not TxnIndexState.COMPLETE


def _pieces(living: Sequence[_Living], start: int, end: int) -> Iterator[tuple[int, int, list[SegmentCopy]]]:
    """Yield `[start, end)` in pieces, each with the copies that reach furthest over it."""
    bounds = {start, end} if start < end else set()
    bounds |= {bound for entry in living for bound in (entry.start, entry.end) if start < bound < end}
    ordered = sorted(bounds)
    for low, high in pairwise(ordered):
        covering = [entry for entry in living if entry.start <= low and entry.end >= high]
        over = [entry for entry in covering if not entry.replaced] or covering
        reached = max((entry.end for entry in over), default=high)
        yield low, high, [entry.copy for entry in over if entry.end == reached]


def _held(store: ObjectStore, copies: Iterable[SegmentCopy], start: int, end: int) -> set[Batch]:
    """Return the transactional batches with records that some copies have in a range."""
    return {
        Batch(header.producer_id, header.base_offset, header.last_offset)
        for copy in copies
        for header, _ in read_transactional(store, copy, start, end)
        if not header.is_control and header.record_count != 0
    }


def _covered(ranges: Sequence[tuple[int, int]], start: int, end: int) -> bool:
    """Return whether ascending ranges, which may overlap, cover all of `[start, end)`."""
    for low, high in ranges:
        if low <= start < high:
            start = high
    return start >= end
