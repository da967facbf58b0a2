"""Beginnings and ends of a partition's transactions, by the batch headers of its segments.

A transaction begins with a producer's first transactional batch after its last marker, and ends with its next marker.
Only live batches count; batches in a dead tail are ignored.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from ts_common.archive.copies import SegmentCopy
from ts_common.archive.plan import ReadRange
from ts_common.archive.restored import Ended, Outcome
from ts_common.errors import CorruptData
from ts_common.log_format.framing import NO_PRODUCER, NO_TIMESTAMP, BatchHeader
from ts_common.log_format.markers import ABORT, COMMIT, read_markers
from ts_common.store.contract import ObjectStore
from ts_reader.reading.missing_markers import Batch
from ts_reader.reading.transactional_batches import read_transactional

NOTHING_ENDED: Final[Mapping[int, Sequence[Ended]]] = MappingProxyType({})
_KINDS: Final = {Outcome.ABORT: ABORT, Outcome.COMMIT: COMMIT}


@dataclass(frozen=True, slots=True, order=True)
class Event:
    """A producer's first transactional batch since its last marker, or a marker.

    Attributes:
        offset: of the batch, or of the marker.
        kind: of the marker; None for a batch.
        time: ms since the epoch: the greatest timestamp of the batch; of a marker, when its leader wrote it.
        epoch: the producer's.
        sequence: sequence number of the batch's first record. With 0 no earlier batch is of the same transaction,
            unless 2^31 records wrapped it.
    """

    offset: int
    producer_id: int
    kind: int | None = field(compare=False)
    time: int = field(default=NO_TIMESTAMP, compare=False)
    epoch: int = field(default=NO_PRODUCER, compare=False)
    sequence: int = field(default=NO_PRODUCER, compare=False)


@dataclass(frozen=True, slots=True)
class Abort:
    """An abort marker with the beginning of its transaction.

    Attributes:
        offset: of the marker.
        begun: the first batch of the transaction that the walk has read; None if it has read none.
        is_certain: whether that is the transaction's first batch, because the walk has read the marker before it.
    """

    producer_id: int
    offset: int
    begun: int | None
    is_certain: bool


class Walk:
    """Transactions in ranges that are read one after the other.

    Attributes:
        open: the first offset read of each undecided transaction, by producer id.
    """

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        self._with_marker: set[int] = set()  # producers with a marker so far

    def add(self, events: Sequence[Event]) -> list[Abort]:
        """Add the next range's events; return the aborted transactions that end there."""
        aborts = []
        for event in events:
            producer_id = event.producer_id
            if event.kind is None:
                self.open.setdefault(producer_id, event.offset)
                continue
            begun = self.open.pop(producer_id, None)
            if event.kind == ABORT:
                aborts.append(Abort(producer_id, event.offset, begun, producer_id in self._with_marker))
            self._with_marker.add(producer_id)
        return aborts


class Events:
    """Beginnings and ends of transactions in each of some ranges, of all its copies, in order; each is read once.

    Args:
        ended: as `PartitionView.ended`. Each is a marker behind the range that ends there.
    """

    def __init__(
        self,
        store: ObjectStore,
        steps: Sequence[ReadRange],
        hidden_batches: frozenset[Batch] = frozenset(),
        ended: Mapping[int, Sequence[Ended]] = NOTHING_ENDED,
    ) -> None:
        self._store = store
        self._steps = steps
        self._ended = ended
        self._hidden_batches = hidden_batches
        self._read: dict[int, list[Event]] = {}

    def of(self, number: int) -> list[Event]:
        """Return the events of a range, by its number.

        Raises:
            CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from reading segments.
        """
        if number not in self._read:
            step = self._steps[number]
            found = {
                event
                for copy in step.copies
                for event in _events_of(self._store, copy, step.start, step.end, self._hidden_batches)
            }
            markers = [
                Event(step.end - 1, each.producer_id, _KINDS[each.outcome], epoch=each.producer_epoch)
                for each in self._ended.get(step.end, ())
            ]
            self._read[number] = [*sorted(found), *markers]
        return self._read[number]

    def next_marker(self, number: int, producer_id: int, offset: int) -> int | None:
        """Return a producer's first marker after an offset, in range `number` or above; None if it has no marker."""
        for above in range(number, len(self._steps)):
            for event in self.of(above):
                if event.kind is not None and event.producer_id == producer_id and event.offset > offset:
                    return event.offset
        return None

    def open_at(self, number: int, producer_id: int) -> Event | None:
        """Return the beginning of a producer's transaction that is open where a range starts, if there is one.

        Earlier ranges are read, down to the one with the producer's last marker.
        """
        begun: Event | None = None
        for before in reversed(range(number)):
            mine = [event for event in self.of(before) if event.producer_id == producer_id]
            behind = max((place + 1 for place, event in enumerate(mine) if event.kind is not None), default=0)
            begun = mine[behind] if behind < len(mine) else begun
            if behind:
                break
        return begun


def _markers(copy: SegmentCopy, header: BatchHeader, records: bytes) -> list[tuple[int, int]]:
    try:
        return list(read_markers(header, records))
    except CorruptData as error:
        raise CorruptData(f"{copy.key}: {error}") from error


def _events_of(
    store: ObjectStore, copy: SegmentCopy, start: int, end: int, hidden_batches: frozenset[Batch]
) -> Iterator[Event]:
    begun: set[int] = set()
    for header, body in read_transactional(store, copy, start, end):
        offset = max(header.base_offset, start)
        if not header.is_control:
            # The cleaner empties only decided transactions: it never reaches an open one.
            if header.record_count == 0:
                continue
            if hidden_batches and Batch(header.producer_id, header.base_offset, header.last_offset) in hidden_batches:
                continue
            if header.producer_id not in begun:
                begun.add(header.producer_id)
                yield Event(
                    offset,
                    header.producer_id,
                    None,
                    header.max_timestamp,
                    header.producer_epoch,
                    header.base_sequence,
                )
            continue
        for marker, kind in _markers(copy, header, body):
            if kind in {ABORT, COMMIT}:
                begun.discard(header.producer_id)
                yield Event(marker, header.producer_id, kind, header.max_timestamp, header.producer_epoch)
