"""Which transactions of a partition were aborted, and where the undecided ones begin (reading rule 4).

A `.txnindex` lists the aborted transactions whose marker stands in its segment. It counts only if it is the one that
the `.log`'s metadata names, and complete; a segment of ours without one has no abort marker. Elsewhere the batch
headers are read: a transaction begins with a producer's first transactional batch after its last marker, and ends with
its next one. Where a marker is read so whose transaction began further down, the segments below are read too, until one
shows where. Only living parts of copies count: what stands in a dead tail is nobody's word.

Source of the search's end: Kafka's `UnifiedLog.collectAbortedTransactions`, which stops at an entry whose last stable
offset reaches what is asked for.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import structlog
from awscrt.checksums import crc32c

from ts_common.catalog import SegmentCopy
from ts_common.errors import ObjectNotFound
from ts_common.log_format.index_files import AbortedTransaction, read_transaction_index
from ts_common.log_format.markers import ABORT, COMMIT, read_markers
from ts_common.lost_markers import Batch, may_be_lost, uncounted
from ts_common.plan import Hole, ReadRange
from ts_common.segment_metadata import TxnIndexState
from ts_common.store.contract import ObjectStore
from ts_common.transactional import read_transactional
from ts_common.view import PartitionView

log = structlog.get_logger()


def stable_end(store: ObjectStore, view: PartitionView) -> int:
    """Up to which offset `read_committed` shows a view: its last stable offset, at most its end.

    Raises:
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: where the commit does not say it.
    """
    if view.last_stable_offset is not None:
        return min(view.last_stable_offset, view.end)
    steps = [step for step in view.plan(view.start, view.end) if not isinstance(step, Hole)]
    events, walk = _Events(store, steps), _Walk()
    if may_be_lost(view.copies):
        lost = uncounted(store, view, steps, view.start, view.end, events.next_marker)
        events = _Events(store, steps, frozenset(lost))
    for number in range(len(steps)):
        walk.take(events.of(number))
    return min([*walk.open.values(), view.end])


def find_aborted(store: ObjectStore, view: PartitionView, start: int, stop: int) -> tuple[AbortedTransaction, ...]:
    """The aborted transactions that have records in `[start, stop)`, as far as the view shows their markers.

    With them come batches that do not count because their marker was compacted away (`ts_common.lost_markers`), as
    transactions of their own.

    Args:
        store: where the segments lie.
        view: of the partition, with its own end: a marker can stand far behind its records.
        start: first offset.
        stop: the offset after the last, at most the last stable one.

    Raises:
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from reading indexes and segments.
    """
    steps = [step for step in view.plan(view.start, view.end) if not isinstance(step, Hole)]
    events = _Events(store, steps)
    found: list[AbortedTransaction] = []
    walk = _Walk()
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
            walk = _Walk()  # commits here are not known, so what was open may not be any more
            if any(entry.last_stable_offset >= stop for entry in living):
                break
    if may_be_lost(view.copies):
        lost = uncounted(store, view, steps, start, stop, events.next_marker)
        if lost:
            log.info("transactions whose end was compacted away", partition=str(view.partition), batches=len(lost))
        found += [AbortedTransaction(batch.producer_id, batch.first, batch.last, -1) for batch in lost]
    return _apart(entry for entry in found if entry.first_offset < stop and entry.last_offset >= start)


def _apart(entries: Iterable[AbortedTransaction]) -> tuple[AbortedTransaction, ...]:
    """By producer and offset; what lies inside another one of the same producer is left out."""
    kept: list[AbortedTransaction] = []
    for entry in sorted(entries, key=lambda entry: (entry.producer_id, entry.first_offset, -entry.last_offset)):
        if not kept or kept[-1].producer_id != entry.producer_id or entry.last_offset > kept[-1].last_offset:
            kept.append(entry)
    return tuple(kept)


@dataclass(frozen=True, slots=True, order=True)
class _Event:
    """A producer's first transactional batch since its last marker, or a marker (`kind`)."""

    offset: int
    producer_id: int
    kind: int | None = field(compare=False)


@dataclass(frozen=True, slots=True)
class _Abort:
    """An abort marker, and the first batch of its transaction that the walk met; not certain where it may have met a
    later one only.
    """

    producer_id: int
    offset: int
    begun: int | None
    is_certain: bool


class _Walk:
    """Transactions as the headers of ranges show them that are read one after the other.

    Attributes:
        open: first offset met of each undecided one, by producer id.
    """

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        self._known: set[int] = set()  # producers whose last marker was met

    def take(self, events: Sequence[_Event]) -> list[_Abort]:
        """Go on with the next range's events; the aborted transactions that end there."""
        aborts = []
        for event in events:
            producer_id = event.producer_id
            if event.kind is None:
                self.open.setdefault(producer_id, event.offset)
                continue
            begun = self.open.pop(producer_id, None)
            if event.kind == ABORT:
                aborts.append(_Abort(producer_id, event.offset, begun, producer_id in self._known))
            self._known.add(producer_id)
        return aborts


class _Events:
    """Beginnings and ends of transactions in each of some ranges, by all its copies, in order; each is read once."""

    def __init__(
        self, store: ObjectStore, steps: Sequence[ReadRange], uncounted: frozenset[Batch] = frozenset()
    ) -> None:
        self._store = store
        self._steps = steps
        self._uncounted = uncounted
        self._read: dict[int, list[_Event]] = {}

    def of(self, number: int) -> list[_Event]:
        if number not in self._read:
            step = self._steps[number]
            found = {
                event
                for copy in step.copies
                for event in _events_of(self._store, copy, step.start, step.end, self._uncounted)
            }
            self._read[number] = sorted(found)
        return self._read[number]

    def next_marker(self, number: int, producer_id: int, offset: int) -> int | None:
        """The first marker of a producer behind an offset, in range `number` or above; None where there is none."""
        for above in range(number, len(self._steps)):
            for event in self.of(above):
                if event.kind is not None and event.producer_id == producer_id and event.offset > offset:
                    return event.offset
        return None


def _began(events: _Events, number: int, producer_id: int, first: int) -> int:
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
    try:
        data, _ = store.get(copy.keys.segment(copy.segment.name, ".txnindex"))
    except ObjectNotFound:
        return None
    return read_transaction_index(data) if crc32c(data) == crc else None


def _events_of(
    store: ObjectStore, copy: SegmentCopy, start: int, end: int, uncounted: frozenset[Batch]
) -> Iterator[_Event]:
    begun: set[int] = set()
    for header, body in read_transactional(store, copy, start, end):
        offset = max(header.base_offset, start)
        if not header.is_control:
            # What the cleaner emptied was decided before: it never comes as far as an open transaction.
            if header.record_count == 0:
                continue
            if uncounted and Batch(header.producer_id, header.base_offset, header.last_offset) in uncounted:
                continue
            if header.producer_id not in begun:
                begun.add(header.producer_id)
                yield _Event(offset, header.producer_id, None)
            continue
        for marker, kind in read_markers(header, body):
            if kind in {ABORT, COMMIT}:
                begun.discard(header.producer_id)
                yield _Event(marker, header.producer_id, kind)
