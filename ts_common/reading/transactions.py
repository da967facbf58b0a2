"""Which transactions of a partition were aborted, and where the undecided ones begin (reading rule 4).

A `.txnindex` lists the aborted transactions whose marker stands in its segment. It counts only if it is the one that
the `.log`'s metadata names, and complete; a segment of ours without one has no abort marker. Elsewhere the batch
headers are read: a transaction begins with a producer's first transactional batch after its last marker, and ends with
its next one. Where a marker is read so whose transaction began further down, the segments below are read too, until one
shows where. Only living parts of copies count: what stands in a dead tail is nobody's word.

Where offsets are lost, markers are lost with them. A producer's next marker behind a hole may belong to a transaction
that began in the hole, so it proves nothing of one that is open where the hole begins. The records of that one, up to
the hole, are hidden, and are part of the loss.

Source of the search's end: Kafka's `UnifiedLog.collectAbortedTransactions`, which stops at an entry whose last stable
offset reaches what is asked for.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import structlog
from awscrt.checksums import crc32c

from ts_common.archive.copies import SegmentCopy
from ts_common.archive.plan import Hole, ReadRange
from ts_common.archive.segment_metadata import TxnIndexState
from ts_common.archive.stored_indexes import read_index
from ts_common.archive.view import PartitionView
from ts_common.log_format.index_files import AbortedTransaction, read_transaction_index
from ts_common.reading.missing_markers import Batch, hidden_batches, may_be_lost
from ts_common.reading.transaction_events import Events, Walk
from ts_common.store.contract import ObjectStore

log = structlog.get_logger()


def stable_end(store: ObjectStore, view: PartitionView) -> int:
    """Up to which offset `read_committed` shows a view: its last stable offset, at most its end.

    Raises:
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: where the commit does not say it.
    """
    if view.last_stable_offset is not None:
        return min(view.last_stable_offset, view.end)
    steps = [step for step in view.plan(view.start, view.end) if not isinstance(step, Hole)]
    events, walk = Events(store, steps), Walk()
    if may_be_lost(view.copies):
        lost = hidden_batches(store, view, steps, view.start, view.end, events.next_marker)
        events = Events(store, steps, frozenset(lost))
    for number in range(len(steps)):
        walk.take(events.of(number))
    return min([*walk.open.values(), view.end])


@dataclass(frozen=True, slots=True)
class CutOff:
    """A transaction that is open where a hole begins: the hole may hold its end.

    Attributes:
        producer_id: of its producer.
        first: its first offset that was looked at.
        hole: the lost offsets `[start, end)`.
    """

    producer_id: int
    first: int
    hole: Hole

    @property
    def reason(self) -> str:
        """Why its records are not shown; the end of a sentence that begins with their offsets."""
        return (
            f"not shown as far as producer {self.producer_id} wrote them: its transaction is open where "
            f"the lost offsets {self.hole.start} to {self.hole.end - 1} begin"
        )


@dataclass(frozen=True, slots=True)
class Hidden:
    """What `read_committed` does not show of a range.

    Attributes:
        transactions: those whose records are hidden, by producer and offset.
        cut_off: of these the ones that a hole left without an end, in the order of offsets.
    """

    transactions: tuple[AbortedTransaction, ...] = ()
    cut_off: tuple[CutOff, ...] = ()


def find_hidden(store: ObjectStore, view: PartitionView, start: int, stop: int) -> Hidden:
    """The transactions whose records in `[start, stop)` are hidden: aborted, cut off by a hole, or without a marker.

    The markers are looked for as far as the view shows them. Batches that do not count because their marker was
    compacted away (`ts_common.reading.missing_markers`) are told as transactions of their own.

    Args:
        store: where the segments lie.
        view: of the partition, with its own end: a marker can stand far behind its records.
        start: first offset.
        stop: the offset after the last, at most the last stable one.

    Raises:
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from reading indexes and segments.
    """
    steps = [step for step in view.plan(view.start, view.end) if not isinstance(step, Hole)]
    events = Events(store, steps)
    found = _find_aborted(store, events, steps, start, stop)
    lost: set[Batch] = set()
    if may_be_lost(view.copies):
        lost = hidden_batches(store, view, steps, start, stop, events.next_marker)
        if lost:
            log.info("transactions_without_markers", partition=str(view.partition), batches=len(lost))
        found += [AbortedTransaction(batch.producer_id, batch.first, batch.last, -1) for batch in lost]
    cut_off = _find_cut_off(store, view, frozenset(lost), start, stop)
    found += [AbortedTransaction(one.producer_id, one.first, one.hole.start - 1, -1) for one in cut_off]
    return Hidden(_apart(entry for entry in found if entry.first_offset < stop and entry.last_offset >= start), cut_off)


def _find_aborted(
    store: ObjectStore, events: Events, steps: Sequence[ReadRange], start: int, stop: int
) -> list[AbortedTransaction]:
    """What indexes and markers show from `start` on."""
    found: list[AbortedTransaction] = []
    walk = Walk()
    for number, step in enumerate(steps):
        if step.end <= start:
            continue
        indexed = [_indexed(store, copy) for copy in step.copies]
        entries = [entry for index in indexed for entry in index or ()]
        living = [entry for entry in entries if step.start <= entry.last_offset < step.end]
        found += living
        if None in indexed:
            for abort in walk.take(events.of(number)):
                first = abort.offset if abort.begun is None else abort.begun
                if not abort.is_certain:
                    first = _began(events, number, abort.producer_id, first)
                found.append(AbortedTransaction(abort.producer_id, first, abort.offset, -1))
        else:
            walk = Walk()  # commits here are not known, so what was open may not be any more
            if any(entry.last_stable_offset >= stop for entry in living):
                break
    return found


def _find_cut_off(
    store: ObjectStore, view: PartitionView, lost: frozenset[Batch], start: int, stop: int
) -> tuple[CutOff, ...]:
    """The transactions with records in `[start, stop)` that are open where a hole begins.

    Headers are read from `start` to the last hole that begins below `stop`, and on from there until all that is open
    has ended. Of a view without a hole above `start` nothing is read.
    """
    plan = view.plan(start, view.end)
    holes = [number for number, step in enumerate(plan) if isinstance(step, Hole)]
    steps = [step for step in plan if not isinstance(step, Hole)]
    events, number = Events(store, steps, lost), 0
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


def _apart(entries: Iterable[AbortedTransaction]) -> tuple[AbortedTransaction, ...]:
    """By producer and offset; what lies inside another one of the same producer is left out."""
    kept: list[AbortedTransaction] = []
    for entry in sorted(entries, key=lambda entry: (entry.producer_id, entry.first_offset, -entry.last_offset)):
        if not kept or kept[-1].producer_id != entry.producer_id or entry.last_offset > kept[-1].last_offset:
            kept.append(entry)
    return tuple(kept)


def _began(events: Events, number: int, producer_id: int, first: int) -> int:
    """Where a transaction began whose first batch above the ranges before `number` is at `first`."""
    for before in reversed(range(number)):
        mine = [event for event in events.of(before) if event.producer_id == producer_id]
        if mine and mine[-1].kind is None:
            first = mine[-1].offset
        if any(event.kind is not None for event in mine):
            break
    return first


def _indexed(store: ObjectStore, copy: SegmentCopy) -> tuple[AbortedTransaction, ...] | None:
    """What the copy's `.txnindex` says; None where it cannot be believed."""
    if copy.metadata.rebuilt:
        return None
    if copy.metadata.txnindex is None:
        return ()
    crc, state = copy.metadata.txnindex
    if state is TxnIndexState.CORRUPT:
        return None
    if ".txnindex" not in copy.segment.suffixes:
        return () if crc == 0 else None  # late, and the broker had none
    data = read_index(store, copy.keys, copy.segment.name, ".txnindex")
    return None if data is None or crc32c(data) != crc else read_transaction_index(data)
