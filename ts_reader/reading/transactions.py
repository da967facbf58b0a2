"""The aborted transactions of a partition, and the beginnings of the undecided ones (reading rule 4).

A `.txnindex` lists the aborted transactions whose marker is in its segment. It is used only if it is complete and has
the CRC in the `.log`'s metadata. A segment that an agent wrote without one has no abort marker. For other segments the
batch headers are read: a transaction begins with a producer's first transactional batch after its last marker, and ends
with its next marker. If the transaction of a marker began in an earlier segment, earlier segments are read until its
beginning is found. Only live batches count; batches in a dead tail are ignored.

Lost offsets may contain markers. A producer's next marker after a hole may belong to a transaction that began in the
hole, so it does not decide a transaction that is open where the hole begins. The records of that transaction before the
hole are hidden, and are part of the loss.

Source of the end of the search: Kafka's `UnifiedLog.collectAbortedTransactions`, which stops at an entry whose last
stable offset is at or above the requested end.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import structlog
from awscrt.checksums import crc32c

from ts_common.archive.copies import SegmentCopy
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import Hole, ReadRange
from ts_common.archive.restored import Outcome
from ts_common.archive.sealed_ranges import with_markers
from ts_common.archive.segment_metadata import TxnIndexState
from ts_common.archive.small_objects import read_index
from ts_common.log_format.index_files import AbortedTransaction, read_transaction_index
from ts_common.store.contract import ObjectStore
from ts_reader.reading.missing_markers import Batch, hidden_batches, may_be_lost
from ts_reader.reading.transaction_events import Abort, Events, Walk

log = structlog.get_logger()


def stable_end(store: ObjectStore, view: PartitionView) -> int:
    """Return the end of a view for `read_committed`: its last stable offset, at most its end.

    Raises:
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from reading segments, if the commit has no last
            stable offset.
    """
    if view.last_stable_offset is not None:
        return min(view.last_stable_offset, view.end)
    steps = view.ranges(view.start, view.end)
    events, walk = Events(store, steps, ended=view.ended), Walk()
    if may_be_lost(view.copies, view.sealed):
        lost = hidden_batches(store, view, steps, view.start, view.end, events.next_marker)
        events = Events(store, steps, frozenset(lost), view.ended)
    for number in range(len(steps)):
        walk.add(events.of(number))
    return min([*walk.open.values(), view.end])


@dataclass(frozen=True, slots=True)
class CutOff:
    """A transaction that is open where a hole begins: its end marker may be in the hole.

    Attributes:
        first: its first offset that was read.
        hole: the lost offsets `[start, end)`.
    """

    producer_id: int
    first: int
    hole: Hole

    @property
    def reason(self) -> str:
        """Return why its records are not shown, as the end of a sentence that begins with their offsets."""
        return (
            f"not shown as far as producer {self.producer_id} wrote them: its transaction is open where "
            f"the lost offsets {self.hole.start} to {self.hole.end - 1} begin"
        )


@dataclass(frozen=True, slots=True)
class Hidden:
    """Transactions of a range whose records `read_committed` does not return.

    Attributes:
        transactions: all of them, by producer and offset.
        cut_off: those of them whose end a hole may contain, in the order of offsets.
    """

    transactions: tuple[AbortedTransaction, ...] = ()
    cut_off: tuple[CutOff, ...] = ()


def find_hidden(store: ObjectStore, view: PartitionView, start: int, stop: int) -> Hidden:
    """Return the transactions whose records in `[start, stop)` are hidden: aborted, cut off, or without a marker.

    Markers are searched up to the end of the view. A batch that does not count because compaction removed its marker
    (`ts_reader.reading.missing_markers`) is a transaction of its own.

    Args:
        view: of the partition, with its own end, because a marker can be far after its records.
        start: first offset.
        stop: the offset after the last, at most the last stable one.

    Raises:
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from reading indexes and segments.
    """
    if view.names_no_transactions:
        return Hidden()
    steps = view.ranges(view.start, view.end)
    events = Events(store, steps, ended=view.ended)
    found = _find_aborted(store, events, steps, start, stop)
    found += [
        AbortedTransaction(each.producer_id, each.first_offset, end - 1, -1)
        for end, ended in view.ended.items()
        for each in ended
        if each.outcome is Outcome.ABORT and each.first_offset < end
    ]
    lost: set[Batch] = set()
    if may_be_lost(view.copies, view.sealed):
        lost = hidden_batches(store, view, steps, start, stop, events.next_marker)
        if lost:
            log.info("transactions_without_markers", partition=str(view.partition), batches=len(lost))
        found += [AbortedTransaction(batch.producer_id, batch.first, batch.last, -1) for batch in lost]
    cut_off = _find_cut_off(store, view, frozenset(lost), start, stop)
    found += [AbortedTransaction(one.producer_id, one.first, one.hole.start - 1, -1) for one in cut_off]
    return Hidden(apart(entry for entry in found if entry.first_offset < stop and entry.last_offset >= start), cut_off)


def _find_aborted(
    store: ObjectStore, events: Events, steps: Sequence[ReadRange], start: int, stop: int
) -> list[AbortedTransaction]:
    """Return the aborted transactions by indexes and markers from `start` on."""
    found: list[AbortedTransaction] = []
    walk, following = Walk(), -1
    for number in with_markers(steps, start):
        if number != following:
            walk = Walk()  # as behind a range with an index
        step, following = steps[number], number + 1
        indexed = [_indexed(store, copy) for copy in step.copies]
        entries = [entry for index in indexed for entry in index or ()]
        living = [entry for entry in entries if step.start <= entry.last_offset < step.end]
        found += living
        if None in indexed:
            for abort in walk.add(events.of(number)):
                found.append(AbortedTransaction(abort.producer_id, _beginning(abort, events, number), abort.offset, -1))
        else:
            walk = Walk()  # an index lists no commits, so open transactions may have ended here
            if any(entry.last_stable_offset >= stop for entry in living):
                break
    return found


def _beginning(abort: Abort, events: Events, number: int) -> int:
    """Return the first offset of an aborted transaction that ends in a range."""
    if not abort.is_certain and (begun := events.open_at(number, abort.producer_id)) is not None:
        return begun.offset
    return abort.offset if abort.begun is None else abort.begun


def _find_cut_off(
    store: ObjectStore, view: PartitionView, lost: frozenset[Batch], start: int, stop: int
) -> tuple[CutOff, ...]:
    """Return the transactions with records in `[start, stop)` that are open where a hole begins.

    Headers are read from `start` to the last hole that begins below `stop`, and from there until all open transactions
    have ended. If the view has no hole above `start`, no segment is read.
    """
    if not any(isinstance(step, Hole) for step in view.runs(start, view.end)):
        return ()
    plan = view.plan(start, view.end)
    holes = [number for number, step in enumerate(plan) if isinstance(step, Hole)]
    steps = [step for step in plan if not isinstance(step, Hole)]
    events, number = Events(store, steps, lost, view.ended), 0
    found: list[CutOff] = []
    still_open: dict[int, int] = {}  # by producer, the first offset
    for step in plan[: holes[-1] + 1 if holes else 0]:
        if step.start >= stop and not still_open:
            break
        if isinstance(step, Hole):
            found += [CutOff(producer, first, step) for producer, first in still_open.items()]
            still_open.clear()
            continue
        number += 1
        for event in events.of(number - 1):
            if event.kind is not None:
                still_open.pop(event.producer_id, None)
            elif event.offset < stop:
                still_open.setdefault(event.producer_id, event.offset)
    return tuple(sorted(found, key=lambda one: (one.hole.start, one.first)))


def apart(entries: Iterable[AbortedTransaction]) -> tuple[AbortedTransaction, ...]:
    """Return entries by producer and offset, without those inside another one of the same producer."""
    kept: list[AbortedTransaction] = []
    for entry in sorted(entries, key=lambda entry: (entry.producer_id, entry.first_offset, -entry.last_offset)):
        if not kept or kept[-1].producer_id != entry.producer_id or entry.last_offset > kept[-1].last_offset:
            kept.append(entry)
    return tuple(kept)


def _indexed(store: ObjectStore, copy: SegmentCopy) -> tuple[AbortedTransaction, ...] | None:
    """Return the entries of the copy's `.txnindex`, or of a packed one's index; None if they cannot be used."""
    if copy.packed is not None:
        aborted = copy.packed.aborted
        return None if aborted is None else tuple(AbortedTransaction(*each, -1) for each in aborted)
    if copy.metadata.rebuilt:
        return None
    if copy.metadata.txnindex is None:
        return ()
    crc, state = copy.metadata.txnindex
    if state is TxnIndexState.CORRUPT:
        return None
    if ".txnindex" not in copy.segment.suffixes:
        return () if crc == 0 else None  # shipped late, and the broker had no index
    data = read_index(store, copy.keys, copy.segment.name, ".txnindex")
    return None if data is None or crc32c(data) != crc else read_transaction_index(data)
